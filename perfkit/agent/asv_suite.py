"""Runs suites of asv (airspeed velocity) as they are: their benchmarks are items of a pytest session."""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import gc
import hashlib
import importlib
import inspect
import itertools
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

import pytest

from .counters.model import PEAK_MEMORY, TRACKED, Count
from .functions import runs_coroutines, source_of
from .processes import peak_resident
from .provenance import foreign_files

if TYPE_CHECKING:
    from .benchmark_fixture import Target

Kind = Literal["time", "timeraw", "peakmem", "track", "mem"]
# Of a class's name the capital form counts as well, and timeraw comes after time, which its name lacks.
_KINDS: Mapping[Kind, re.Pattern[str]] = {
    "time": re.compile(r"Time[A-Z_].+|time_.+$"),
    "timeraw": re.compile(r"Timeraw[A-Z_].+|timeraw_.+$"),
    "peakmem": re.compile(r"PeakMem[A-Z_].+|peakmem_.+$"),
    "track": re.compile(r"Track[A-Z_].+|track_.+$"),
    "mem": re.compile(r"Mem[A-Z_].+|mem_.+$"),
}
NUMBERS: frozenset[Kind] = frozenset({"peakmem", "track", "mem"})
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_LONGEST_ID = 60
_ID_DIGITS = 8
# asv's default: this many samples, or this many seconds of them, whichever is less.
_SAMPLES, _SAMPLES_S, _WARMUP_S = 10, 10.0, 0.1
_IGNORED = (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning)
_SKIPS = "SkipNotImplemented"
_NO_SIZES = "perfkit has no measure of the size of one object; peakmem_ benchmarks are measured"


@dataclass(frozen=True, kw_only=True)
class AsvFolder:
    """A suite: its folder, relative to ``root``, and the seconds that a benchmark may take by default."""

    root: Path
    folder: str
    limit_s: float
    caches: Path | None = None
    proves_code: bool = False

    @property
    def path(self) -> Path:
        """The suite's folder."""
        return self.root / self.folder

    def holds_all(self, places: Iterable[Path]) -> bool:
        """Return whether all places, of which there is one at least, lie in the suite."""
        found = [place.is_relative_to(self.path) for place in places]
        return bool(found) and all(found)

    def holds(self, file: Path) -> bool:
        """Return whether asv would import a file: all folders below the suite's own must be packages."""
        if file.suffix != ".py" or not file.is_relative_to(self.path):
            return False
        below = [
            folder for folder in file.parents if folder != self.path and folder.is_relative_to(self.path)
        ]
        names = [*(folder.name for folder in below), file.name.removesuffix(".py")]
        return all((folder / "__init__.py").is_file() for folder in below) and not any(
            "." in name for name in names
        )


class AsvPlugin:
    """Collects the benchmarks of a suite in each session where ``wanted`` accepts their file."""

    def __init__(self, suite: AsvFolder, *, wanted: Callable[[Path], bool] = lambda _: True) -> None:
        self.suite = suite
        self._wanted = wanted
        self._finder = _SuiteFinder(suite.path)
        self._folders = _Folders(suite)
        self.left_out = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path, parent: pytest.Collector
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        """Collect a file of the suite; pytest itself would take any that is named for a file of tests."""
        found = yield
        if not self.suite.holds(file_path) or not self._wanted(file_path):
            return found
        tests = parent.config.getini("python_files")
        if not any(fnmatch.fnmatch(file_path.name, pattern) for pattern in tests):
            found = [one for one in found if not isinstance(one, pytest.Module)]
        file = _AsvFile.from_parent(parent, path=file_path)
        file.plugin = self
        return [*found, file]

    def import_file(self, file: Path) -> ModuleType:
        """Import a file as asv does: as a module of the package that its suite's folder is."""
        self._finder.install()
        parts = file.relative_to(self.suite.path).with_suffix("").parts
        names = [self.suite.path.name, *parts]
        name = ".".join(names[:-1] if names[-1] == "__init__" else names)
        module = importlib.import_module(name)
        if Path(module.__file__ or "") != file:
            raise ImportError(f'"{name}" was imported from {module.__file__} before, and not from {file}')
        return module

    @contextlib.contextmanager
    def folder_of(self, case: _Case) -> Iterator[Path]:
        """Make the folder that a benchmark runs in the current one."""
        before = Path.cwd()
        with self._folders.folder_of(case) as folder:
            os.chdir(folder)
            try:
                yield folder
            finally:
                os.chdir(before)


