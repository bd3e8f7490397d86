"""Processes and their trees, as the kernel shows and changes them, and the guard that ends them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TRIED_BYTES = 64 << 20
_TRIED_EVERY = 1 << 16
_ORPHANED = 1
_STATM_BYTES = 256
_RESET_PEAK = "5"


def die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent ends, where it can (Linux).

    The request is not inherited: each forked child makes its own, and ends if its parent has ended before.
    """
    _ask_kernel(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(_ORPHANED)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, where the kernel can arrange it (Linux).

    So even a daemon that left its group and session is found in this process's tree.
    """
    _ask_kernel(_PR_SET_CHILD_SUBREAPER, 1)


def become_child(log: str, folder: str) -> None:
    """Give this process a session, a log for its output, a current folder, and an empty standard input.

    It adopts the orphans among its descendants, so that all of them stay in its tree.
    """
    adopt_orphans()
    if os.getpgrp() != os.getpid():
        os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    copies = _copies_of(2)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    for copy in copies:
        # Valgrind shows descriptors of its own and lets nobody touch them.
        with contextlib.suppress(OSError):
            os.dup2(output, copy)
    os.close(output)
    os.close(nothing)
    os.chdir(folder)


def _copies_of(descriptor: int) -> list[int]:
    """Return the other descriptors of the same file, since pytest keeps copies of those that it captures."""
    place = Path("/proc/self/fd")
    if not place.is_dir() or not stat.S_ISREG(os.fstat(descriptor).st_mode):
        return []
    found = []
    for other in map(int, os.listdir(place)):  # noqa: PTH208 (the names alone are wanted)
        with contextlib.suppress(OSError):
            if other > 2 and os.path.sameopenfile(other, descriptor):  # noqa: PLR2004 (the standard ones)
                found.append(other)
    return found


def move_to(core: int) -> None:
    """Move this thread to a core without binding it there; where that is refused nothing changes.

    Threads and processes that it starts are not bound there either, as they inherit all its allowed cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    allowed = os.sched_getaffinity(0)
    if core in allowed:
        # Some containers do not allow it.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {core})
            os.sched_setaffinity(0, allowed)


def minor_faults() -> int:
    """Return how many minor page faults this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_growth(call: Callable[[], object]) -> int | None:
    """Call, and return the bytes by which the peak of the resident size is above its size before the call."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
        before = _status_bytes("VmRSS")
    except OSError:
        return None
    call()
    return max(_status_bytes("VmHWM") - before, 0)


def peak_resident(call: Callable[[], object]) -> int | None:
    """Call, and return the peak of the resident size meanwhile, in bytes; None where it cannot be read."""
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return None
    call()
    return _status_bytes("VmHWM")


def take_peak(pid: int | str) -> int | None:
    """Return the peak of a process's resident size since this was last asked; None where it is not known."""
    with contextlib.suppress(OSError, StopIteration):
        peak = _status_bytes("VmHWM", pid)
        Path(f"/proc/{pid}/clear_refs").write_text(_RESET_PEAK)
        return peak
    return None


def resident_now() -> int:
    """Return the resident size of this process in bytes, 0 where that is not known."""
    with contextlib.suppress(OSError):
        statm = os.open("/proc/self/statm", os.O_RDONLY)
        try:
            # A path and a file object would take five times as long.
            return int(os.read(statm, _STATM_BYTES).split()[1]) * resource.getpagesize()
        finally:
            os.close(statm)
    return 0


def _status_bytes(name: str, process: int | str = "self") -> int:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def faults_of_reuse() -> int:
    """Return the page faults of allocating 64 MiB a second time: none where the allocator keeps memory."""
    _take_and_leave()
    before = minor_faults()
    _take_and_leave()
    faults = minor_faults() - before
    # What is kept would hide how much memory forks of this process take.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    return faults


def _ask_kernel(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _take_and_leave() -> None:
    python = ctypes.pythonapi
    python.PyMem_RawMalloc.restype = ctypes.c_void_p
    memory = ctypes.c_void_p(python.PyMem_RawMalloc(ctypes.c_size_t(_TRIED_BYTES)))
    if memory.value:
        # A look at some of the pages is enough. The allocator, which need not clear them, touches no others.
        for place in range(memory.value, memory.value + _TRIED_BYTES, _TRIED_EVERY):
            ctypes.memset(place, 1, 1)
    python.PyMem_RawFree(memory)


_PROC = Path("/proc")
_STOPPED = frozenset("Tt")
_ENDED = frozenset("ZX")
_RUNNING = frozenset("RD")
_STOP_LIMIT_S = 1.0
_STOP_POLL_S = 5e-5
# Some kernels do not list children. Then every process is asked for its parent, which takes longer the more
# processes there are.
_CHILDREN_LISTED = (_PROC / "thread-self/children").exists()
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process: its parent, its group, its state's letter, and its CPU time in seconds (10 ms steps).

    ``ended_s`` is the CPU time of its children that have ended and been waited for, with theirs in turn.
    ``core`` is where its main thread ran last; ``in_terminal`` is whether it has a controlling terminal;
    ``started`` is its start in clock ticks, which no other process with its number shares.
    """

    pid: int
    parent: int
    group: int
    state: str
    cpu_s: float
    core: int
    ended_s: float = 0.0
    in_terminal: bool = False
    started: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has ended, though its parent may not have collected its status yet."""
        return self.state in _ENDED

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped by a signal."""
        return self.state in _STOPPED

    @property
    def rests(self) -> bool:
        """Whether it is stopped or over."""
        return self.state in _STOPPED | _ENDED


def waits_for_lock(processes: Iterable[Process]) -> bool:
    """Return whether one of some processes waits for a file that another one has locked."""
    try:
        lines = (_PROC / "locks").read_text().splitlines()
    except OSError:
        return False
    # "1: -> FLOCK ADVISORY WRITE 4711 ..." waits for the line before it.
    waiting = {fields[5] for line in lines if (fields := line.split())[1] == "->"}
    return not waiting.isdisjoint(str(process.pid) for process in processes)


def _pids_below(leader: int) -> Iterator[int]:
    unseen = [leader]
    while unseen:
        pid = unseen.pop()
        unseen += children(pid)
        yield pid


def tree(leader: int) -> tuple[Process, ...]:
    """Return the living processes of a child, which adopts its orphans; none without /proc."""
    found = map(read_process, _pids_below(leader))
    return tuple(process for process in found if process is not None and not process.is_over)


def used_s(leader: int) -> float:
    """Return the CPU time of a child's whole tree in seconds, with what its ended processes had used."""
    found = map(read_process, _pids_below(leader))
    return sum((process.cpu_s + process.ended_s for process in found if process is not None), 0.0)


def works(leader: int) -> bool:
    """Return whether any thread of a child's tree runs, or waits for a core."""
    for pid in _pids_below(leader):
        with contextlib.suppress(OSError):
            for thread in (_PROC / str(pid) / "task").iterdir():
                with contextlib.suppress(OSError):
                    text = (thread / "stat").read_text(encoding="utf-8", errors="replace")
                    if text[text.rindex(")") + 2] in _RUNNING:
                        return True
    return False


def children(pid: int) -> tuple[int, ...]:
    """Return the children of a process, those that have ended included."""
    if not _CHILDREN_LISTED:
        return tuple(process.pid for process in _everyone() if process.parent == pid)
    listed: list[str] = []
    # A process is listed under the thread that made it, and threads may end meanwhile.
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                listed += (thread / "children").read_text().split()
    return tuple(map(int, listed))


def read_process(pid: int) -> Process | None:
    """Return one process, None where it is gone or cannot be seen."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name is in parentheses and may contain anything; the fields after it are plain (proc(5)).
    fields = text[text.rindex(")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        state=fields[0],
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        core=int(fields[36]),
        ended_s=(int(fields[13]) + int(fields[14])) * _TICK_S,
        in_terminal=fields[4] != "0",
        started=int(fields[19]),
    )


def is_still(process: Process) -> bool:
    """Return whether a process lives, and its number has not become another one's."""
    found = read_process(process.pid)
    return found is not None and not found.is_over and found.started == process.started


def stop(leader: int, strays: tuple[Process, ...] = ()) -> None:
    """Stop a child's group and its ``strays``, which left the group; wait until the leader rests."""
    _signal(leader, strays, signal.SIGSTOP)
    deadline = time.monotonic() + _STOP_LIMIT_S
    while (process := read_process(leader)) is not None and not process.rests:
        if time.monotonic() > deadline:
            break
        # The leader may need this core in order to receive the signal.
        time.sleep(_STOP_POLL_S)


def resume(leader: int, strays: tuple[Process, ...] = ()) -> None:
    """Let a child's group and its ``strays`` go on."""
    _signal(leader, strays, signal.SIGCONT)


def kill(leader: int, strays: tuple[Process, ...] = ()) -> None:
    """Kill a child's whole tree, and its ``strays``: processes known to have been in the tree."""
    found = tuple(process for process in tree(leader) if process.group != leader)
    _signal(leader, (*strays, *found), signal.SIGKILL)


def kill_descendants() -> None:
    """End every process below this one."""
    for process in tree(os.getpid())[1:]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)


def _signal(leader: int, strays: tuple[Process, ...], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)
    for process in strays:
        if is_still(process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)


def _everyone() -> Iterator[Process]:
    if not _PROC.is_dir():
        return
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := read_process(int(entry.name))) is not None:
            yield process


