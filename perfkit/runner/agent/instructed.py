"""Makes the calls of a benchmark whose instructions callgrind counts, in a process that runs under it."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .channel import Message
from .counted import OTHER_PROCESSES
from .counting.counting import OWN_THREADS, TOO_FEW_CALLS
from .counting.interventions import StartedThreads, without_garbage_collection
from .torch_settings import has_torch

if TYPE_CHECKING:
    # Imported before pytest has started, pytest-benchmark could not have its assertions rewritten.
    from .benchmark_fixture import Work

_Mark = Callable[[], object]
# The first turn warms up; if the other two agree, the count repeats.
WARM_UP, TURNS = 1, 3
NOT_SUPPORTED = "this torch was built without Valgrind's requests"
NO_REQUESTS = "without torch Valgrind can be asked to count on x86-64 only, where memory may hold code"
WITH_SETUP = "the set-up of its rounds would be counted with it"
# A turn is long, so that work done once in it, such as tidying the heap, is a small part of all its calls.
_TURN_S = 10.0
_MOST_CALLS = 1000
# What callgrind is asked to do, by the numbers of its header: to write down what it counted, and to begin or
# end counting.
_DUMP, _TOGGLE = (0x43540000 + number for number in (0, 2))
# A function for x86-64 that takes a request: rotations by 128 bits together, then a register exchanged with
# itself. A processor does nothing in them; to Valgrind they are the sign that rax points to a request.
_REQUEST = bytes.fromhex("4889f8 31d2 48c1c703 48c1c70d 48c1c73d 48c1c733 4887db 4889d0 c3")
_WORDS = 6
# Two calls are tried, since the first one also waits until Valgrind has translated the code.
_TRIED = 2


def make_counted_calls(work: Work, *, control: Sequence[str], most_calls: float) -> Message:
    """Make ``TURNS`` turns of calls, the first ``WARM_UP`` to warm up; callgrind dumps each separately.

    ``control`` is the command that makes callgrind begin; until then the process runs several times faster.
    Return how many ``calls`` a turn has, or the ``problem`` for which there are none.
    """
    marks = _marks()
    if isinstance(marks, str):
        return {"problem": marks}
    if work.loops is not None and work.rounds is None:
        return {"problem": WITH_SETUP}
    subprocess.run(control, check=True, stdout=subprocess.DEVNULL)
    forks: list[None] = []
    # It is never removed, since this process counts only one benchmark.
    os.register_at_fork(before=lambda: forks.append(None))
    threads = StartedThreads()
    with threads.noticed():
        calls = _calls_of_a_turn(work.call, most_calls)
    if forks or multiprocessing.active_children():
        return {"problem": OTHER_PROCESSES}
    if threads.seen:
        return {"problem": OWN_THREADS}
    if calls < 1:
        return {"problem": TOO_FEW_CALLS}
    # Garbage is collected once before all turns, since a collection between two turns would change the heap.
    with without_garbage_collection():
        for _ in range(TURNS):
            _make_turn(work.call, calls, *marks)
    return {"calls": calls}


def _calls_of_a_turn(call: Callable[[], object], most_calls: float) -> int:
    """Return how many calls a turn has: a power of ten, so that both sides make equally many, if allowed."""
    allowed = (most_calls - _TRIED) // TURNS
    if allowed < 1:
        return 0
    seconds = [_timed(call) for _ in range(_TRIED)]
    calls = _MOST_CALLS
    while calls > 1 and calls * min(seconds) > _TURN_S:
        calls //= 10
    return int(min(calls, allowed))


def _timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def _make_turn(call: Callable[[], object], calls: int, begin: _Mark, end: _Mark) -> None:
    begin()
    for _ in range(calls):
        call()
    end()


def _marks() -> tuple[_Mark, _Mark] | str:
    """Return what begins and what ends the counting of a turn, or why nothing does.

    Torch's own Timer counts with the functions that torch has for it.
    """
    if not has_torch():
        return marks_without_torch()
    import torch

    if not torch._C._valgrind_supported_platform():  # noqa: SLF001 (the seam)
        return NOT_SUPPORTED
    from torch._C import _valgrind_toggle, _valgrind_toggle_and_dump_stats

    return _valgrind_toggle, _valgrind_toggle_and_dump_stats


def marks_without_torch() -> tuple[_Mark, _Mark] | str:
    """Return what begins and what ends the counting of a turn without torch, or why nothing does."""
    if platform.machine() != "x86_64":
        return NO_REQUESTS
    try:
        valgrind = _Valgrind()
    except OSError:
        return NO_REQUESTS
    return valgrind.toggle, valgrind.toggle_and_dump


class _Valgrind:
    """Hands requests to Valgrind, as its headers do in C; without Valgrind nothing happens.

    Raises:
        OSError: this system lets no memory hold code.
    """

    def __init__(self) -> None:
        memory = mmap.mmap(-1, len(_REQUEST), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        memory.write(_REQUEST)
        # What is exported from the memory keeps it.
        self._code = ctypes.c_char.from_buffer(memory)
        # A function of this type keeps Python's lock, as those of torch do.
        self._ask = ctypes.PYFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p)(ctypes.addressof(self._code))
        self._toggle, self._dump = (
            ctypes.byref((ctypes.c_ulong * _WORDS)(number)) for number in (_TOGGLE, _DUMP)
        )

    def toggle(self) -> None:
        """Have callgrind begin to count, or end it."""
        self._ask(self._toggle)

    def toggle_and_dump(self) -> None:
        """Have callgrind end to count, and write down what it counted since the last time."""
        self._ask(self._toggle)
        self._ask(self._dump)