class _SuiteFinder:
    """Finds the suite's package in its parent folder, in which nothing else is found for that."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def install(self) -> None:
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._folder.name or path is not None:
            return None
        return PathFinder.find_spec(name, [str(self._folder.parent)], target)


class _AsvFile(pytest.Module):
    """A file of a suite."""

    plugin: AsvPlugin

    def _getobj(self) -> ModuleType:
        try:
            with plain_warnings():
                return self.plugin.import_file(self.path)
        except pytest.skip.Exception:
            raise
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise self.CollectError(f"{type(error).__name__}: {error}") from error

    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        module, seen = self.obj, set()
        for name, value in list(vars(module).items()):
            if name.startswith("_"):
                continue
            if inspect.isclass(value) and not inspect.isabstract(value):
                if value.__name__ not in seen and any(_benchmarks_of(value)):
                    seen.add(value.__name__)
                    group = _AsvClass.from_parent(self, name=value.__name__)
                    group.plugin, group.kind_of_object, group.module = self.plugin, value, module
                    yield group
            elif inspect.isfunction(value) and value.__name__ not in seen:
                kind = _kind_of(name, value)
                if kind is not None:
                    seen.add(value.__name__)
                    made = _Maker(module=module, function=value, name=value.__name__)
                    yield from _items(self, self.plugin, made, kind)


class _AsvClass(pytest.Collector):
    """A class of a suite."""

    plugin: AsvPlugin
    kind_of_object: type
    module: ModuleType

    def collect(self) -> Iterator[pytest.Item]:
        for name, kind in _benchmarks_of(self.kind_of_object):
            made = _Maker(module=self.module, owner=self.kind_of_object, name=name)
            yield from _items(self, self.plugin, made, kind)


def _benchmarks_of(owner: type) -> Iterator[tuple[str, Kind]]:
    for name, value in inspect.getmembers(owner):
        if inspect.isfunction(value) or inspect.ismethod(value):
            kind = _kind_of(name, value)
            if kind is not None:
                yield name, kind


def _kind_of(name: str, function: Callable[..., object]) -> Kind | None:
    public = str(getattr(function, "benchmark_name", name)).rpartition(".")[2]
    return next((kind for kind, pattern in _KINDS.items() if pattern.match(public)), None)


@dataclass(frozen=True, kw_only=True)
class _Maker:
    """Makes a benchmark's function and the objects with its attributes; ``owner`` is its class, if any."""

    module: ModuleType
    name: str
    owner: type | None = None
    function: Callable[..., Any] | None = None

    def make(self) -> _Made:
        if self.owner is None:
            assert self.function is not None  # noqa: S101 (it has either)
            return _Made(function=self.function, sources=(self.function, self.module))
        instance = self.owner()
        function = getattr(instance, self.name)
        return _Made(function=function, sources=(function, instance, self.module))


