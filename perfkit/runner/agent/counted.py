"""All counts of a benchmark's call, the growth of its process included."""

from __future__ import annotations

import functools
import math
import multiprocessing
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .counting.compiled import Compilation, read_compilation
from .counting.counting import count_calls, count_kernels
from .counting.model import Count, Counts, with_texts
from .process import resident_growth

OTHER_PROCESSES = "it waits for other processes, as often as they keep it waiting"
# Counting takes five calls, the growth of the process one, and the kernels two where there is a device.
_FEWEST_CALLS = 8
_forks = 0


def counts_of_call(
    call: Callable[[], object],
    *,
    root: Path,
    most_calls: float = math.inf,
    since: Compilation | None = None,
    as_guest: bool = False,
) -> Counts:
    """Return the counts of a call; the growth of the process is left out where few calls are allowed.

    A guest counts in a user's own session; see ``count_calls``. ``since`` holds dynamo's counters from before
    anything of the benchmark was compiled. Where other processes work for the benchmark, the number of times
    that Python asks for their results depends on time, so that two equal calls prove nothing: then its
    function calls are not counted.
    """
    _notice_forks()
    forks, since = _forks, since or read_compilation()
    growth = resident_growth(call) if most_calls >= _FEWEST_CALLS else None
    counts = count_calls(call, root=root, most_calls=most_calls, since=since, as_guest=as_guest)
    if forks != _forks or multiprocessing.active_children():
        counts = _without(counts, "python_calls", OTHER_PROCESSES)
    if growth is not None:
        grown = Count(metric="resident", unit="B", values=(float(growth),), causes=())
        kernels = count_kernels(call) if "torch" in sys.modules else None
        more = (grown,) if kernels is None else (kernels, grown)
        counts = replace(counts, counts=(*counts.counts, *more))
    return with_texts(counts, root)


def _without(counts: Counts, metric: str, why: str) -> Counts:
    return replace(
        counts,
        counts=tuple(count for count in counts.counts if count.metric != metric),
        not_counted={**counts.not_counted, metric: why},
    )


@functools.cache
def _notice_forks() -> None:
    os.register_at_fork(before=_note_fork)


def _note_fork() -> None:
    global _forks  # noqa: PLW0603 (the kernel's hook knows no object)
    _forks += 1
