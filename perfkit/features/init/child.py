"""The process in which first benchmarks are tried.

What is tried is code that nobody has called with such data before. It can write nothing outside of its own
folder, start no process and reach no network; it has little memory, and little time for each call. Each step
is a message, so that a call that ends the process takes no result with it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import signal
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfkit.agent.functions import check_is_run
from perfkit.repo.git import try_git
from perfkit.runner.requests import Parent, limit_process

_CALL_LIMIT_S = 3.0
_IMPORT_LIMIT_S = 60.0
_CALLS = 3
_MEMORY_BYTES = 8_000_000_000
_IN_NO_COMMIT = "a file that no commit has"
_Given = tuple[Sequence[object], Mapping[str, object]]
# A gate decides calls of these times in seconds; slower ones are kept where there is nothing else.
_SHORTEST_S, _LONGEST_S = 1e-5, 0.05
_LEAST_S, _MOST_S = 5e-7, 1.0
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = frozenset({
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
    "os.chown", "os.kill", "os.killpg", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.spawn",
    "os.system", "os.putenv", "shutil.rmtree", "shutil.move", "subprocess.Popen", "socket.connect",
    "socket.bind", "socket.getaddrinfo", "webbrowser.open",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One way to call a function: the imports that it needs, and the lines of a benchmark's body.

    The lines of ``anew`` are for a function that changes its arguments.
    """

    imports: tuple[str, ...]
    body: tuple[str, ...]
    anew: tuple[str, ...] = ()
    may_return_nothing: bool = False


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A public function or class that a first benchmark may call, with the ways to call it, best first."""

    module: str
    name: str
    file: str
    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, kw_only=True)
class FirstBenchmark:
    """A benchmark that ran: ``call_s`` is what a call of it took, in seconds."""

    candidate: Candidate
    attempt: Attempt
    call_s: float


@dataclass(frozen=True, kw_only=True)
class Order:
    """What to try: until ``enough`` of it takes a good time, or ``every`` candidate, of any time."""

    root: str
    sources: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    enough: int = 0
    every: bool = False


@dataclass(frozen=True, kw_only=True)
class Step:
    """A message: what is tried now, what it took in seconds, or what kept it from running."""

    candidate: int
    attempt: int = -1
    call_s: float | None = None
    is_anew: bool = False
    problem: str | None = None


def is_passable(call_s: float | None) -> bool:
    """Return whether a gate could decide a call of this time at all."""
    return call_s is not None and _LEAST_S <= call_s <= _MOST_S


def is_good(call_s: float | None) -> bool:
    """Return whether a gate decides a call of this time in seconds."""
    return call_s is not None and _SHORTEST_S <= call_s <= _LONGEST_S


class _TimeIsOverError(BaseException):
    """Ends a call that takes too long; it is no Exception, since the code may catch these."""


class _Pickler(pickle.Pickler):
    """Writes what values hold; code stands for itself."""

    def persistent_id(self, one: object) -> int | None:
        return id(one) if isinstance(one, (type, types.FunctionType, types.ModuleType)) else None


def _state(value: object) -> bytes | None:
    """Return bytes that differ once a value has changed, None where that is not known."""
    out = io.BytesIO()
    try:
        _Pickler(out).dump(value)
    except Exception:  # noqa: BLE001 (code of the project's may raise anything)
        return None
    return out.getvalue()


class _Probe:
    """Stands in for pytest-benchmark's fixture: it calls a function a few times and keeps the median time.

    ``call`` makes the call; it has no annotations, as in the fixture: some functions read those.
    """

    def __init__(
        self,
        attempt: Attempt,
        call: Callable[[Callable[..., object], Sequence[object], Mapping[str, object]], object],
    ) -> None:
        self.call_s: float | None = None
        self.changes = False
        self._attempt, self._call = attempt, call

    def __call__(self, function: Callable[..., object], *given: object, **named: object) -> object:
        """Call the function; what it returns is that of the last call."""
        watched = (given, named) if self._attempt.anew else None
        before = _state(watched)
        result = self._call(function, given, named)
        self.changes = before is None or before != _state(watched)
        return result if self.changes else self._time(function, lambda: (given, named))

    def pedantic(
        self, function: Callable[..., object], *, setup: Callable[[], _Given], rounds: int
    ) -> object:
        """Call the function with arguments that are made anew for each call."""
        return self._time(function, setup, calls=min(rounds, _CALLS))

    def _time(
        self, function: Callable[..., object], make: Callable[[], _Given], calls: int = _CALLS
    ) -> object:
        result, taken = None, []
        for _ in range(calls):
            given, named = make()
            began = time.perf_counter()
            result = self._call(function, given, named)
            check_is_run(function, result)
            taken.append(time.perf_counter() - began)
        if result is None and not self._attempt.may_return_nothing:
            raise ValueError("it returns nothing")
        self.call_s = statistics.median(taken)
        return result


def main(request: Order, parent: Parent) -> None:
    """Try what was requested, and send what became of it, step by step."""
    sys.path[:0] = [str(Path(request.root, source)) for source in request.sources]
    sys.dont_write_bytecode = True
    limit_process(data=_MEMORY_BYTES)
    guard = Guard(Path.cwd(), Path(request.root).resolve())
    sys.addaudithook(guard.check)
    _try_all(request, guard, parent.send)


def _try_all(order: Order, guard: Guard, log: Callable[[Step], None]) -> None:
    modules: dict[str, str | None] = {}
    good: set[str] = set()
    for number, candidate in enumerate(order.candidates):
        if candidate.module in good and not order.every:
            # A second benchmark of the same file would add little.
            continue
        if candidate.module not in modules:
            log(Step(candidate=number))
            modules[candidate.module] = _import_problem(candidate.module, order.root)
        if modules[candidate.module] is not None:
            log(Step(candidate=number, problem=modules[candidate.module]))
            continue
        for which, attempt in enumerate(candidate.attempts):
            log(Step(candidate=number, attempt=which))
            step = _tried(number, which, attempt, guard, order.root)
            log(step)
            if is_passable(step.call_s) or (order.every and step.call_s is not None):
                if is_good(step.call_s):
                    good.add(candidate.module)
                break
            if step.problem and step.problem.startswith(_IN_NO_COMMIT):
                # Once it is read it may be in a cache, and the next attempt read nothing.
                break
        if len(good) >= order.enough and not order.every:
            return


def _tried(number: int, which: int, attempt: Attempt, guard: Guard, root: str) -> Step:
    if tempfile.gettempdir() in "\n".join(attempt.body).replace(root, ""):
        return Step(candidate=number, attempt=which, problem="a temporary file of a test")
    imports = [line for line in (*attempt.imports, *attempt.body) if line.startswith(("from ", "import "))]
    try:
        with _at_most(_IMPORT_LIMIT_S), _quiet():
            exec("\n".join(imports), {})  # noqa: S102 (libraries may do more than a benchmark may)
        there = [*Path.cwd().iterdir()]
        with _at_most(_CALL_LIMIT_S), guard.closed(), _quiet():
            probe = first = _run(attempt, root)
            if first.changes:
                probe = _run(replace(attempt, body=attempt.anew), root)
        if [*Path.cwd().iterdir()] != there:
            return Step(candidate=number, attempt=which, problem="a file that it writes")
        if ignored := guard.has_read and try_git(Path(root), "check-ignore", *sorted(guard.has_read)):
            problem = f"{_IN_NO_COMMIT}: {ignored.splitlines()[0]}"
            return Step(candidate=number, attempt=which, problem=problem)
        return Step(candidate=number, attempt=which, call_s=probe.call_s, is_anew=first.changes)
    except (Exception, SystemExit, _TimeIsOverError) as error:  # noqa: BLE001 (anything may be raised)
        return Step(candidate=number, attempt=which, problem=_first_line(error))


def _run(attempt: Attempt, root: str) -> _Probe:
    """Run the very lines that a benchmark would have."""
    call = "def called_here(function, given, named): return function(*given, **named)"
    lines = [*attempt.imports, call, "def attempted(benchmark):", *(f"    {line}" for line in attempt.body)]
    module = types.ModuleType("attempted")
    module.__file__ = str(Path(root, "benchmarks", "attempted.py"))
    exec(compile("\n".join(lines), "<first benchmark>", "exec"), module.__dict__)  # noqa: S102 (that is the point)
    probe = _Probe(attempt, module.__dict__["called_here"])
    module.__dict__["attempted"](probe)
    return probe


def _import_problem(name: str, root: str) -> str | None:
    """Import a module, if any, and return what is wrong with it: an error, or a copy from elsewhere."""
    if not name:
        return None
    try:
        with _at_most(_IMPORT_LIMIT_S), _quiet():
            module = importlib.import_module(name)
    except (Exception, SystemExit, _TimeIsOverError) as error:  # noqa: BLE001 (anything may be raised)
        return _first_line(error)
    file = getattr(module, "__file__", None) or root
    if not Path(file).resolve().is_relative_to(Path(root).resolve()):
        return f"ImportError: {name} is imported from {file}, not from here"
    return None


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


class Guard:
    """Refuses what would change anything outside of one folder, while it is closed, and notes what was read.

    ``has_read`` are the files of the project, other than modules, that were opened since it was last closed.
    """

    def __init__(self, folder: Path, root: Path | None = None) -> None:
        self._folder, self._root, self._is_closed = str(folder.resolve()), root, False
        self.has_read: set[str] = set()

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Refuse it within the block."""
        self._is_closed = True
        self.has_read.clear()
        try:
            yield
        finally:
            self._is_closed = False

    def check(self, event: str, arguments: tuple[object, ...]) -> None:
        """Check each thing that Python is about to do."""
        if not self._is_closed:
            return
        if event in _FORBIDDEN or (event == "open" and self._writes(arguments)):
            raise PermissionError(f"a first benchmark may not do this: {event}")
        if event == "open" and self._root and isinstance(arguments[0], (str, os.PathLike)):
            file = Path(arguments[0]).resolve()
            if not file.suffix.startswith(".py") and file.is_relative_to(self._root):
                self.has_read.add(str(file))

    def _writes(self, arguments: tuple[object, ...]) -> bool:
        """Return whether a file is opened to be written, outside of the folder."""
        place, mode, flags = (*arguments, None, None, None)[:3]
        by_mode = isinstance(mode, str) and any(sign in mode for sign in "wax+")
        by_flags = not isinstance(mode, str) and isinstance(flags, int) and bool(flags & _WRITES)
        inside = isinstance(place, (str, os.PathLike)) and str(Path(place).resolve()).startswith(self._folder)
        return (by_mode or by_flags) and not inside and place != os.devnull


@contextlib.contextmanager
def _at_most(limit_s: float) -> Iterator[None]:
    """End the block after this many seconds, where it runs code of Python's."""

    def end(*_: object) -> None:
        raise _TimeIsOverError("it takes too long")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Discard output and warnings."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