@dataclass(frozen=True, kw_only=True)
class _Made:
    """A benchmark's function, and the objects that its attributes are looked up in, first of all itself."""

    function: Callable[..., Any]
    sources: tuple[object, ...]

    def first(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 (any value)
        found = (getattr(source, name, None) for source in self.sources)
        return next((value for value in found if value is not None), default)

    def every(self, name: str) -> list[Callable[..., object]]:
        found = []
        for source in self.sources:
            names = [known for known in dir(source) if known.lower() == name]
            if len(names) > 1:
                raise ValueError(f"{source!r} has more than one {name}: {', '.join(names)}")
            found += [value for known in names if (value := getattr(source, known, None)) is not None]
        return found

    @property
    def setups(self) -> list[Callable[..., object]]:
        return self.every("setup")[::-1]

    @property
    def functions(self) -> tuple[Callable[..., object], ...]:
        cache = self.first("setup_cache")
        return (self.function, *self.setups, *([] if cache is None else [cache]))

    @property
    def source(self) -> str:
        version = self.first("version")
        return "\n\n".join(map(source_of, self.functions)) if version is None else f"version {version}"


def _items(parent: pytest.Collector, plugin: AsvPlugin, maker: _Maker, kind: Kind) -> Iterator[_AsvItem]:
    """Yield an item for each combination of a benchmark's parameters."""
    try:
        with plain_warnings():
            made = maker.make()
            names, values = _parameters(made)
            source, functions, limit_s = made.source, made.functions, _limit_s(made, plugin.suite.limit_s)
            skipped = [tuple(one) for one in made.first("skip_params", ())]
    except Exception as error:  # noqa: BLE001 (what a constructor raises is this benchmark's failure)
        case = _Case(plugin=plugin, maker=maker, kind=kind, broken=f"{type(error).__name__}: {error}")
        yield _item(parent, maker.name, case)
        return
    leaves_out = bool(getattr(made.function, "skip_benchmark", False))
    texts = [_unique(map(_text_of, options)) for options in values]
    for combination, ids in zip(itertools.product(*values), itertools.product(*texts), strict=True):
        if leaves_out or combination in skipped:
            plugin.left_out += 1
            continue
        case = _Case(
            plugin=plugin,
            maker=maker,
            kind=kind,
            values=combination,
            params=dict(zip(names, ids, strict=True)),
            source=source,
            functions=functions,
            limit_s=limit_s,
        )
        yield _item(parent, f"{maker.name}[{'-'.join(ids)}]" if ids else maker.name, case)


def _item(parent: pytest.Collector, name: str, case: _Case) -> _AsvItem:
    # It is a plain function: pytest would call a method of an object anew from its class.
    def measure(benchmark: object) -> None:
        case.measure(benchmark, item)

    item: _AsvItem = _AsvItem.from_parent(parent, name=name, callobj=measure)
    item.case = case
    return item


def _parameters(made: _Made) -> tuple[list[str], list[list[Any]]]:
    given = list(made.first("params", []))
    if given and not isinstance(given[0], (tuple, list)):
        given = [given]
    values = [list(options) for options in given]
    names = [str(name) for name in made.first("param_names", [])][: len(values)]
    return [*names, *(f"param{place + 1}" for place in range(len(names), len(values)))], values


def _text_of(value: object) -> str:
    text = value if isinstance(value, str) and value.isidentifier() else repr(value)
    text = " ".join(_ADDRESS.sub("", text).split()).replace("::", ":")
    if len(text) <= _LONGEST_ID:
        return text
    return f"{text[:_LONGEST_ID]}~{hashlib.sha256(text.encode()).hexdigest()[:_ID_DIGITS]}"


def _unique(texts: Iterable[str]) -> list[str]:
    given = list(texts)
    several = {text for text, count in Counter(given).items() if count > 1}
    numbers: Counter[str] = Counter()
    found = []
    for text in given:
        found.append(f"{text} ({numbers[text]})" if text in several else text)
        numbers[text] += 1
    return found


def _limit_s(made: _Made, default_s: float) -> float:
    own = made.first("timeout")
    cache = getattr(made.first("setup_cache"), "timeout", None)
    return max(float(default_s if own is None else own), float(cache or 0.0))


class _AsvItem(pytest.Function):
    """A benchmark of a suite with one combination of its parameters."""

    case: _Case
    number: Count | None = None

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name


@dataclass(frozen=True, kw_only=True)
class _Case:
    """What an item measures; ``broken`` is why its object cannot be made."""

    plugin: AsvPlugin
    maker: _Maker
    kind: Kind
    values: tuple[Any, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    functions: tuple[Callable[..., object], ...] = ()
    limit_s: float | None = None
    broken: str | None = None

    def measure(self, fixture: object, item: _AsvItem) -> None:
        __tracebackhide__ = True
        from .benchmark_fixture import count_as_used, run_number

        count_as_used(fixture)
        if self.broken is not None:
            raise RuntimeError(f"its object cannot be made: {self.broken}")
        with plain_warnings(), self.plugin.folder_of(self) as folder:
            if self.kind in NUMBERS:
                item.number = run_number(fixture, lambda: self._number(folder))
            else:
                self._time(fixture, folder)

    def _time(self, fixture: object, folder: Path) -> None:
        from .benchmark_fixture import Rounds, run_plainly, run_rounds

        call = _Call(self.maker.make(), self.values, folder)
        made = call.made
        with call.ready():
            if _SKIPS in self.source:
                # It shows now whether it skips itself: once it is timed, only one side would skip.
                call.once()
            # A benchmark's setup may change these.
            number = int(made.first("number", 1 if self.kind == "timeraw" else 0))
            if not number:
                run_plainly(fixture, made.function, call.args, timer=made.first("timer"))
                return
            block = call.afresh(self._block(fixture, call))
            most, most_s = _samples(made)
            warmup_s = float(made.first("warmup_time", -1))
            run_rounds(
                fixture,
                Rounds(
                    block=block,
                    call=lambda: block(1),
                    loops=number,
                    most=most,
                    most_s=most_s,
                    warmup_s=_WARMUP_S if warmup_s < 0 else warmup_s,
                    target=call.target() if self.kind == "time" else None,
                ),
            )

    def _block(self, fixture: object, call: _Call) -> Callable[[int], float]:
        from .benchmark_fixture import block_of

        if self.kind == "time":
            # asv runs no coroutine either: only its making would be timed.
            runs_coroutines(call.made.function, has_loop=False)
            return block_of(fixture, call.made.function, call.args, timer=call.made.first("timer"))
        root = self.plugin.suite.root if self.plugin.suite.proves_code else None
        return raw_block(call.once, env=call.made.first("env"), root=root)

    def _number(self, folder: Path) -> Count:
        call = _Call(self.maker.make(), self.values, folder)
        if self.kind == "mem":
            pytest.skip(_NO_SIZES)
        if self.kind == "peakmem":
            return measure_peak(call.through)
        return tracked_number(call.through(), call.made.first("unit", "unit"), name=self.maker.name)


class _Call:
    """A benchmark's function with its arguments, set up anew when that is asked for."""

    def __init__(self, made: _Made, values: tuple[Any, ...], folder: Path) -> None:
        self.made = made
        self._setups, self._teardowns = made.setups, made.every("teardown")
        self._fresh = True
        cache = _cached(made, folder)
        self.args = values if cache is None else (cache, *values)

    @contextlib.contextmanager
    def ready(self) -> Iterator[None]:
        self._set_up()
        try:
            yield
        except NotImplementedError as error:
            if any(kind.__name__ == _SKIPS for kind in type(error).__mro__):
                pytest.skip(f"it skips itself: {error}")
            raise
        finally:
            self._tear_down()

    def through(self) -> object:
        with self.ready():
            return self.once()

    def target(self) -> Target:
        from .benchmark_fixture import Target

        def arguments() -> tuple[tuple[Any, ...], Mapping[str, object]]:
            self._set_up_anew()
            return self.args, {}

        function = self.made.function
        file = getattr(getattr(function, "__code__", None), "co_filename", "")
        return Target(function=function, arguments=arguments, file=file, new=bool(self._setups))

    def once(self) -> Any:  # noqa: ANN401 (any value)
        return self.made.function(*self.args)

    def afresh(self, block: Callable[[int], float]) -> Callable[[int], float]:

        def run(iterations: int) -> float:
            self._set_up_anew()
            return block(iterations)

        return run

    def _set_up_anew(self) -> None:
        """Set up again, except before the first call."""
        if not self._fresh:
            self._tear_down()
            self._set_up()
        self._fresh = False

    def _set_up(self) -> None:
        try:
            for setup in self._setups:
                setup(*self.args)
        except NotImplementedError as error:
            pytest.skip(f"its setup skips it: {str(error) or type(error).__name__}")

    def _tear_down(self) -> None:
        for teardown in self._teardowns:
            teardown(*self.args)


def _samples(made: _Made) -> tuple[int, float]:
    repeat = made.first("repeat", 0)
    if isinstance(repeat, (tuple, list)):
        return int(repeat[1]), float(repeat[2])
    return (int(repeat), float(made.first("timeout", 60.0))) if repeat else (_SAMPLES, _SAMPLES_S)


@dataclass
class _Folders:
    """The folders that benchmarks run in: those with a cache share one, which holds its result."""

    suite: AsvFolder
    _own: tempfile.TemporaryDirectory[str] | None = None

    @contextlib.contextmanager
    def folder_of(self, case: _Case) -> Iterator[Path]:
        cache = case.maker.make().first("setup_cache")
        if cache is None:
            with tempfile.TemporaryDirectory(prefix="asv-") as folder:
                yield Path(folder)
            return
        kind = (
            ""
            if case.maker.owner is None
            else f"{case.maker.owner.__module__}.{case.maker.owner.__qualname__}"
        )
        key = "\n".join((str(self.suite.root), kind, cache.__module__, cache.__qualname__))
        folder_of_cache = self._caches() / hashlib.sha256(key.encode()).hexdigest()[:16]
        folder_of_cache.mkdir(parents=True, exist_ok=True)
        yield folder_of_cache

    def _caches(self) -> Path:
        if self.suite.caches is not None:
            return self.suite.caches
        if self._own is None:
            self._own = tempfile.TemporaryDirectory(prefix="asv-caches-")
        return Path(self._own.name)


def _cached(made: _Made, folder: Path) -> Any:  # noqa: ANN401 (what the suite's function returned)
    """Return a copy of what ``setup_cache`` returned, which is called once and kept as a pickle."""
    function = made.first("setup_cache")
    if function is None:
        return None
    kept = folder / "cache.pickle"
    if not kept.exists():
        for setup in made.setups:
            if not inspect.ismethod(setup) and _needs_nothing(setup):
                setup()
        whole = kept.with_suffix(f".{os.getpid()}")
        whole.write_bytes(pickle.dumps(function()))
        whole.replace(kept)
    return pickle.loads(kept.read_bytes())  # noqa: S301 (this suite wrote it, in this run)


def _needs_nothing(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    return True


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Have warnings treated as Python does by itself: asv does not know the filters of a project's tests."""
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for category in _IGNORED:
            warnings.simplefilter("ignore", category)
        yield


def asv_case(item: pytest.Item) -> _Case | None:
    """Return what an item of an asv suite measures, None for any other item."""
    return item.case if isinstance(item, _AsvItem) else None


def number_of(item: pytest.Item) -> Count | None:
    """Return the number that an item has measured in place of a time, None where it has none."""
    return item.number if isinstance(item, _AsvItem) else None


_BYTES = frozenset({"b", "byte", "bytes"})
_ANSWER, _LOADED = "perfkit-seconds ", "perfkit-loaded "
# It reads its program from its standard input, since a command line is limited in length. It imports nothing
# but timeit, so that a statement which imports something finds as little of that loaded as it would by hand.
_PROGRAM = "import sys; exec(sys.stdin.read())"


def raw_block(
    code: Callable[[], object], *, env: Mapping[str, object] | None, root: Path | None
) -> Callable[[int], float]:
    """Return a block that times this many runs of a text in a fresh interpreter, in seconds."""

    def block(iterations: int) -> float:
        made = code()
        statement, setup = made if isinstance(made, tuple) else (made, "")
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            input=_program(str(statement), str(setup), iterations),
            env={**os.environ, **{str(name): str(value) for name, value in (env or {}).items()}},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            raise RuntimeError(f"its interpreter ended with exit status {done.returncode}: {last}")
        seconds, loaded = _answer(done.stdout)
        _check_code(loaded, root)
        return seconds

    return block


def _program(statement: str, setup: str, iterations: int) -> str:
    statement, setup = textwrap.dedent(statement), textwrap.dedent(setup)
    finders = [f"{type(one).__module__}.{type(one).__qualname__}" for one in sys.meta_path]
    kinds = [f"{one.__module__}.{one.__qualname__}" for one in sys.meta_path if isinstance(one, type)]
    return textwrap.dedent(f"""
        import timeit
        known = {[*finders, *kinds]!r}
        def name(one):
            kind = one if isinstance(one, type) else type(one)
            return kind.__module__ + "." + kind.__qualname__
        sys.path[:] = {sys.path!r}
        sys.meta_path[:] = [one for one in sys.meta_path if name(one) in known]
        seconds = timeit.timeit({statement!r}, {setup!r}, number={iterations})
        print()
        print({_ANSWER!r} + repr(seconds))
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and name != "__main__":
                print({_LOADED!r} + name + " " + file)
    """)


def _answer(output: str) -> tuple[float, dict[str, str]]:
    lines = output.splitlines()
    seconds = next(line.removeprefix(_ANSWER) for line in reversed(lines) if line.startswith(_ANSWER))
    loaded = (line.removeprefix(_LOADED).partition(" ") for line in lines if line.startswith(_LOADED))
    return float(seconds), {name: file for name, _, file in loaded}


def _check_code(loaded: Mapping[str, str], root: Path | None) -> None:
    foreign = foreign_files(loaded, root) if root is not None else {}
    if foreign:
        name, file = min(foreign.items())
        raise RuntimeError(f"wrong code imported in a fresh interpreter: {name} came from {file}")


def measure_peak(run: Callable[[], object]) -> Count:
    """Return the peak of this process's resident size while a benchmark is set up and runs, in bytes."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
    peak = peak_resident(run)
    if peak is None:
        pytest.skip("the peak of one benchmark's memory can be read on Linux only, from /proc")
    return Count(metric=PEAK_MEMORY, unit="B", values=(float(peak),), causes=())


def tracked_number(value: object, unit: object, *, name: str) -> Count:
    """Return what a benchmark has tracked, in its own unit."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        kind = type(value).__name__
        raise TypeError(
            f"{name} returned an object of type {kind}, and only single numbers are compared"
        ) from None
    if math.isnan(number):
        pytest.skip(f"{name} returned nan")
    if math.isinf(number):
        raise ValueError(f"{name} returned {number}, which cannot be compared")
    text = str(unit)
    stored = "B" if text.lower() in _BYTES else text
    return Count(metric=TRACKED, unit=stored, values=(number,), causes=())
