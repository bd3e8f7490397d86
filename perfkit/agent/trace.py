"""Records which code each benchmark runs, without timing: a process forked for each of them after import."""

from __future__ import annotations

import _posixsubprocess
import _thread
import atexit
import contextlib
import dis
import functools
import gc
import hashlib
import importlib
import json
import math
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, BinaryIO, NoReturn, Protocol

from .fork_server import try_fork
from .processes import die_with, kill, kill_descendants

_FORK_LIMIT_S = 5.0
# One that has begun when the time is over may take so long.
_GRACE_S = 5.0
_TOOL = 4  # of sys.monitoring; the numbers below are those of debuggers, coverage and profilers
_OPTIMIZED = 0x1  # the flag of code that is a function and no module or class body
_PROCESSES = frozenset({
    "subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system",
    "pty.spawn", "cpython.PyInterpreterState_New",
})  # fmt: skip
_TRACERS = frozenset({"sys.setprofile", "sys.settrace", "sys.monitoring.register_callback"})
_READS = frozenset({"open", "os.listdir", "os.scandir", "sqlite3.connect"})
_LIBRARY = "ctypes.dlopen"
_COLLECTOR = frozenset({"gc.get_objects", "gc.get_referrers", "gc.get_referents"})
_ATTRIBUTE = "object.__getattr__"
_CODES = frozenset({"__code__", "gi_code", "cr_code", "ag_code"})
_EVENTS = _PROCESSES | _TRACERS | _READS | _COLLECTOR | {_LIBRARY, _ATTRIBUTE}
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
}
_HIDING_NAMES = frozenset(name for _, name in _HIDING)
_STDLIB = f"{os.path.dirname(os.__file__)}/"  # noqa: PTH120 (a text that others begin with)
_OPENERS = frozenset({f"{_STDLIB}pathlib.py", f"{_STDLIB}pathlib/_local.py", f"{_STDLIB}pathlib/__init__.py"})
# They read lines of code, these to show them.
_LINES = frozenset({f"{_STDLIB}tokenize.py", f"{_STDLIB}linecache.py"})
_TRACEBACKS = frozenset({f"{_STDLIB}traceback.py", f"{_STDLIB}warnings.py"})
# To find out where a frame is, these ask for the files of all modules that are loaded.
_FINDERS = {(f"{_STDLIB}inspect.py", name) for name in ("getsourcefile", "getmodule", "getabsfile")}
_PATHS = {os.path.exists.__code__.co_filename, os.path.realpath.__code__.co_filename}
_IMPORTERS = ("<frozen importlib", "<frozen zipimport")
# Of pytest, what rewrites assertions, and what asks whether the file of a test is there.
_PYTEST = ("/_pytest/assertion/rewrite.py", "/_pytest/_code/code.py")
# Methods of importers that read data for their callers.
_GETTERS = frozenset({"get_data", "get_source"})
# By these names libraries look at all names, headers or docstrings of what they are given.
_LOOKS = frozenset({
    "dir", "vars", "__subclasses__", "getmembers", "signature", "get_type_hints", "get_annotations", "getdoc",
    "__doc__",
})  # fmt: skip
# They read of a function's code what its header holds as well, these its line numbers.
_READ_HEADERS = frozenset({
    (f"{_STDLIB}inspect.py", "_signature_from_function"), (f"{_STDLIB}inspect.py", "_has_code_flag"),
    (f"{_STDLIB}typing.py", "overload"),
})  # fmt: skip
_READ_LINES = ("_pytest", "pluggy", __package__ or "")
# They hand docstrings on.
_COPIERS = frozenset({f"{_STDLIB}contextlib.py", f"{_STDLIB}functools.py"})
_FIELDS, _RUNS_TEXTS = frozenset({"vars", "dir", "globals"}), frozenset({"eval", "exec", "compile"})
_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_WORD = re.compile(r"[^\W\d]\w*")
_GENERATED = "<generated>"
# A traced process runs this as it starts, and then the module of that name that it would have run.
_SITE = """
import importlib.util, sys
folder, top, records = {place!r}
spec = importlib.util.spec_from_file_location(
    {agent!r}, folder + "/__init__.py", submodule_search_locations=[folder]
)
sys.modules[{agent!r}] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[{agent!r}])
importlib.import_module({agent!r} + ".trace").follow(top, records)
ours = sys.modules.pop("sitecustomize")
sys.path[:] = [one for one in sys.path if one != records]
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = ours
"""
_IGNORE_IT = frozenset("IES")


