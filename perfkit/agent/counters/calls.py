"""Counts what a call of a benchmark does, by making a few calls of it."""

from __future__ import annotations

import cProfile
import functools
import math
import multiprocessing
import os
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import get_ident
from types import CodeType
from typing import Any

from ..processes import resident_growth
from .interventions import StartedThreads, undone_in_forks, without_garbage_collection
from .kept import count_kept, with_kept
from .model import (
    NO_TORCH,
    OF_TENSORS,
    Amounts,
    Count,
    Counts,
    Places,
    causes_of,
    count_of,
    is_ours,
    with_texts,
)
from .tensors import COMPILED, TensorWatch
from .torch_adapter import Break, Compilation, CompiledCode, read_compilation


def profile_of_this_thread() -> cProfile.Profile:
    """Return a profiler, not yet enabled, that sees only the thread that made it.

    Since Python 3.12 the events of all threads go to one stack, where a call of one thread ends that of
    another. The profiler looks up its callbacks on itself when it is enabled, so they are replaced there.
    """
    profile = cProfile.Profile()
    if sys.version_info >= (3, 12):
        for name in monitoring_callbacks():
            setattr(profile, name, _only_in(get_ident(), getattr(profile, name)))
    return profile


def wrap_fetches(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Wrap what makes the batches of a ``DataLoader`` in this process, which is one of its workers."""
    from torch.utils.data._utils import fetch

    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):  # noqa: SLF001 (torch has no public way)
        kind.fetch = wrap(kind.fetch)  # type: ignore[method-assign]


def monitoring_callbacks() -> tuple[str, ...]:
    """Return the names of the profiler's methods that receive events, under which it looks them up."""
    return tuple(name for name in dir(cProfile.Profile) if name.endswith("_callback"))


def _only_in(thread: int, callback: Callable[..., object]) -> Callable[..., object]:
    def filtered(*event: object) -> object:
        return callback(*event) if get_ident() == thread else None

    return filtered


PROFILER_IN_USE = "another profiler is active"
TRACING_IN_USE = "memory is being traced already"


def is_profiled() -> bool:
    """Return whether a profiler is active in this process."""
    if sys.version_info >= (3, 12) and sys.monitoring.get_tool(sys.monitoring.PROFILER_ID) is not None:
        return True
    return sys.getprofile() is not None


def count_python_calls(call: Callable[[], object], places: Places) -> Amounts | None:
    """Return the calls of Python functions that a call makes; None where it sets a profiler of its own."""
    profile = profile_of_this_thread()
    with without_garbage_collection(), undone_in_forks(profile.disable):
        profile.enable(subcalls=False, builtins=False)
        try:
            call()
            was_left_alone = _is_active(profile)
        except ValueError as error:
            if not _refuses_profiler(error):
                raise
            was_left_alone = False
        finally:
            profile.disable()
    return _amounts(profile, places) if was_left_alone else None


def is_traced() -> bool:
    """Return whether Python's memory is being traced already."""
    return tracemalloc.is_tracing()


def python_peak(call: Callable[[], object]) -> float | None:
    """Return the most bytes that Python objects took at once; None where the call traces memory itself."""
    with without_garbage_collection(), undone_in_forks(tracemalloc.stop):
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            call()
            was_left_alone = tracemalloc.is_tracing()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    return float(peak - before) if was_left_alone else None


def _is_active(profile: cProfile.Profile) -> bool:
    active: object = sys.getprofile()
    return sys.version_info >= (3, 12) or active is profile


def _refuses_profiler(error: ValueError) -> bool:
    return sys.version_info >= (3, 12) and "profiling tool" in str(error)


def _amounts(profile: cProfile.Profile, places: Places) -> Amounts:
    made: Amounts = Counter()
    for entry in profile.getstats():
        code = entry.code
        if isinstance(code, CodeType) and not is_ours(code):
            made[code.co_qualname, places.function_of(code)] += entry.callcount
    return made


_COPIES = ("Memcpy", "Memset")
OWN_THREADS = "it starts threads of its own"
TOO_FEW_CALLS = "it may not be called often enough"
COMPILED_BEFORE = "compiled before counting began"
_COMPILING = {"breaks": "graph_breaks", "recompiles": "recompiles"}
# Two calls with equal counts show that the count repeats.
_TIMES = 2
_Call = Callable[[], object]


def count_calls(
    call: _Call,
    *,
    root: Path,
    most_calls: float = math.inf,
    since: Compilation | None = None,
    as_guest: bool = False,
) -> Counts:
    """Return what one call does, counted in at most five calls.

    The first one is not counted, as it may include one-time work; two are counted for tensors and two for
    Python's functions, as far as ``most_calls`` allows. A guest counts in a user's own session: it makes no
    first call and collects no garbage of other tests, which may raise warnings.
    """
    return _Counting(call, root, most_calls, since or read_compilation(), as_guest=as_guest).run()


class _Counting:
    """The calls of one benchmark, and what was counted in them so far."""

    def __init__(
        self, call: _Call, root: Path, most_calls: float, since: Compilation, *, as_guest: bool
    ) -> None:
        self._call, self._root, self._left, self._since = call, root, most_calls, since
        self._as_guest = as_guest
        self._places = Places(root)
        self._threads, self._compiled = StartedThreads(), CompiledCode()
        self._counts: list[Count] = []
        self._not_counted: dict[str, str] = {}
        self._training = False
        self._compilations: list[Compilation] = []

    def run(self) -> Counts:
        with self._threads.noticed(), self._compiled.noticed():
            if self._left > 1 and not self._as_guest:
                self._left -= 1
                self._call()
            with without_garbage_collection(whole=not self._as_guest):
                self._count_tensors()
                self._count_python_calls()
                self._count_python_memory()
        self._note_compilation()
        return Counts(counts=tuple(self._counts), not_counted=self._not_counted, training=self._training)

    def _takes_call(self) -> bool:
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _count_tensors(self) -> None:
        if "torch" not in sys.modules:
            self._not_counted |= dict.fromkeys(OF_TENSORS, NO_TORCH)
            return
        reason = self._why_no_tensors()
        if reason is None and self._left >= 1:
            counts = self._watch_tensors()
            reason = self._why_no_tensors()
            if reason is None:
                self._counts += counts.counts
                self._training = counts.training
                self._not_counted |= counts.not_counted
        elif reason is None:
            reason = TOO_FEW_CALLS
        if reason is not None:
            self._not_counted |= dict.fromkeys(OF_TENSORS, reason)

    def _watch_tensors(self) -> Counts:
        with TensorWatch(self._root) as watch:
            for _ in range(_TIMES):
                if not watch.is_compiled and self._takes_call():
                    self._call()
                    watch.end_iteration()
        self._compiled.seen = self._compiled.seen or watch.is_compiled
        return watch.counts()

    def _why_no_tensors(self) -> str | None:
        if self._compiled.seen:
            return COMPILED
        return OWN_THREADS if self._threads.seen else None

    def _count_python_calls(self) -> None:
        def count() -> Amounts | None:
            amounts = count_python_calls(self._call, self._places)
            self._compilations.append(read_compilation())
            return amounts

        self._count_repeatedly("python_calls", count, PROFILER_IN_USE, is_taken=is_profiled())

    def _count_python_memory(self) -> None:
        # With torch, tensors take most of the memory, and tracing would slow down every call of torch.
        if "torch" not in sys.modules:
            count = functools.partial(python_peak, self._call)
            self._count_repeatedly("python_peak", count, TRACING_IN_USE, is_taken=is_traced())

    def _count_repeatedly(
        self, metric: str, count: Callable[[], Any], why_not: str, *, is_taken: bool
    ) -> None:
        """Count a metric in some calls, unless what counts it is taken, at once or by a call (None)."""
        reason = why_not if is_taken else None
        found: list[Any] = []
        while reason is None and len(found) < _TIMES and self._takes_call():
            found.append(count())
            if found[-1] is None:
                reason = why_not
        if reason is None and found:
            self._counts.append(count_of(metric, found))
        else:
            self._not_counted[metric] = reason or TOO_FEW_CALLS

    def _note_compilation(self) -> None:
        readings = [one.since(self._since) for one in self._compilations or [read_compilation()]]
        last = readings[-1]
        if last.graphs or last.breaks:
            self._counts.append(count_of("graphs", [one.graphs for one in readings]))
            for metric in ("breaks", "recompiles"):
                amounts = [getattr(one, metric) for one in readings]
                count = count_of(_COMPILING[metric], [one.total() for one in amounts])
                self._counts.append(replace(count, causes=causes_of(self._by_place(amounts[-1]))))
        elif self._compiled.seen:
            self._not_counted |= dict.fromkeys(("graphs", *_COMPILING.values()), COMPILED_BEFORE)

    def _by_place(self, found: Counter[Break]) -> Amounts:
        by_place: Amounts = Counter()
        for (reason, stack), times in found.items():
            by_place[reason.partition("\n")[0], self._places.innermost(stack)] += times
        return by_place


def count_kernels(call: Callable[[], object], *, calls: int = 2) -> Count | None:
    """Return the kernel launches of each of some calls, by kernel; None where there is no CUDA device."""
    import torch

    if not torch.cuda.is_available():
        return None
    return count_of("kernels", [_launches(call) for _ in range(calls)])


def _launches(call: Callable[[], object]) -> Amounts:
    import torch
    from torch.profiler import ProfilerActivity, profile

    with without_garbage_collection(), profile(activities=[ProfilerActivity.CUDA]) as trace:
        call()
        torch.cuda.synchronize()
    launches: Amounts = Counter()
    for event in trace.events() or ():
        if event.device_type.name == "CUDA" and not event.name.startswith(_COPIES):
            launches[event.name, ""] += 1
    return launches


OTHER_PROCESSES = "it waits for other processes, as often as they keep it waiting"
# Counting takes five calls, the growth of the process one, and the kernels two where there is a device.
MOST_COUNTED_CALLS = 8
_forks = 0


def counts_of_call(
    call: Callable[[], object],
    *,
    root: Path,
    most_calls: float = math.inf,
    since: Compilation | None = None,
    as_guest: bool = False,
    kept_s: float = 0.0,
) -> Counts:
    """Return the counts of a call; the growth of the process is left out where few calls are allowed.

    Function calls are not counted while other processes work for the benchmark: Python asks for their results
    as often as time allows.
    """
    _notice_forks()
    forks, since = _forks, since or read_compilation()
    growth = resident_growth(call) if most_calls >= MOST_COUNTED_CALLS else None
    counts = count_calls(call, root=root, most_calls=most_calls, since=since, as_guest=as_guest)
    if forks != _forks or multiprocessing.active_children():
        counts = _without(counts, "python_calls", OTHER_PROCESSES)
    if growth is not None:
        grown = count_of("resident", [growth])
        kernels = count_kernels(call) if "torch" in sys.modules else None
        more = (grown,) if kernels is None else (kernels, grown)
        counts = replace(counts, counts=(*counts.counts, *more))
    if not as_guest:
        counts = with_kept(
            counts, count_kept(call, root, most_calls=most_calls - MOST_COUNTED_CALLS, most_s=kept_s)
        )
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
