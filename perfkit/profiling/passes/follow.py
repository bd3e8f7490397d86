"""Every step of a training of any length: times and memory in blocks, drift, leaks and change points."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import statistics
import time
import tracemalloc
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, islice, pairwise
from operator import length_hint
from threading import get_ident
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from perfkit.agent.counters.interventions import Guard, Patches, undone_in_forks
from perfkit.agent.counters.torch_adapter import call_before_backward
from perfkit.agent.processes import resident_now
from perfkit.agent.training import StepEnds
from perfkit.phases import count_marked_steps, steps_are_announced
from perfkit.profiling.passes.balance import Moment, can_import_torch, host_now
from perfkit.profiling.passes.memory import allocator_in_use, counter_of
from perfkit.profiling.passes.periods import Region, Regions, Site, Sites, notice_saves
from perfkit.profiling.passes.target_code import OwnCode, optimizer_exists
from perfkit.profiling.passes.targets import TURN, Unit, call_at
from perfkit.stats.change_points import find_steps

Batch = TypeVar("Batch")
FloatArray = npt.NDArray[np.float64]
# Steps of a block, up to four times as many where they take less than so many seconds; when there are so
# many blocks, each two become one.
BLOCK_STEPS, MOST_BLOCKS = 500, 512
_MOST_STEPS, _LEAST_BLOCK_S = 4 * BLOCK_STEPS, 2.0
# Summing up and looking take at most this share of a run. Code that has not run for seconds can be a hundred
# times as slow, so blocks are summed up together: first after so many seconds, or early where memory grows or
# somebody looks, and whenever so many steps are kept.
MOST_SHARE, _FIRST_SUM_S, _MOST_KEPT = 0.0003, 200.0, 200_000
# Frames of an allocation that is traced: an own line is rarely further from it. Tracing can make a step a
# hundred times as long, so it ends when a look, after so many steps and then twice as many, finds that it has
# taken this share of the run.
_FRAMES, _FEWEST_TRACED, _TRACED_SHARE = 8, 10, 0.0005
_FEWEST_BLOCKS = 8
# Fewer steps make no block, not even where a run has no more.
_FEWEST_STEPS = 20
# Bins of 1 % from 100 ns up.
_BINS, _LEAST_S, _PER_LOG = 2600, 1e-7, 100
# A trend is looked for in groups of blocks, after the set-up: most pairs of groups must be in order.
_GROUPS, _SETUP, _IN_ORDER = 20, 0.1, 0.75
# It is worth a word from 1 % of a step on, or 1 MiB, and if clear of the scatter of the groups.
_LEAST_DRIFT, _LEAST_LEAK, _CLEAR = 0.01, 1 << 20, 5.0
# Memory that fills up grows less and less; a leak grows by at least this share of the mean in each quarter.
_STEADY = 0.4
DRIFT_STEPS = 10_000


@dataclass(frozen=True)
class Block:
    """The steps between two looks at the clock's record; memory at its end, in bytes."""

    steps: int
    median_s: float
    total_s: float
    wait_s: float
    resident: float
    device: float


@dataclass(frozen=True, kw_only=True)
class RunFindings:
    """What a whole run gave: ``drift`` is a share in 10,000 steps, ``leak`` bytes a step.

    ``goodput`` is the share of the time that was spent in steps: not between loops, or in evaluations.
    ``leak_line`` is the own line that keeps most of what is made in it; ``changes`` have the step and the
    ratio of lasting changes of the time of a step.
    """

    steps: int
    seconds: float
    quantiles_s: tuple[float, float, float]
    wait: float
    goodput: float
    blocks: tuple[Block, ...]
    drift: float
    leak: float
    leak_line: str
    changes: tuple[tuple[int, float], ...]


