"""Records which code each benchmark runs, once for each benchmark and without timing.

Python calls ``_Tracer`` whenever a code object starts. What starts while a module is imported, a suite is
collected or a fixture of more than one test is made belongs to all benchmarks.
"""

from __future__ import annotations

import _thread
import contextlib
import hashlib
import json
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TextIO

import pytest

if TYPE_CHECKING:
    from .benchmark_fixture import Work

# A benchmark is called again for so long, so that code of rare calls may show.
_CALLS_S, _MOST_CALLS = 0.01, 20
IMPORT = "import"
_TOOL = 4  # of sys.monitoring; the numbers below are those of debuggers, coverage and profilers
_PROCESSES = frozenset({
    "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system",
    "pty.spawn",
})  # fmt: skip
_TRACERS = frozenset({"sys.setprofile", "sys.settrace", "sys.monitoring.register_callback"})
_READS = frozenset({"open", "os.listdir", "os.scandir", "ctypes.dlopen", "sqlite3.connect"})
_EVENTS = _PROCESSES | _TRACERS | _READS
# Programs that run no code of the project.
_HARMLESS = frozenset({"ldconfig", "gcc", "cc", "ld", "uname", "lscpu", "nvidia-smi"})
# Functions of libraries after which Python no longer sees what runs, by the end of their file.
_HIDING = {
    ("torch/jit/_script.py", "script"): "torch.jit compiles code",
    ("torch/jit/_trace.py", "trace"): "torch.jit compiles code",
    ("torch/__init__.py", "compile"): "torch.compile compiles code",
    ("torch/_dynamo/eval_frame.py", "optimize"): "torch.compile compiles code",
    ("numba/core/decorators.py", "jit"): "numba compiles code",
    ("jax/_src/api.py", "jit"): "jax compiles code",
    ("multiprocessing/util.py", "spawnv_passfds"): "it starts a process",
}
# Modules that open files for others.
_OPENERS = ("/pathlib.py", "/tokenize.py", "/codecs.py", "/linecache.py", "/inspect.py", "/glob.py", "/os.py")
_IMPORTERS = ("<frozen importlib", "<frozen zipimport", "<frozen runpy")


