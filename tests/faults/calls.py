"""Stops a process at its system calls on one folder: to kill it there, or to let the calls fail or take long.

The calls of a step are few and come in the same order each time, so every one of them can be the one at which
the process is killed. A filter of seccomp decides which calls stop it, and the tracing process what becomes
of each, so it makes no difference whether Python, Arrow or DuckDB made the call. Linux on x86-64 only.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from perfkit.errors import PerfkitError

IS_SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
Kind = Literal["read", "write", "name", "sync", "open", "lock", "list"]

# By their numbers: the name, what kind of call it is, and which argument is its path; -1 for an open file.
_CALLS: dict[int, tuple[str, Kind, int]] = {
    0: ("read", "read", -1),
    17: ("pread", "read", -1),
    1: ("write", "write", -1),
    18: ("pwrite", "write", -1),
    20: ("writev", "write", -1),
    77: ("ftruncate", "write", -1),
    74: ("fsync", "sync", -1),
    75: ("fdatasync", "sync", -1),
    73: ("flock", "lock", -1),
    217: ("getdents", "list", -1),
    2: ("open", "open", 0),
    257: ("open", "open", 1),
    82: ("rename", "name", 0),
    264: ("rename", "name", 1),
    316: ("rename", "name", 1),
    86: ("link", "name", 0),
    265: ("link", "name", 1),
    87: ("unlink", "name", 0),
    263: ("unlink", "name", 1),
    83: ("mkdir", "name", 0),
    258: ("mkdir", "name", 1),
    84: ("rmdir", "name", 0),
}
CHANGES: frozenset[Kind] = frozenset({"write", "name", "sync"})
_FLAGS_OF_OPEN = {2: "rsi", 257: "rdx"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# After so many failures in a row the step is not going to end by itself.
_MOST_CALLS = 100_000
_LONGEST_PATH = 4096

_TRACE_ME, _CONTINUE, _GET, _SET, _SYSCALL, _OPTIONS = 0, 7, 12, 13, 24, 0x4200
_FOLLOW = 0x100000 | 0x80 | 0x8 | 0x4 | 0x2 | 0x1
_SECCOMP_STOP = signal.SIGTRAP | (7 << 8)
_WALL = 0x40000000
_REGISTERS = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
    *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
)
_ARGUMENTS = ("rdi", "rsi", "rdx")
_NOT_ASKED = 2**64 - 1


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _REGISTERS]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call on the folder: of which kind, and its path below the folder."""

    name: str
    kind: Kind
    path: str


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What becomes of the calls on a folder.

    ``kill_at`` is the number of the changing call before which the process is killed, from 1; with ``torn`` a
    write is done in that share first. Calls of the ``kinds``, or only of the ``names``, fail with ``fails``
    from the ``first`` on, with ``once`` only that one. Each call takes ``delay_s`` longer.
    """

    kill_at: int = 0
    torn: float | None = None
    fails: int = 0
    kinds: frozenset[Kind] = CHANGES
    names: frozenset[str] = frozenset()
    first: int = 1
    once: bool = False
    delay_s: float = 0.0

    def meant(self, call: Call) -> bool:
        """Return whether a call is one of those that fail."""
        return call.name in self.names if self.names else call.kind in self.kinds


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a process ended: the calls it made, whether it was killed, and the error or what it returned."""

    calls: tuple[Call, ...]
    killed: bool = False
    failed: int = 0
    error: str = ""
    exit_code: int | None = None
    crash: str = ""

    @property
    def changes(self) -> int:
        """How many of the calls change something."""
        return sum(call.kind in CHANGES for call in self.calls)


def traced(folder: Path, plan: Plan, work: Callable[[], None]) -> Ended:
    """Do something in a process of its own whose calls on a folder go as planned."""
    reading, writing = os.pipe()
    tracer = os.fork()
    if not tracer:
        # A process of its own traces it: it waits for all of its children, which this one must not.
        try:
            os.close(reading)
            ended = _Tracer(os.path.realpath(folder), plan).run(work)
            with os.fdopen(writing, "wb") as stream:
                stream.write(msgspec.json.encode(ended))
        except BaseException:  # noqa: BLE001 (it must not go on as the test)
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        output = stream.read()
    os.waitpid(tracer, 0)
    return msgspec.json.decode(output, type=Ended)