@dataclass(frozen=True, kw_only=True)
class Look:
    """A moment of a run: its latest steps, which have their ``ends``, beside all ``steps`` before.

    Those of a block that has ended are left out, and an end after a pause follows a NaN. ``median_s`` is that
    of the blocks that are summed up, None before the first. ``drift`` is a share in 10,000 steps, ``leak``
    bytes a step, as they were found at the last search for them. The look before this one took ``cost_s``.
    """

    steps: int
    ends: FloatArray
    step_s: float
    median_s: float | None
    wait: float
    drift: float
    leak: float
    cost_s: float


class Followed:
    """Follows the ends of steps: ``end_step`` reads the clock, and many blocks of them are summed up at once.

    ``failed`` is called with an error of a block. ``look`` is called after ``until_look`` steps, and returns
    after how many it is to be called again.
    """

    def __init__(
        self,
        own: OwnCode,
        *,
        clock: Callable[[], float] = time.perf_counter,
        memory: Callable[[], tuple[float, float]] | None = None,
        failed: Callable[[Exception], None] | None = None,
        look: Callable[[Look], int] | None = None,
        until_look: int = BLOCK_STEPS,
    ) -> None:
        self._failed = failed
        # The last end that the last look has seen, and how long it took.
        self._look, self._until_look = look, until_look
        self._seen, self._look_s = 0, 0.0
        self._own, self._clock, self._memory = own, clock, memory or memory_now
        self._has_ended = False
        # The moments of blocks that are not summed up; where each block ends among them, and its memory.
        self._kept, self._kept_until = array("d", bytes(16 * _MOST_KEPT)), 0
        self._unsummed: list[tuple[int, tuple[float, float]]] = []
        self.blocks: list[Block] = []
        self.leak_line = ""
        self._bins = np.zeros(_BINS, dtype=np.int64)
        self._steps, self._seconds, self._waited_s = 0, 0.0, 0.0
        self._block_steps, self._size = BLOCK_STEPS, 1
        # A block has more steps than this: half of those of the one before.
        self._least = _FEWEST_STEPS - 1
        self._parts: list[Block] = []
        self._next_look = _FEWEST_BLOCKS
        # The steps until the next look at a trace, 0 without one.
        self._traced = 0
        self._pauses = 0
        self._drift_now = self._leak_now = 0.0
        self._begun = clock()
        self._sum_at = self._begun + _FIRST_SUM_S
        # Those of the present block: an end, and then when each step had its batch and when it ended. So a
        # turn of a loop takes two calls of one kind, and no sum.
        self._moments, self._wait_s, self._left_until = [self._begun], 0.0, 0.0
        self._set_due()

    @property
    def steps(self) -> int:
        """The steps of all blocks that are summed up."""
        return self._steps

    def pause(self) -> None:
        """Begin what belongs to no step."""
        self._pauses += 1

    def resume(self) -> None:
        """End a pause, and begin the present step anew."""
        self._pauses = max(0, self._pauses - 1)
        if not self._pauses:
            self.restart_step()

    def restart_step(self, begun: float | None = None) -> None:
        """Begin the present step anew, now or since the last one ended: what was before belongs to none."""
        begun = self._clock() if begun is None else begun
        self._moments += (math.nan, math.nan, begun, begun)

    def leave_out(self, begun: float, over: float, *, with_gap: bool = False) -> None:
        """Take a time out of the present step, unless that began meanwhile; ``with_gap`` what lies before."""
        moments, left_until = self._moments, self._left_until
        begun = left_until if with_gap and moments[-1] <= left_until else max(begun, left_until)
        if moments[-1] > begun:
            return
        self._left_until = over
        # In a turn of a loop, the last moment is when it had its batch.
        had_batch = [] if len(moments) % 2 else [moments.pop() + over - begun]
        self.restart_step(moments[-1] + over - begun)
        moments += had_batch

    def findings(self) -> RunFindings | None:
        """Return what the run gave, None of a short one; no step is followed from then on."""
        self.end()
        over = self._clock()
        if not (self.blocks or self._unsummed):
            self._block_steps = len(self._moments) // 2
        self._close()
        blocks = self.blocks
        if not blocks:
            return None
        size = blocks[0].steps
        ends = np.cumsum(self._bins)
        quantiles = [
            _LEAST_S * math.exp((int(np.searchsorted(ends, share * ends[-1])) + 0.5) / _PER_LOG)
            for share in (0.5, 0.9, 0.99)
        ]
        medians = np.array([one.median_s for one in blocks])
        return RunFindings(
            steps=self._steps,
            seconds=self._seconds,
            quantiles_s=(quantiles[0], quantiles[1], quantiles[2]),
            wait=self._waited_s / self._seconds,
            goodput=min(1.0, self._seconds / max(over - self._begun, 1e-9)),
            blocks=tuple(blocks),
            drift=drift(medians) / size * DRIFT_STEPS,
            leak=self._leak() / size,
            leak_line=self.leak_line,
            changes=tuple((one.place * size, one.ratio) for one in find_steps(medians)),
        )

    def turns(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Yield batches, each of which is a step until ``end`` is called.

        Little is done in a turn, since the step has left the caches to others: a call would double its cost.
        """
        clock, add = self._clock, self._moments.append
        # The empty part is begun when the batches are over, after which none may be asked for.
        parts = iter((batches, ()))
        batches = chain.from_iterable(parts)
        while length_hint(parts):
            try:
                for batch in islice(batches, max((self._due - len(self._moments)) // 2 + 1, 1)):
                    add(clock())
                    yield batch
                    add(clock())
            except GeneratorExit:
                add(clock())
                raise
            if self._has_ended:
                yield from batches
            elif len(self._moments) > self._due:
                self._reach_due()

    def add_wait(self, seconds: float) -> None:
        """Add a wait for data to the present step."""
        self._wait_s += seconds

    def end_step(self) -> None:
        """End a step, and a block with the last one of it."""
        self._moments += (self._moments[-1] + self._wait_s, self._clock())
        self._wait_s = 0.0
        if len(self._moments) > self._due:
            self._reach_due()

    def end(self) -> None:
        """Follow no further step."""
        self._has_ended = True

    def _set_due(self) -> None:
        look = self._block_steps if self._look is None else self._seen // 2 + self._until_look
        self._due = 2 * min(self._block_steps, look, self._traced or look)

    def _reach_due(self) -> None:
        """Look at the latest steps, and end a block that is full."""
        try:
            if self._look is not None and len(self._moments) > self._seen + 2 * self._until_look:
                self._take_look(self._look)
            if len(self._moments) > 2 * self._block_steps:
                self._end_block()
            elif 0 < 2 * self._traced < len(self._moments):
                self._traced *= 2
                if self._moments[-1] - self._moments[0] > _TRACED_SHARE * self._seconds:
                    self._close()
            self._set_due()
        except Exception as error:
            del self._moments[1:]
            if self._failed is None:
                raise
            self._failed(error)

    def _take_look(self, look: Callable[[Look], int]) -> None:
        begun = self._clock()
        moments = np.array(self._moments[self._seen :])
        ends = moments[::2]
        times = np.diff(ends)
        times = times[times > 0]
        if len(times):
            self._until_look = look(
                Look(
                    steps=self._steps + (self._kept_until + len(self._moments)) // 2,
                    ends=ends,
                    step_s=float(np.median(times)),
                    median_s=statistics.median(one.median_s for one in self.blocks) if self.blocks else None,
                    wait=float(np.nansum(moments[1::2] - ends[:-1]) / times.sum()),
                    drift=self._drift_now,
                    leak=self._leak_now,
                    cost_s=self._look_s,
                )
            )
            self._look_s = self._clock() - begun
        self.restart_step()
        self._seen = len(self._moments) - 1

    def _end_block(self) -> None:
        """End a block, or make blocks longer."""
        is_first, took_s = not (self._steps or self._unsummed), self._moments[-1] - self._moments[0]
        if is_first and took_s < _LEAST_BLOCK_S and self._block_steps < _MOST_STEPS:
            self._block_steps *= 2
        else:
            self._close()

    def _close(self) -> None:
        """End a block; sum up all that have ended where that pays."""
        moments = self._moments
        if self._traced:
            # Tracing slowed these steps: they count as the others on average.
            steps = int(np.count_nonzero(np.diff(moments[::2]) > 0))
            self._end_trace(steps)
            more = 1 + steps / self._steps
            self._steps += steps
            self._seconds, self._waited_s = self._seconds * more, self._waited_s * more
        else:
            begun, self._kept_until = self._kept_until, self._kept_until + len(moments)
            self._kept[begun : self._kept_until] = array("d", moments)
            self._unsummed.append((self._kept_until, self._memory()))
            if self._has_ended:
                self._sum_up()
            elif self._pays_to_sum_up():
                begun_s = self._clock()
                self._sum_up()
                self._suspect()
                self._sum_at = begun_s + (self._clock() - begun_s) / MOST_SHARE
        self._until_look -= (len(moments) - 1 - self._seen) // 2
        self._seen = 0
        moments[:] = (self._clock(),)

    def _pays_to_sum_up(self) -> bool:
        is_full = self._kept_until + 3 * self._block_steps > len(self._kept)
        if is_full or self.blocks or len(self._unsummed) < _FEWEST_BLOCKS:
            return is_full or self._moments[-1] >= self._sum_at
        (_, first), *_, (_, last) = self._unsummed
        return self._look is not None or sum(last) - sum(first) >= _LEAST_LEAK

    def _sum_up(self) -> None:
        """Sum up the blocks that have ended."""
        start = 0
        for stop, memory in self._unsummed:
            moments = np.array(self._kept[start:stop])
            times, waits = moments[2::2] - moments[:-2:2], moments[1::2] - moments[:-1:2]
            times = np.sort(times[times > 0])
            if len(times):
                self._add_steps(times, float(np.nansum(waits)), memory)
            start = stop
        self._unsummed, self._kept_until = [], 0

    def _add_steps(self, times: FloatArray, waited_s: float, memory: tuple[float, float]) -> None:
        """Add the sorted times of steps to the run, and a block of them where there are enough."""
        self._steps += len(times)
        self._seconds += (total_s := float(times.sum()))
        self._waited_s += waited_s
        places = np.log(times / _LEAST_S) * _PER_LOG
        np.add.at(self._bins, np.minimum(np.maximum(places, 0), _BINS - 1).astype(np.int64), 1)
        if len(times) > self._least:
            self._least = len(times) // 2
            # A few of its ends may be those of pauses.
            steps = self._block_steps if len(times) > self._block_steps // 2 else len(times)
            self._keep(Block(steps, float(times[len(times) // 2]), total_s, waited_s, *memory))

    def _keep(self, block: Block) -> None:
        self._parts.append(block)
        if len(self._parts) < self._size:
            return
        self.blocks.append(_joined(self._parts) if self._size > 1 else block)
        self._parts = []
        if len(self.blocks) >= MOST_BLOCKS:
            self.blocks = [_joined(self.blocks[at : at + 2]) for at in range(0, MOST_BLOCKS, 2)]
            self._size *= 2
            self._next_look //= 2

    def _suspect(self) -> None:
        """Trace some steps where memory seems to leak, ever more rarely."""
        if len(self.blocks) < self._next_look:
            return
        self._next_look = max(self._next_look + 1, len(self.blocks) * 3 // 2)
        leak = self._leak()
        size = self.blocks[0].steps
        self._leak_now = leak / size
        if self._look is not None:
            medians = np.array([one.median_s for one in self.blocks])
            self._drift_now = drift(medians) / size * DRIFT_STEPS
        if leak and not tracemalloc.is_tracing():
            self._traced = _FEWEST_TRACED
            tracemalloc.start(_FRAMES)

    def _end_trace(self, steps: int) -> None:
        """Note the own line that made most of what was made in the traced steps and is alive after them."""
        self._traced = 0
        sizes: Counter[str] = Counter()
        try:
            snapshot = tracemalloc.take_snapshot()
        finally:
            tracemalloc.stop()
        for one in snapshot.statistics("traceback"):
            frame = next((each for each in reversed(one.traceback) if self._own.owns(each.filename)), None)
            if frame is not None and one.count >= max(steps // 2, 2):
                sizes[f"{self._own.shown(frame.filename)}:{frame.lineno}"] += one.size
        self.leak_line = max(sizes, key=lambda line: sizes[line], default=self.leak_line)

    def _leak(self) -> float:
        """Return by how many bytes memory grows from block to block, 0 where it does not."""
        resident = leak(np.array([one.resident for one in self.blocks]))
        return resident or leak(np.array([one.device for one in self.blocks]))


def drift(medians: FloatArray) -> float:
    """Return by which share steps get slower from block to block, 0 where they do not."""
    return _slope(np.log(medians), least=_LEAST_DRIFT)


def leak(sizes: FloatArray) -> float:
    """Return by how many bytes memory grows from block to block, 0 where it does not, or less and less."""
    slope = _slope(sizes, least=float(_LEAST_LEAK))
    if not slope:
        return 0.0
    later = sizes[int(_SETUP * len(sizes)) :]
    levels = [float(statistics.median(part)) for part in np.array_split(later, 5)]
    moves = [after - before for before, after in pairwise(levels)]
    return slope if min(moves) > _STEADY * (levels[-1] - levels[0]) / len(moves) else 0.0


def _slope(values: FloatArray, *, least: float) -> float:
    """Return the median slope of groups of values, 0 unless it is steady, clear and rises by so much."""
    later = values[int(_SETUP * len(values)) :]
    if len(later) < _FEWEST_BLOCKS:
        return 0.0
    groups = np.array([statistics.median(part) for part in np.array_split(later, min(_GROUPS, len(later)))])
    pairs = list(combinations(range(len(groups)), 2))
    slopes = np.array([(groups[b] - groups[a]) / (b - a) for a, b in pairs])
    slope = statistics.median(slopes)
    rest = groups - slope * np.arange(len(groups))
    scatter = statistics.median(np.abs(rest - statistics.median(rest)))
    rise = slope * (len(groups) - 1)
    in_order = float(np.mean(slopes > 0) - np.mean(slopes < 0))
    is_clear = rise >= max(least, _CLEAR * scatter) and in_order >= _IN_ORDER
    return slope * len(groups) / len(later) if is_clear else 0.0


def _joined(blocks: Sequence[Block]) -> Block:
    return Block(
        steps=sum(one.steps for one in blocks),
        median_s=sum(one.median_s for one in blocks) / len(blocks),
        total_s=sum(one.total_s for one in blocks),
        wait_s=sum(one.wait_s for one in blocks),
        resident=blocks[-1].resident,
        device=blocks[-1].device,
    )


def memory_now() -> tuple[float, float]:
    """Return the resident bytes of this process, and those that the allocator of an accelerator gave out."""
    allocator = allocator_in_use()
    stats = {} if allocator is None else allocator.memory_stats_as_nested_dict()
    return float(resident_now()), float(counter_of(stats, ("allocated_bytes", "all", "current")))


def leave_out_evaluations(followed: Followed, sites: Sites) -> contextlib.ExitStack:
    """Take passes of modules without gradients, and savings, out of the followed steps until that is closed.

    Regions at places that are ``sites.parts`` of steps stay in. Between two of a place, and no backward pass,
    is the rest of a loop over them, such as a rollout.
    """
    hooks = contextlib.ExitStack()
    if can_import_torch():
        patches = Patches()
        hooks.callback(patches.undo)
        hooks.enter_context(undone_in_forks(patches.undo))
        guard = Guard(patches.undo)
        latest: set[Site] = set()

        def leave_out(begin: Moment, end: Moment) -> None:
            followed.leave_out(begin.at_s, end.at_s)

        def leave_out_region(region: Region) -> None:
            followed.leave_out(region.begin.at_s, region.end.at_s, with_gap=region.site in latest)
            latest.add(region.site)

        notice_saves(patches, guard, now=host_now, note=leave_out)
        call_before_backward(patches, latest.clear)
        regions = Regions(guard, now=host_now, note=leave_out_region, passed_over=sites.parts)
        regions.notice(patches)
    return hooks


# After so many batches or backward passes without a step, it is looked whether there is an optimizer at all.
_WITHOUT_STEP = 20
# So many steps of others in a row, and the optimizer that ended each step is out of use.
_OTHERS = 64


class Steps(Protocol):
    """What follows the steps: first some by a plan, then all later ones."""

    followed: Followed | None

    def end_step(self) -> None:
        """End a step."""

    def see_batch(self, batch: object) -> None:
        """Remember the size of a batch."""


class WholeSteps:
    """Calls ``steps`` at the end of each step from ``begin`` on, which comes before there is an optimizer.

    A step ends with the optimizers' steps, the mark of the program, a turn of the loop at a line, or a batch
    of a loader. Where there is no optimizer, a backward pass makes a step, and without any each batch does.
    What lies between two loops over loaders, such as an evaluation, is part of no step.
    """

    def __init__(self, steps: Steps, unit: Unit) -> None:
        self._steps, self._unit = steps, unit
        self._thread, self._process = get_ident(), os.getpid()
        self._patches = Patches()
        self._ends = StepEnds(self._close, lambda: None)
        self._closed = self._in_loop = False
        self._updated = self._find_update
        self._ender: weakref.ref[object] | None = None
        self._others = 0
        # The first turn of a loop begins with its first batch: until then nothing belongs to a step.
        self._is_fresh, self._from, self._waited_s, self._giver = False, 0.0, 0.0, 0
        self._batches = self._backwards = 0
        self._by_backward, self._went_backward = False, False

    def begin(self) -> None:
        """Begin to notice the ends of steps."""
        if self._unit.line is not None:
            call_at(self._unit.line, self._reach_line)
            count_marked_steps(lambda: None)
        else:
            count_marked_steps(self._end)
        if not can_import_torch():
            return
        from torch.optim.optimizer import Optimizer
        from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

        os.register_at_fork(after_in_child=self._patches.undo)
        replace = self._patches.replace
        replace(_BaseDataLoaderIter, "__next__", self._noticed_fetch(_BaseDataLoaderIter.__next__))
        replace(DataLoader, "__iter__", self._noticed_loop(DataLoader.__iter__))
        # Hooks of optimizers must not be changed from within one, which the end of a step may do.
        replace(
            Optimizer, "profile_hook_step", staticmethod(self._noticed_steps(Optimizer.profile_hook_step))
        )
        call_before_backward(self._patches, self._note_backward)

    def _has_unit(self) -> bool:
        return self._unit.line is not None or self._unit.loader or steps_are_announced()

    def _end(self) -> None:
        """End a step; the first one of a loop began with its first batch."""
        if os.getpid() != self._process:
            return
        if self._is_fresh:
            self._is_fresh = False
            followed = self._steps.followed
            if followed is not None and self._from:
                followed.restart_step(self._from)
                followed.add_wait(self._waited_s)
        self._steps.end_step()

    def _reach_line(self, what: str = "") -> None:
        is_turn_over, self._in_loop = self._in_loop, what == TURN
        if not what or is_turn_over:
            self._end()

    def _close(self) -> None:
        self._closed = True
        self._end()

    def _find_update(self, optimizer: object) -> None:
        """Find out whether the update of an optimizer ends a step, and once that is known, notice only it."""
        if self._has_unit():
            return
        self._by_backward, self._closed = False, False
        self._ends.end_update(optimizer)
        if self._closed and self._steps.followed is not None and not self._ends.is_late:
            self._ender, self._others = weakref.ref(optimizer), 0
            self._updated = self._note_update

    def _note_update(self, optimizer: object) -> None:
        ender = None if self._ender is None else self._ender()
        if ender is optimizer:
            self._others = 0
            if self._is_fresh:
                self._end()
            else:
                self._steps.end_step()
            return
        self._others += 1
        # One that is gone, as where several models are trained one after the other, steps no more.
        if ender is None or self._others > _OTHERS or steps_are_announced():
            self._ender, self._updated = None, self._find_update
            self._ends = StepEnds(self._close, lambda: None)
            self._find_update(optimizer)

    def _noticed_steps(self, hooked: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        import torch

        is_compiling = torch.compiler.is_compiling

        def noticed_hooked(step: Any) -> Any:  # noqa: ANN401 (likewise)
            inner = hooked(step)

            @functools.wraps(inner)
            def noticed(optimizer: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
                if is_compiling() or get_ident() != self._thread:
                    return inner(optimizer, *args, **kwargs)
                if self._ender is None and not self._has_unit():
                    self._ends.begin_update(optimizer)
                result = inner(optimizer, *args, **kwargs)
                self._updated(optimizer)
                return result

            return noticed

        return noticed_hooked

    def _noticed_loop(self, begin: Any) -> Any:  # noqa: ANN401 (likewise)
        @functools.wraps(begin)
        def noticed(loader: Any) -> Any:  # noqa: ANN401 (likewise)
            if get_ident() == self._thread:
                self._is_fresh, self._from, self._giver = True, 0.0, 0
            return begin(loader)

        return noticed

    def _noticed_fetch(self, fetch: Any) -> Any:  # noqa: ANN401 (likewise)
        clock, steps = time.perf_counter, self._steps

        @functools.wraps(fetch)
        def noticed(iterator: Any) -> Any:  # noqa: ANN401 (likewise)
            if get_ident() != self._thread:
                return fetch(iterator)
            begun = clock()
            if self._is_fresh or self._unit.loader or self._by_backward:
                self._turn(iterator, begun)
            batch = fetch(iterator)
            followed = steps.followed
            if followed is None:
                self._find_batch(iterator, batch)
            elif self._is_fresh:
                self._waited_s += clock() - begun
            else:
                followed.add_wait(clock() - begun)
            return batch

        return noticed

    def _turn(self, iterator: object, begun: float) -> None:
        """Begin a turn of a loop; the iterator that gives the first batch of a step leads."""
        is_new = self._giver != id(iterator)
        if self._is_fresh and is_new and not self._went_backward:
            self._from, self._waited_s, self._giver = begun, 0.0, id(iterator)
            if self._unit.loader:
                self._is_fresh = False
                if self._steps.followed is not None:
                    self._steps.followed.restart_step(begun)
            return
        if self._unit.loader and not is_new:
            self._steps.end_step()
        elif self._by_backward and self._went_backward:
            self._went_backward = False
            self._end()

    def _find_batch(self, iterator: object, batch: object) -> None:
        import torch

        # An evaluation has loaders and batches of its own.
        if torch.is_grad_enabled() or self._unit.loader:
            self._steps.see_batch(batch)
        self._batches += 1
        if self._has_unit():
            return
        self._ends.give(iterator)
        if not (self._ends.optimizers or self._backwards) and self._batches % _WITHOUT_STEP == 0:
            self._unit = Unit(loader=not optimizer_exists())
            self._giver = id(iterator)

    def _note_backward(self) -> None:
        if self._ender is not None or get_ident() != self._thread:
            return
        self._backwards += 1
        if self._has_unit() or self._ends.optimizers:
            return
        if not self._by_backward and self._backwards % _WITHOUT_STEP == 0:
            self._by_backward = not optimizer_exists()
        if self._by_backward and self._went_backward:
            # No loader gave a batch since the last one.
            self._end()
        self._went_backward = self._by_backward
