"""Makes the calls of a benchmark whose instructions callgrind counts, in a process that runs under it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .channel import Message
from .counted import OTHER_PROCESSES
from .counting.counting import OWN_THREADS, TOO_FEW_CALLS
from .counting.interventions import StartedThreads, without_garbage_collection

if TYPE_CHECKING:
    # Imported before pytest has started, pytest-benchmark could not have its assertions rewritten.
    from .benchmark_fixture import Work

# The first turn warms up; if the other two agree, the count repeats.
WARM_UP, TURNS = 1, 3
NOT_SUPPORTED = "this torch was built without Valgrind's requests"
WITH_SETUP = "the set-up of its rounds would be counted with it"
# A turn is long, so that work done once in it, such as tidying the heap, is a small part of all its calls.
_TURN_S = 10.0
_MOST_CALLS = 1000
# Two calls are tried, since the first one also waits until Valgrind has translated the code.
_TRIED = 2


def make_counted_calls(work: Work, *, control: Sequence[str], most_calls: float) -> Message:
    """Make ``TURNS`` turns of calls, the first ``WARM_UP`` to warm up; callgrind dumps each separately.

    ``control`` is the command that makes callgrind begin; until then the process runs several times faster.
    Return how many ``calls`` a turn has, or the ``problem`` for which there are none.
    """
    import torch

    if not torch._C._valgrind_supported_platform():  # noqa: SLF001 (what torch's own Timer counts with)
        return {"problem": NOT_SUPPORTED}
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
            _make_turn(work.call, calls)
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


def _make_turn(call: Callable[[], object], calls: int) -> None:
    from torch._C import _valgrind_toggle, _valgrind_toggle_and_dump_stats

    _valgrind_toggle()
    for _ in range(calls):
        call()
    _valgrind_toggle_and_dump_stats()