_NO_SUCH_COMMAND = 127
_FIRST_AFTER_STANDARD, _NO_DESCRIPTOR = 3, 1 << 20
# Python ignores these signals, but a command expects their default action.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)


def guard(descriptor: int, command: Sequence[str]) -> NoReturn:
    """Run a command in a session of its own, and end as it ended once all its descendants have ended, too."""
    os.set_inheritable(descriptor, False)  # noqa: FBT003 (positional only)
    adopt_orphans()
    pid = _start(command)
    os.closerange(_FIRST_AFTER_STANDARD, descriptor)
    os.closerange(descriptor + 1, _NO_DESCRIPTOR)
    coordinator = socket.socket(fileno=descriptor)
    with contextlib.suppress(OSError):
        coordinator.sendall(f"{pid}\n".encode())
    # It becomes readable when the command has ended, as the socket does when the coordinator has.
    select.select([coordinator.fileno(), os.pidfd_open(pid)], [], [])
    _end_like(_end_all(pid))


def _start(command: Sequence[str]) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            die_with(parent)
            for number in _IGNORED:
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], list(command))  # noqa: S606 (no shell is wanted)
        except OSError as error:
            os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
        finally:
            os._exit(_NO_SUCH_COMMAND)
    return pid


def _end_all(pid: int) -> int:
    status = 0
    # Where there is no list of descendants, only the group can be ended.
    kill(pid)
    with contextlib.suppress(ChildProcessError):
        while True:
            kill_descendants()
            # A process that is started meanwhile becomes a child of this one when its parent ends.
            ended, found = os.waitpid(-1, 0)
            if ended == pid:
                status = found
    return status


def _end_like(status: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)