class _Recorder(Protocol):
    """Finds which code objects start in this process."""

    def begin(self) -> None:
        """Record anew."""

    def take(self) -> Iterator[tuple[CodeType, Iterable[CodeType]]]:
        """Yield the code objects that started since, each with some that it called."""


class _Profiled:
    """The profiler in C of Python 3.11, which sees the main thread."""

    def __init__(self) -> None:
        self._profiler: Any = None

    def begin(self) -> None:
        """Record anew."""
        import _lsprof

        self._profiler = _lsprof.Profiler(subcalls=True, builtins=False)
        self._profiler.enable()

    def take(self) -> Iterator[tuple[CodeType, Iterable[CodeType]]]:
        """Yield the code objects that started since ``begin``, and what they called."""
        self._profiler.disable()
        for entry in self._profiler.getstats():
            if isinstance(entry.code, CodeType):
                called = [one.code for one in entry.calls or ()]
                yield entry.code, [code for code in called if isinstance(code, CodeType)]


class _Monitored:
    """The monitoring of Python 3.12 and later, which reports each code object once."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[CodeType, set[CodeType]]] = {}
        monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
        monitoring.use_tool_id(_TOOL, "perfkit")
        events = monitoring.events.PY_START | monitoring.events.PY_RESUME
        for event in (monitoring.events.PY_START, monitoring.events.PY_RESUME):
            monitoring.register_callback(_TOOL, event, self._started)
        monitoring.set_events(_TOOL, events)
        self._monitoring = monitoring

    def _started(self, code: CodeType, _offset: int) -> object:
        # Codes are distinguished by identity, as comparing them takes long; kept, no identity comes twice.
        self._found.setdefault(id(code), (code, set()))
        if code.co_name in _HIDING_NAMES:
            caller = sys._getframe(1).f_back  # noqa: SLF001 (the documented way to the caller)
            if caller is not None:
                self._found.setdefault(id(caller.f_code), (caller.f_code, set()))[1].add(code)
            return None
        return self._monitoring.DISABLE

    def begin(self) -> None:
        """Record anew."""
        self._found = {}
        self._monitoring.restart_events()

    def take(self) -> Iterator[tuple[CodeType, Iterable[CodeType]]]:
        """Yield the code objects that started since ``begin``, with what they called of ``_HIDING``."""
        yield from list(self._found.values())


class Trace:
    """The record of what runs in this process and in those forked from it, written line by line.

    Code in ``top``, the checkout, is the project's own.
    """

    def __init__(self, top: Path) -> None:
        self._top = f"{os.path.realpath(top)}/"
        self._together, self._until, self._limit_s = 1, math.inf, math.inf
        self._kept: list[CodeType] = []
        self._keys: dict[int, tuple[str, str, str] | None] = {}
        self._files: dict[str, str | None] = {}
        self._generated: dict[str, list[str]] = {}
        self._looks: set[str] = set()
        self._inspected: set[tuple[str, str]] = set()
        self._opened: set[str] = set()
        self._known_reads: set[tuple[str, bool]] = set()
        self._resolves = False
        self._unknown: set[str] = set()
        self._parts: dict[str, set[tuple[str, str, str]]] = {}
        self._part = "import"
        self._sending: BinaryIO | None = None
        self._node, self._is_sent = "", False
        # In a forked process, those of this process.
        self._traced: set[str] = set()
        self._early = [
            own
            for module in list(sys.modules.values())
            if isinstance(place := getattr(module, "__file__", None), str)
            and (own := self._own(place))
            and own != _GENERATED
        ]
        packages = (getattr(sys.modules.get(name), "__file__", None) for name in _READ_LINES)
        self._read_lines = tuple(f"{os.path.dirname(one)}/" for one in packages if one)  # noqa: PTH120
        self._recorder: _Recorder = _Profiled() if sys.version_info < (3, 12) else _Monitored()
        self._modules: frozenset[str] = frozenset()
        # What benchmarks that are over have imported, so that the next ones need not.
        self._libraries_of_others: list[str] = []
        self._imports = b""
        # Where processes of Python write what they run, how many have not done so, and what they import.
        self._records = Path()
        self._started, self._starts = 0, False
        self._others: list[str] = []

    def open(self, file: Path) -> None:
        """Have the lines go to a file."""
        self._out, self._records = file.open("wb"), file.with_suffix(".processes")
        self._modules = frozenset(sys.modules)

    def begin(self, *, together: int, seconds: float, limit_s: float) -> None:
        """Fork from this process, and record in the processes of Python that benchmarks start.

        Up to ``together`` benchmarks of one function share a process. Those that begin after ``seconds`` are
        left out, and one is ended after ``limit_s``.
        """
        self._together, self._until, self._limit_s = together, time.monotonic() + seconds, limit_s
        self._records.mkdir()
        place = (os.path.dirname(__file__), self._top, str(self._records))  # noqa: PTH120 (as it was loaded)
        self._records.joinpath("sitecustomize.py").write_text(_SITE.format(place=place, agent=__package__))
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(self._records), os.environ.get("PYTHONPATH")))
        )
        _compute_in(1)

    def record_alone(self) -> None:
        """Record all that runs in this process, which was not forked for a benchmark."""
        if self._early:
            self._unknown.add("it starts a process that loads own code before it can be traced")
        self._sending = self._out
        self._part = "setup"
        self.install()

    def install(self) -> None:
        """Record from now on, in all threads; Python keeps what it installs until the process ends."""
        sys.addaudithook(self._audit)
        if sys.version_info < (3, 12):
            self._watch_threads()
        fork_exec = _posixsubprocess.fork_exec
        noted = self._noting(fork_exec, "it starts a process")

        def followed(*arguments: Any) -> Any:  # noqa: ANN401 (those of a function in C)
            is_followed, self._starts = self._starts, False
            return fork_exec(*arguments) if is_followed else noted(*arguments)

        _posixsubprocess.fork_exec = followed
        for name in ("stat", "lstat", "access", "readlink"):
            setattr(os, name, self._reading(getattr(os, name)))
        self._recorder.begin()

    def _watch_threads(self) -> None:
        for module in (_thread, threading):
            for name in ("start_new_thread", "start_new", "_start_new_thread"):
                if hasattr(module, name):
                    why = "it starts a thread, which Python's profiler does not see"
                    setattr(module, name, self._noting(getattr(module, name), why))

    def _noting(self, call: Callable[..., Any], why: str) -> Callable[..., Any]:
        @functools.wraps(call)
        def noted(*arguments: Any, **more: Any) -> Any:  # noqa: ANN401 (those of any function)
            if self.is_forked or self._is_below_own(sys._getframe(1)):  # noqa: SLF001
                self._unknown.add(why)
            return call(*arguments, **more)

        return noted

    def _reading(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that asks for a file, and notes which one that is."""

        @functools.wraps(call)
        def read(path: Any, *arguments: Any, **more: Any) -> Any:  # noqa: ANN401 (those of any function)
            if not self._resolves:
                relative = more.get("dir_fd") is not None
                self._read((path,), sys._getframe(1), asked=True, relative=relative)  # noqa: SLF001
            return call(path, *arguments, **more)

        return read

    def switch(self, part: str) -> None:
        """Have what runs from now on belong to another part of the record."""
        self._take()
        self._begin(part)

    def repeat(self, part: str) -> None:
        """Take what ran in another part as run in this one as well."""
        self._parts.setdefault(self._part, set()).update(self._parts.get(part, ()))

    def _begin(self, part: str) -> None:
        self._part = part
        self._recorder.begin()

    def _take(self) -> None:
        """Keep what ran since the last part began."""
        found = self._parts.setdefault(self._part, set())
        for code, called in self._recorder.take():
            key = self._key(code)
            if key is not None:
                found.add(key)
            elif self._part in ("first", "later") and code.co_filename not in _COPIERS:
                self._looks |= _LOOKS.intersection(code.co_names)
            if self._part != "import" or key is not None:
                self._unknown.update(filter(None, map(_hides, called)))
        if self._started:
            self._take_processes(found)

    def _key(self, code: CodeType) -> tuple[str, str, str] | None:
        """Return the file, name and hash of own code, those of generated code without a file, or None."""
        number = id(code)
        if number not in self._keys:
            self._kept.append(code)
            self._keys[number] = self._new_key(code)
        return self._keys[number]

    def _new_key(self, code: CodeType) -> tuple[str, str, str] | None:
        file = self._own(code.co_filename)
        if file is None:
            return None
        if "get_num_threads" in code.co_names:
            self._unknown.add("it asks for the number of threads, which is another one while traced")
        if not file.endswith(".py"):
            digest = _digest(_whole(code, self._top))
            self._generated[digest] = sorted(_words(code))
            return "", code.co_name, digest
        if code.co_flags & _OPTIMIZED or "<locals>" in code.co_qualname:
            return file, code.co_qualname, _digest(_function(code, self._top))
        return file, code.co_qualname, ""

    def _own(self, file: str) -> str | None:
        """Return a file relative to the top, None for a library's, and the name of what is no file."""
        if file not in self._files:
            place = self._real(file)
            if file.startswith("<"):
                self._files[file] = None if file.startswith("<frozen") else _GENERATED
            elif place.startswith(self._top):
                self._files[file] = place.removeprefix(self._top)
            else:
                self._files[file] = None if self._resolved(os.path.isfile, place) else _GENERATED
        return self._files[file]

    def _is_own(self, frame: FrameType | None) -> bool:
        return frame is not None and (self._own(frame.f_code.co_filename) or "").endswith(".py")

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        # To read the code of a frame, as below, is an event as well.
        if event not in _EVENTS or (event == _ATTRIBUTE and arguments[1] not in _CODES):
            return
        frame = sys._getframe(1)  # noqa: SLF001 (the documented way to the caller)
        if event in _READS:
            self._read(arguments, frame)
        elif event in _PROCESSES:
            self._note_process(event, arguments, frame)
        elif event == _ATTRIBUTE:
            self._inspect(arguments[0], arguments[1], frame.f_code)
        elif event in _TRACERS and frame.f_code.co_filename not in (f"{_STDLIB}threading.py", __file__):
            self._unknown.add("it sets a tracer or profiler of its own")
        elif event == _LIBRARY:
            while frame.f_back is not None and frame.f_code.co_filename.startswith(f"{_STDLIB}ctypes/"):
                frame = frame.f_back
            if self._is_own(frame):
                self._unknown.add("it calls a library of C, of which Python sees nothing")
        elif event in _COLLECTOR and self._matters(event, arguments, frame):
            self._unknown.add("it asks the garbage collector for objects")

    def _note_process(self, event: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
        self._starts = event == "subprocess.Popen" and self._is_traced_too(*arguments)
        self._started += self._starts
        if not self._starts and self._matters(event, arguments, frame):
            self._unknown.add("it starts a process or an interpreter")

    def _is_traced_too(self, program: Any, words: Any, _folder: object, variables: Any) -> bool:  # noqa: ANN401 (those of Popen)
        """Return whether a process that a benchmark starts is one of Python that records what it runs."""
        if not self.is_forked or isinstance(words, (str, bytes, os.PathLike)):
            return False
        program, *words = (os.fsdecode(one) for one in (program or words[0], *words[1:]))
        path = (os.environ if variables is None else variables).get("PYTHONPATH", "")
        if program != sys.executable or str(self._records) not in os.fsdecode(path).split(os.pathsep):
            return False
        options = iter(words)
        for word in options:
            if word[:1] != "-" or word[1:2] in "cm":
                break
            if word in ("-X", "-W"):
                next(options, None)
            elif word[1] not in "XW" and _IGNORE_IT & {*word}:
                return False
        return True

    def _take_processes(self, found: set[tuple[str, str, str]]) -> None:
        """Add what processes have run that are over."""
        for file in sorted(self._records.glob("*.jsonl")):
            text = file.read_bytes()
            if not text.endswith(b"\n"):
                continue
            file.unlink()
            ran = json.loads(text)
            self._started -= 1
            found.update(map(tuple, ran["setup"]))
            self._generated |= ran["generated"]
            self._looks.update(ran["looks"])
            self._inspected.update(map(tuple, ran["inspected"]))
            self._opened.update(ran["opened"])
            self._unknown.update(ran["unknown"])
            self._others += ran["modules"]

    def _inspect(self, holder: object, name: str, reader: CodeType) -> None:
        """Note that the code of a function or generator is read, which need not run for it."""
        if reader is _CODE_READER:
            return
        file = reader.co_filename
        if (file, reader.co_name) in _READ_HEADERS or file.startswith(self._read_lines):
            return
        code = _code_of(holder, name)
        if own := self._own(code.co_filename):
            self._inspected.add((own, code.co_qualname))

    def _matters(self, event: str, arguments: tuple[Any, ...], frame: FrameType) -> bool:
        if event == "subprocess.Popen" and Path(os.fsdecode(arguments[0] or "")).name in _HARMLESS:
            return False
        return self.is_forked or self._is_below_own(frame)

    def _is_below_own(self, frame: FrameType | None) -> bool:
        """Return whether own code led to a frame, or may have begun its thread."""
        if threading.current_thread() is not threading.main_thread():
            return True
        while frame is not None and not self._is_own(frame):
            frame = frame.f_back
        return frame is not None

    def _real(self, path: str) -> str:
        """Return where a path leads to, without noting that it was asked for."""
        return str(self._resolved(os.path.realpath, path))

    def _resolved(self, ask: Callable[[str], object], path: str) -> object:
        before, self._resolves = self._resolves, True
        try:
            return ask(path)
        finally:
            self._resolves = before

    def _read(
        self,
        arguments: tuple[Any, ...],
        frame: FrameType | None,
        *,
        asked: bool = False,
        relative: bool = False,
    ) -> None:
        """Note which file of the checkout is read: while benchmarks run by anybody, before by own code.

        A folder that is only ``asked`` for is not listed.
        """
        name = arguments[0] if arguments else None
        if _imports(frame) or not (self.is_forked or self._is_below_own(frame)):
            return
        if relative and isinstance(name, (str, bytes)) and not os.path.isabs(name):  # noqa: PTH117 (as below)
            self._unknown.add("it reads files relative to a folder that it has opened")
        if isinstance(name, int):
            return
        try:
            path = os.path.abspath(os.fsdecode("." if name is None else name))  # noqa: PTH100 (asks for no file)
        except (TypeError, ValueError, OSError):
            return
        if (path, asked) not in self._known_reads:
            self._known_reads.add((path, asked))
            real = self._real(path)
            if not (asked and self._resolved(os.path.isdir, real)):
                self._opened |= {
                    one.removeprefix(self._top) if f"{one}/" != self._top else "."
                    for one in (path, real)
                    if f"{one}/".startswith(self._top)
                }

    @property
    def is_forked(self) -> bool:
        """Whether this process was forked for benchmarks."""
        return self._sending is not None

    def fork(self, node: str) -> bool:
        """Fork a process for a benchmark: return False in it, and True in this process when it is over.

        It goes on to run the next ones of the same function, which have then run here as well.
        """
        if self._unknown or node in self._traced or time.monotonic() > self._until:
            return True
        self._import_libraries()
        reading, writing = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with(parent)
            os.close(reading)
            self._sending = os.fdopen(writing, "wb")
            self._started = 0
            self._others.clear()
            self._traced.clear()
            self._generated.clear()
            self._keys.clear()
            self._looks.clear()
            self._inspected.clear()
            self._opened.clear()
            self._known_reads.clear()
            self._parts.clear()
            self._begin_node(node)
            return False
        os.close(writing)
        left_s = max(self._until - time.monotonic(), _GRACE_S)
        for line in _received(reading, min(self._limit_s, left_s)):
            self._out.write(line)
            found = json.loads(line)
            self._traced.add(found["node"])
            self._libraries_of_others += found["imports"]
        os.close(reading)
        kill(pid)
        os.waitpid(pid, 0)
        for file in self._records.glob("*.jsonl"):
            file.unlink()
        return True

    def _libraries(self) -> list[str]:
        """Return the modules of libraries that this process has imported since it was forked, in order."""
        places = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
        return [
            name
            for name, place in places.items()
            if name not in self._modules and isinstance(place, str) and self._own(place) is None
        ]

    def _import_libraries(self) -> None:
        """Import what earlier benchmarks did, so that it takes time in none of the next ones."""
        for name in self._libraries_of_others:
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
        self._modules |= frozenset(self._libraries_of_others)
        self._libraries_of_others.clear()
        # Forked processes need not search what is here already for garbage.
        gc.freeze()

    def goes_on(self, node: str) -> bool:
        """Return whether this forked process runs the next benchmark as well, and begin it."""
        self.send()
        function = node.partition("[")[0]
        over = len(self._traced) >= self._together or time.monotonic() > self._until
        if over or function != self._node.partition("[")[0]:
            return False
        self._begin_node(node)
        return True

    def _begin_node(self, node: str) -> None:
        # What the earlier ones ran may have made what this one uses.
        self._parts = {"before": set().union(*self._parts.values())}
        self._node, self._is_sent = node, False
        self._begin("setup")

    def end_imports(self) -> None:
        """Have what runs from now on belong to no import."""
        self._take()
        threads = _compute_in(1)
        if reason := try_fork(_FORK_LIMIT_S):
            self._unknown.add(f"no process can be forked for a benchmark: {reason}")
        _compute_in(threads)
        self._imports = self._line(early=sorted(self._early))

    def send(self) -> None:
        """Send what the benchmark of this process has run, once."""
        if self._sending is None or self._is_sent:
            return
        self._is_sent = True
        self._traced.add(self._node)
        gc.collect()
        self._take()
        if sys.version_info < (3, 12) and _uses_cuda():
            self._unknown.add("threads of an accelerator run code that Python's tracing misses")
        if self._started:
            self._unknown.add("it starts a process that outlives it, or that does not end as usual")
        threads = threading.active_count() > 1
        self._sending.write(self._line(node=self._node, imports=[] if threads else self._libraries()))
        self._sending.flush()

    def finish(self) -> NoReturn:
        """End a forked process."""
        self.send()
        kill_descendants()
        os._exit(0)

    def close(self) -> None:
        """Write what all benchmarks have in common; a process that was forked for one ends."""
        if self.is_forked:
            self.finish()
        self._out.write(self._imports)
        self._out.close()

    def _line(self, **more: object) -> bytes:
        names = sys.stdlib_module_names
        news = [one for one in sys.modules if one not in self._modules]
        found = news if self.is_forked else sys.modules
        modules = [one for one in (*found, *self._others) if one.partition(".")[0] not in names]
        line = {
            **more,
            **{part: sorted(codes) for part, codes in self._parts.items()},
            "generated": self._generated,
            "looks": sorted(self._looks),
            "inspected": sorted(self._inspected),
            "opened": sorted(self._opened),
            "unknown": sorted(self._unknown),
            "modules": modules,
        }
        return json.dumps(line).encode() + b"\n"


def follow(top: str, records: str) -> None:
    """Record what this process runs, which a benchmark has started, and write that down when it ends."""
    pid = os.getpid()
    trace = Trace(Path(top))
    trace.open(Path(records, f"{time.monotonic_ns()}-{pid}.jsonl"))
    # Others may run after this one, as those run first that are registered last.
    atexit.register(lambda: trace.send() if os.getpid() == pid else None)
    trace.record_alone()


def _received(descriptor: int, limit_s: float) -> Iterator[bytes]:
    """Yield the lines that a pipe brings until its other end closes, or none comes for some seconds."""
    until, found = time.monotonic() + limit_s, bytearray()
    while select.select([descriptor], [], [], max(until - time.monotonic(), 0.0))[0]:
        more = os.read(descriptor, 1 << 16)
        if not more:
            return
        found += more
        *lines, rest = found.split(b"\n")
        found = bytearray(rest)
        if lines:
            until = time.monotonic() + limit_s
        yield from (bytes(line) + b"\n" for line in lines)


def _code_of(holder: object, name: str) -> CodeType:
    code: CodeType = getattr(holder, name)
    return code


# Reading it in answer to an event is an event as well.
_CODE_READER = _code_of.__code__


def _hides(code: CodeType) -> str | None:
    if code.co_name not in _HIDING_NAMES:
        return None
    return next((why for (file, name), why in _HIDING.items()
                 if code.co_name == name and code.co_filename.endswith(file)), None)  # fmt: skip


def _imports(frame: FrameType | None) -> bool:
    """Return whether a file is opened, or a folder listed, to import what is in it or to show its lines."""
    while frame is not None and frame.f_code.co_filename in _OPENERS:
        frame = frame.f_back
    if frame is None:
        return False
    while frame.f_code.co_filename in _LINES and frame.f_back is not None:
        frame = frame.f_back
    file, asking = frame.f_code.co_filename, frame
    while asking.f_code.co_filename in _PATHS and asking.f_back is not None:
        asking = asking.f_back
    if file in _TRACEBACKS or (asking.f_code.co_filename, asking.f_code.co_name) in _FINDERS:
        return True
    if file.endswith(_PYTEST) or file.startswith(f"{_STDLIB}importlib/metadata/"):
        return True
    importers: list[str] = []
    while frame is not None and frame.f_code.co_filename.startswith(_IMPORTERS):
        importers.append(frame.f_code.co_name)
        frame = frame.f_back
    return not _GETTERS.issuperset(importers)


def _compute_in(threads: int) -> int:
    """Have torch compute in so many threads, since a forked process lacks them; return how many it had."""
    torch = sys.modules.get("torch")
    if torch is None:
        return threads
    before: int = torch.get_num_threads()
    torch.set_num_threads(threads)
    return before


def _uses_cuda() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _words(code: CodeType) -> set[str]:
    """Return the global names and the words in texts of a code object and all that is in it.

    Fields may be named like some builtins, which count only where they are called by name.
    """
    found, inner = {*code.co_names}, set[str]()
    for value in code.co_consts:
        if isinstance(value, CodeType):
            inner |= _words(value)
        elif isinstance(value, str):
            found |= {*_WORD.findall(value)}
        elif isinstance(value, tuple):
            found |= {one for one in value if isinstance(one, str)}
    if _FIELDS & found and not _RUNS_TEXTS & (found | inner):
        found -= _FIELDS - {one.argval for one in dis.get_instructions(code) if one.opname in _LOADS}
    return found | inner


def _header(code: CodeType) -> Sequence[object]:
    return (
        *(code.co_name, code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        *(code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
    )


def _function(code: CodeType, top: str) -> str:
    """Describe a function but for its docstring and what is defined in it, which runs for itself."""
    docs = bool(code.co_consts) and isinstance(code.co_consts[0], str)
    consts = code.co_consts[docs:]
    return _described((*_header(code), *(one for one in consts if not isinstance(one, CodeType))), top)


def _whole(code: CodeType, top: str) -> str:
    return _described((*_header(code), *code.co_consts), top)


def _described(value: object, top: str) -> str:
    """Describe a constant of a code object alike on both sides."""
    if isinstance(value, CodeType):
        return f"code({_whole(value, top)})"
    if isinstance(value, (tuple, frozenset)):
        items = [_described(item, top) for item in value]
        return f"{type(value).__name__}({','.join(sorted(items) if isinstance(value, frozenset) else items)})"
    if isinstance(value, str):
        return repr(value.replace(top, ""))
    return f"{type(value).__name__}:{value!r}"