class Trace:
    """The record of what runs in this process, written line by line to a file.

    Args:
        top: the checkout; code in it is the project's own.
        file: where the lines go.
        seconds: benchmarks that begin later than that are skipped.
    """

    def __init__(self, top: Path, file: Path, *, seconds: float) -> None:
        self._top = f"{top}/"
        self._until = time.monotonic() + seconds
        self._out: TextIO = file.open("w", encoding="utf-8")
        self._libraries = _library_folders(self._top)
        # Codes are distinguished by identity, as comparing them takes long; kept, no identity comes twice.
        self._kept: list[CodeType] = []
        self._foreign: set[int] = set()
        self._keys: dict[int, int] = {}
        self._numbers: dict[tuple[str, str], int] = {}
        self._codes: dict[str, set[int]] = {IMPORT: set()}
        self._seen: set[int] = set()
        self._opened: dict[str, set[str]] = {IMPORT: set()}
        self._unknown: dict[str, set[str]] = {IMPORT: set()}
        self._tracer = self._made_tracer()
        self._bucket = IMPORT
        # While no module has come since a bucket began, nothing is being imported in it.
        self._modules = -1
        self._caches_setup = False
        self._node: str | None = None
        self._early = sorted(
            place.removeprefix(self._top)
            for module in list(sys.modules.values())
            if isinstance(place := getattr(module, "__file__", None), str) and place.startswith(self._top)
        )

    def install(self) -> None:
        """Record from now on, in all threads."""
        self._follow()
        sys.addaudithook(self._audit)
        if sys.version_info < (3, 12):
            # Threads of the module threading are followed; monitoring follows all of them.
            start = _thread.start_new_thread

            def start_and_note(*arguments: Any) -> int:  # noqa: ANN401 (any thread's)
                self._unknown[self._bucket].add("it starts a thread that Python's tracing misses")
                return start(*arguments)

            _thread.start_new_thread = start_and_note

    def _follow(self) -> None:
        if sys.version_info >= (3, 12):
            monitoring = sys.monitoring
            if monitoring.get_tool(_TOOL) is None:
                monitoring.use_tool_id(_TOOL, "perfkit")
                for event in (monitoring.events.PY_START, monitoring.events.PY_RESUME):
                    monitoring.register_callback(_TOOL, event, self._started)
            monitoring.set_events(_TOOL, monitoring.events.PY_START | monitoring.events.PY_RESUME)
            monitoring.restart_events()
        else:
            threading.settrace(self._tracer)
            sys.settrace(self._tracer)

    @contextlib.contextmanager
    def within(self, bucket: str) -> Iterator[None]:
        """Have what runs meanwhile belong to a bucket."""
        before = self._bucket
        self.switch(bucket)
        try:
            yield
        finally:
            self.switch(before)

    def switch(self, bucket: str) -> None:
        """Have what runs from now on belong to a bucket."""
        self._bucket, self._modules = bucket, len(sys.modules)
        self._seen.clear()
        for kept in (self._codes, self._opened, self._unknown):
            kept.setdefault(bucket, set())
        self._follow()

    @property
    def over(self) -> bool:
        """Whether the time for tracing is over."""
        return time.monotonic() > self._until

    def _made_tracer(self) -> Callable[[FrameType, str, object], None]:
        """Return the function that Python calls at each start of a code object, as quick as can be."""
        foreign, seen, note = self._foreign, self._seen, self._note

        def called(frame: FrameType, _event: str, _argument: object) -> None:
            code = frame.f_code
            number = id(code)
            if number not in foreign and number not in seen:
                note(code, number, frame)

        return called

    def _started(self, code: CodeType, _offset: int) -> object:
        number = id(code)
        if number not in self._foreign and number not in self._seen:
            self._note(code, number, sys._getframe(1))  # noqa: SLF001 (the documented way to the caller)
        done = number in self._foreign or number in self._seen
        return sys.monitoring.DISABLE if done else None  # type: ignore[attr-defined,unused-ignore]

    def _note(self, code: CodeType, number: int, frame: FrameType) -> None:
        key = self._keys.get(number)
        if key is None:
            self._kept.append(code)
            hides = self._hides(code)
            if hides is not None:
                if not (self._place(frame) == IMPORT and not self._is_own(frame.f_back)):
                    self._unknown[self._place(frame)].add(hides)
                return
            found = self._key(code)
            self._caches_setup |= code.co_name == "setup_cache"
            if found is None:
                self._foreign.add(number)
                return
            key = self._numbers.setdefault(found, len(self._numbers))
            self._keys[number] = key
        place = self._place(frame)
        self._codes[place].add(key)
        if place == self._bucket:
            self._seen.add(number)

    def _hides(self, code: CodeType) -> str | None:
        if code.co_name not in {name for _, name in _HIDING}:
            return None
        return next((why for (file, name), why in _HIDING.items()
                     if code.co_name == name and code.co_filename.endswith(file)), None)  # fmt: skip

    def _key(self, code: CodeType) -> tuple[str, str] | None:
        """Return the file and name of own code, the hash of generated code, None for that of libraries."""
        file = code.co_filename
        if file.startswith(self._top) and file.endswith(".py"):
            return file.removeprefix(self._top), code.co_qualname
        if file.startswith("<frozen") or (
            file.startswith(self._libraries) and not file.startswith(self._top)
        ):
            return None
        return "", _digest(code, self._top)

    def _place(self, frame: FrameType | None) -> str:
        """Return the bucket of what a frame runs: a module that is being imported belongs to all."""
        if self._bucket == IMPORT:
            return IMPORT
        if len(sys.modules) == self._modules and not self._caches_setup:
            return self._bucket
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and frame.f_back is not None and _imports(frame.f_back):
                return IMPORT
            if code.co_name == "setup_cache":
                return IMPORT
            frame = frame.f_back
        return self._bucket

    def _is_own(self, frame: FrameType | None) -> bool:
        return frame is not None and frame.f_code.co_filename.startswith(self._top)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in _EVENTS:
            return
        frame = sys._getframe(1)  # noqa: SLF001 (the documented way to the caller)
        if event in _READS:
            self._read(arguments, frame)
        elif event in _TRACERS:
            if not frame.f_code.co_filename.endswith(("/threading.py", __file__)):
                self._unknown[self._place(frame)].add("it sets a tracer or profiler of its own")
        elif self._matters(event, arguments, frame):
            self._unknown[self._place(frame)].add("it starts a process")

    def _matters(self, event: str, arguments: tuple[Any, ...], frame: FrameType) -> bool:
        if event == "subprocess.Popen" and Path(os.fsdecode(arguments[0] or "")).name in _HARMLESS:
            return False
        return self._is_below_own(frame)

    def _is_below_own(self, frame: FrameType | None) -> bool:
        """Return whether own code led to a frame, or may have begun its thread."""
        if threading.current_thread() is not threading.main_thread():
            return True
        while frame is not None and not self._is_own(frame):
            frame = frame.f_back
        return frame is not None

    def _read(self, arguments: tuple[Any, ...], frame: FrameType | None) -> None:
        name = arguments[0] if arguments else None
        if name is None or isinstance(name, int):
            name = "." if name is None else ""
        try:
            path = os.path.abspath(os.fsdecode(name))  # noqa: PTH100 (pathlib would raise further events)
        except (TypeError, ValueError, OSError):
            return
        if not f"{path}/".startswith(self._top):
            return
        while frame is not None and frame.f_code.co_filename.endswith(_OPENERS):
            frame = frame.f_back
        file = frame.f_code.co_filename if frame is not None else ""
        if file.startswith(_IMPORTERS) or "/importlib/metadata/" in file or not self._is_below_own(frame):
            return
        self._opened[self._place(frame)].add(path.removeprefix(self._top) if path + "/" != self._top else ".")

    def begin(self, node: str) -> None:
        """Begin a benchmark with its set-up."""
        self._node = node
        self.switch("setup")

    def finish(self) -> None:
        """Write what the benchmark that is over has run."""
        self.switch(IMPORT)
        parts = {name: sorted(self._codes.pop(name, ())) for name in ("setup", "first", "later")}
        opened = sorted({one for name in parts for one in self._opened.pop(name, ())})
        unknown = sorted({one for name in parts for one in self._unknown.pop(name, ())})
        if sys.version_info < (3, 12) and _uses_cuda():
            unknown.append("threads of an accelerator run code that Python's tracing misses")
        self._write({"node": self._node, **parts, "opened": opened, "unknown": unknown})

    def close(self) -> None:
        """Write what all benchmarks have in common."""
        self._write({
            "codes": [list(key) for key in self._numbers],
            "import": sorted(self._codes[IMPORT]),
            "opened": sorted(self._opened[IMPORT]),
            "unknown": sorted(self._unknown[IMPORT]),
            "early": self._early,
            "libraries": self._loaded(),
        })  # fmt: skip
        self._out.close()

    def _loaded(self) -> list[str]:
        """Return the libraries that are loaded, by their top-level names."""
        places = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
        found = {
            name.partition(".")[0]
            for name, place in places.items()
            if isinstance(place, str) and not place.startswith(self._top)
        }
        return sorted(found - sys.stdlib_module_names)

    def _write(self, line: object) -> None:
        self._out.write(json.dumps(line) + "\n")
        self._out.flush()


