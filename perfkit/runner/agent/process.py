"""What the agent's processes ask of the kernel: parents, sessions, cores, memory and page faults."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import random
import resource
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TRIED_BYTES = 64 << 20
_ORPHANED = 1
# Python takes blocks up to this many bytes from pools of its own, larger ones from the C library.
_LARGEST_SMALL = 512
_MOST_OF_A_SIZE = 128
_LARGE = 64
_DEEPEST = 16
_kept: list[object] = []
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


def draw_layout(seed: int) -> int:
    """Allocate memory of sizes drawn from ``seed``, keep it, and return a depth of the stack drawn from it.

    The addresses of objects and of the stack decide what shares lines of a cache or slots of a table, which
    makes the same code slower or faster by a percent. Drawn anew for each launch, this is noise that
    repetitions show; ``at_depth`` makes calls at the depth that is returned.
    """
    source = random.Random(seed)  # noqa: S311 (a layout, not a secret)
    for size in range(16, _LARGEST_SMALL + 1, 16):
        # A bytes object has 33 bytes of overhead, so each pool of Python's small blocks gets some of these.
        _kept.extend(bytes(max(size - 33, 0)) for _ in range(source.randrange(_MOST_OF_A_SIZE)))
    _kept.extend(bytearray(source.randrange(_LARGEST_SMALL, 1 << 14)) for _ in range(_LARGE))
    return source.randrange(_DEEPEST)


def at_depth(depth: int, call: Callable[[], Value]) -> Value:
    """Call from so many calls deeper: each takes some 700 bytes of the interpreter's own stack."""
    # A call from Python to Python takes none of it; one through an iterator of the interpreter does.
    return next(map(functools.partial(at_depth, depth - 1), (call,))) if depth else call()


def minor_faults() -> int:
    """Return how many minor page faults this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def resident_growth(call: Callable[[], object]) -> int | None:
    """Call, and return the bytes by which the peak of the resident size is above its size before the call.

    Return None where the kernel does not tell (other than Linux).
    """
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


def _status_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def faults_of_reuse() -> int:
    """Return the page faults of allocating 64 MiB a second time: none where the allocator keeps memory."""
    _take_and_leave()
    before = minor_faults()
    _take_and_leave()
    return minor_faults() - before


def _ask_kernel(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value)


def _take_and_leave() -> None:
    memory = bytearray(_TRIED_BYTES)
    memory[:: 1 << 12] = b"\1" * (_TRIED_BYTES >> 12)