class _Tracer:
    """Runs a process and decides on each of its calls."""

    def __init__(self, folder: str, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._libc.ptrace.restype = ctypes.c_long
        self._calls: list[Call] = []
        self._meant = self._failed = 0
        self._torn = False

    def run(self, work: Callable[[], None]) -> Ended:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(reading)
            self._be_traced(work, writing)
        os.close(writing)
        status = self._trace(child)
        with os.fdopen(reading, "rb") as stream:
            output = stream.read()
        shown = msgspec.json.decode(output, type=dict[str, str]) if output else {}
        code = shown.get("exit_code")
        return Ended(
            calls=tuple(self._calls),
            killed=os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL,
            failed=self._failed,
            error=shown.get("error", ""),
            exit_code=None if code is None else int(code),
            crash=shown.get("crash", "" if output or os.WIFSIGNALED(status) else "no output"),
        )

    def _be_traced(self, work: Callable[[], None], writing: int) -> None:
        shown: dict[str, str] = {}
        try:
            self._libc.ptrace(_TRACE_ME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            _stop_at_calls(self._libc)
            work()
        except PerfkitError as error:
            shown = {"error": f"{error}", "exit_code": f"{error.exit_code}"}
        except BaseException:  # noqa: BLE001 (any error is the step's result)
            shown = {"crash": traceback.format_exc()}
        finally:
            os.write(writing, msgspec.json.encode(shown))
            os._exit(0)

    def _trace(self, child: int) -> int:
        """Let a process and its threads go on until it ends; return how that was."""
        os.waitpid(child, _WALL)
        self._ptrace(_OPTIONS, child, _FOLLOW)
        self._ptrace(_CONTINUE, child)
        while True:
            thread, status = os.waitpid(-1, _WALL)
            if os.WIFSTOPPED(status):
                self._go_on(child, thread, status)
            elif thread == child:
                return status

    def _go_on(self, child: int, thread: int, status: int) -> None:
        found = os.WSTOPSIG(status)
        if status >> 8 == _SECCOMP_STOP:
            self._decide(child, thread)
        elif self._torn:
            os.kill(child, signal.SIGKILL)
        elif found in (signal.SIGTRAP, signal.SIGSTOP):
            self._ptrace(_CONTINUE, thread)
        else:
            self._ptrace(_CONTINUE, thread, found)

    def _decide(self, child: int, thread: int) -> None:
        registers = _Registers()
        if self._libc.ptrace(_GET, thread, None, ctypes.byref(registers)):
            return
        call = self._call(thread, registers)
        if call is None:
            self._ptrace(_CONTINUE, thread)
            return
        self._calls.append(call)
        if self._plan.kill_at and self._plan.kill_at == sum(one.kind in CHANGES for one in self._calls):
            if self._plan.torn is None or call.name not in ("write", "pwrite"):
                os.kill(child, signal.SIGKILL)
                return
            registers.rdx = int(registers.rdx * self._plan.torn)
            self._torn = True
            self._libc.ptrace(_SET, thread, None, ctypes.byref(registers))
            self._ptrace(_SYSCALL, thread)
            return
        if len(self._calls) > _MOST_CALLS:
            os.kill(child, signal.SIGKILL)
            return
        if self._plan.fails and self._plan.meant(call):
            self._meant += 1
            if self._meant == self._plan.first or (self._meant > self._plan.first and not self._plan.once):
                self._failed += 1
                registers.orig_rax = _NOT_ASKED
                registers.rax = 2**64 - self._plan.fails
                self._libc.ptrace(_SET, thread, None, ctypes.byref(registers))
        if self._plan.delay_s:
            time.sleep(self._plan.delay_s)
        self._ptrace(_CONTINUE, thread)

    def _call(self, thread: int, registers: _Registers) -> Call | None:
        """Return which call it is, None where it is not on the folder."""
        name, kind, argument = _CALLS[registers.orig_rax]
        try:
            if argument < 0:
                path = str(Path(f"/proc/{thread}/fd/{registers.rdi}").readlink()).removesuffix(" (deleted)")
            else:
                path = _text_at(thread, getattr(registers, _ARGUMENTS[argument]))
        except OSError:
            return None
        if path != self._folder and not path.startswith(self._folder + "/"):
            return None
        if kind == "open" and getattr(registers, _FLAGS_OF_OPEN[registers.orig_rax]) & _WRITING:
            name, kind = "create", "name"
        return Call(name=name, kind=kind, path=os.path.relpath(path, self._folder))

    def _ptrace(self, request: int, thread: int, data: int = 0) -> None:
        # A thread may be gone by now.
        self._libc.ptrace(request, thread, None, ctypes.c_void_p(data))


def _text_at(thread: int, address: int) -> str:
    with Path(f"/proc/{thread}/mem").open("rb", buffering=0) as memory:
        text = b""
        while b"\0" not in text and len(text) < _LONGEST_PATH:
            # A page at a time: the next one may not be there.
            memory.seek(address + len(text))
            text += memory.read(_LONGEST_PATH - (address + len(text)) % _LONGEST_PATH)
    return os.fsdecode(text.partition(b"\0")[0])


def _stop_at_calls(libc: ctypes.CDLL) -> None:
    """Let all calls of this process that are known here stop it, and no others."""
    load, equal, done = 0x20, 0x15, 0x06
    trace, allow = 0x7FF00000, 0x7FFF0000
    lines = [struct.pack("=HBBI", load, 0, 0, 0)]
    numbers = list(_CALLS)
    for place, number in enumerate(numbers):
        lines.append(struct.pack("=HBBI", equal, len(numbers) - place, 0, number))
    lines += [struct.pack("=HBBI", done, 0, 0, allow), struct.pack("=HBBI", done, 0, 0, trace)]
    program = _Program(len(lines), ctypes.cast(ctypes.create_string_buffer(b"".join(lines)), ctypes.c_char_p))
    libc.prctl(38, 1, 0, 0, 0)
    if libc.prctl(22, 2, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "this machine has no seccomp")