class TracePlugin:
    """Reports to a trace which benchmark runs, and which fixtures are those of more than one test."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record what a test runs as its own."""
        self._trace.begin(item.nodeid)
        try:
            return (yield)
        finally:
            self._trace.finish()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Skip the rest once the time is over."""
        if self._trace.over:
            pytest.skip("not traced in time")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Record what a fixture of a wider scope runs as everybody's."""
        if fixturedef.scope == "function":
            return (yield)
        with self._trace.within(IMPORT):
            return (yield)


class TracingLoop:
    """A timing loop that calls each benchmark some times and times nothing."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def time(self, work: Work) -> None:
        """Make the first call, and some later ones where the benchmark allows them."""
        loops = work.loops or 1
        # Where each process makes one call, that is the one that is timed.
        single = work.rounds is not None and work.rounds * loops < 2  # noqa: PLR2004
        self._trace.switch("later" if single else "first")
        _call(work, loops)
        self._trace.switch("later")
        until, made = time.perf_counter() + _CALLS_S, 1
        most = _MOST_CALLS if work.rounds is None else min(work.rounds, _MOST_CALLS)
        while made < most and (made == 1 or time.perf_counter() < until):
            _call(work, loops)
            made += 1


def _call(work: Work, loops: int) -> None:
    if work.number is not None:
        work.number()
    else:
        work.block(loops)


_AGENT = str(Path(__file__).parent) + "/"


def _imports(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith("<frozen importlib") or file.endswith("/_pytest/assertion/rewrite.py")


def _library_folders(top: str) -> tuple[str, ...]:
    known = [*sysconfig.get_paths().values(), sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    known += [*map(os.path.realpath, known)]
    folders = {f"{place}/" for place in known if place and not f"{place}/".startswith(top)}
    # A folder around the checkout holds it as well.
    return (_AGENT, *sorted(place for place in folders if place != "/" and not top.startswith(place)))


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _digest(code: CodeType, top: str) -> str:
    return hashlib.sha256(_described(code, top).encode(errors="surrogatepass")).hexdigest()[:16]


def _described(value: object, top: str) -> str:
    """Describe a constant of a code object alike on both sides."""
    if isinstance(value, CodeType):
        parts: Sequence[object] = (
            *(value.co_name, value.co_code, value.co_names, value.co_varnames, value.co_freevars),
            *(value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount, value.co_flags),
            *value.co_consts,
        )
        return f"code({','.join(_described(part, top) for part in parts)})"
    if isinstance(value, (tuple, frozenset)):
        items = [_described(item, top) for item in value]
        return f"{type(value).__name__}({','.join(sorted(items) if isinstance(value, frozenset) else items)})"
    if isinstance(value, str):
        return repr(value.replace(top, ""))
    return f"{type(value).__name__}:{value!r}"
