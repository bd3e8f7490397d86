"""Separate what the benchmarks of a machine's runs have in common from what each of them does alone."""

from __future__ import annotations

import hashlib
import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import numpy as np

from perfkit.ledger.history.trends import Order
from perfkit.model.history import ChangePoint, Shift, Trend
from perfkit.stats.change_points import FloatArray, Step, describe_step
from perfkit.stats.common_factor import remove_common_factor

# Of fewer benchmarks in a run nothing can be said to be common.
_FEWEST = 4
# A benchmark took part in a shift if it moved by at least this share of it.
_LEAST_PART = 0.25
_ID_DIGITS = 8


class _Measured(NamedTuple):
    """A run at a commit, in the order of commits."""

    place: float
    recorded_at: datetime
    run_id: str
    commit: str


@dataclass(frozen=True, kw_only=True)
class CommonStep:
    """A step of what the runs of several ``trends``, given by their places, have in common."""

    trends: tuple[int, ...]
    machine_id: str
    last_before: str
    first_after: str
    at: datetime
    ratio: float
    chance: float

    @property
    def shift_id(self) -> str:
        """The name of the shift: the same as long as its machine and its commits are."""
        named = (self.machine_id, self.last_before, self.first_after, self.ratio > 1)
        return hashlib.sha256(repr(named).encode()).hexdigest()[:_ID_DIGITS]

    def step_of(self, trend: Trend, order: Order) -> tuple[int, Step | None]:
        """Return the place of the step in a trend, and what the trend itself did there, None for nothing."""
        keys = [
            (order.place(commit), at) for commit, at in zip(trend.commits, trend.recorded_at, strict=True)
        ]
        place = bisect_left(keys, (order.place(self.first_after), self.at))
        step = describe_step(trend.levels, place, chance=self.chance)
        if step is None or step.low <= 1 <= step.high:
            return place, None
        enough = abs(math.log(step.ratio)) >= _LEAST_PART * abs(math.log(self.ratio))
        return place, step if enough else None


@dataclass(frozen=True, kw_only=True)
class WithoutMachine:
    """The levels of trends, by their place, without what is common to their runs; and the steps of that."""

    levels: Mapping[int, Sequence[float]]
    steps: tuple[CommonStep, ...]


def without_machine(
    trends: Sequence[Trend], order: Order, is_sentinel: Callable[[str], bool]
) -> WithoutMachine:
    """Take off each trend what the others that were measured in the same runs have in common.

    Exact counts have nothing to do with a machine's speed. Sentinels stay as they are, since they say whether
    the machine or the code moved; and so do gates, whose ratios are free of the machine.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place, trend in enumerate(trends):
        if not trend.lockstep and not trend.metric.exact and min(trend.levels) > 0:
            groups.setdefault((trend.machine_id, tuple(dict.fromkeys(trend.env_ids))), []).append(place)
    levels: dict[int, Sequence[float]] = {}
    steps: list[CommonStep] = []
    for places in groups.values():
        if len(places) < _FEWEST:
            continue
        beside = [trends[place] for place in places]
        runs = sorted({run for trend in beside for run in _runs(trend, order)})
        rows = {run: row for row, run in enumerate(runs)}
        found = remove_common_factor(_table(beside, rows, order))
        for column, (place, trend) in enumerate(zip(places, beside, strict=True)):
            if not is_sentinel(trend.benchmark):
                levels[place] = found.levels[[rows[run] for run in _runs(trend, order)], column].tolist()
        steps += [
            CommonStep(
                trends=tuple(places),
                machine_id=beside[0].machine_id,
                last_before=runs[step.place - 1].commit,
                first_after=runs[step.place].commit,
                at=runs[step.place].recorded_at,
                ratio=step.ratio,
                chance=step.chance,
            )
            for step in found.machine_steps()
        ]
    return WithoutMachine(levels=levels, steps=tuple(steps))


def _runs(trend: Trend, order: Order) -> Iterator[_Measured]:
    for run_id, commit, recorded_at in zip(trend.run_ids, trend.commits, trend.recorded_at, strict=True):
        yield _Measured(order.place(commit), recorded_at, run_id, commit)


def _table(trends: Sequence[Trend], rows: Mapping[_Measured, int], order: Order) -> FloatArray:
    """Return the levels of runs x benchmarks, NaN where a run has not measured one."""
    table = np.full((len(rows), len(trends)), np.nan)
    for column, trend in enumerate(trends):
        table[[rows[run] for run in _runs(trend, order)], column] = trend.levels
    return table


def shifts_of(
    common: WithoutMachine,
    trends: Sequence[Trend],
    points: Sequence[ChangePoint],
    is_sentinel: Callable[[str], bool],
) -> Iterator[Shift]:
    """Yield the steps that several benchmarks made together, with what their own steps say of the cause."""
    for step in common.steps:
        measured = {name for place in step.trends if not is_sentinel(name := trends[place].benchmark)}
        moved = [
            point
            for point in points
            if point.shift == step.shift_id
            and point.benchmark in measured
            and (point.ratio > 1) == (step.ratio > 1)
        ]
        if not moved:
            continue
        causes = {point.cause for point in moved}
        watched = any(one.machine_id == step.machine_id and is_sentinel(one.benchmark) for one in trends)
        proven = causes.pop() if "code" not in causes and len(causes) == 1 else None
        yield Shift(
            machine_id=step.machine_id,
            last_before=step.last_before,
            first_after=step.first_after,
            at=step.at,
            benchmarks=len({point.benchmark for point in moved}),
            measured=len(measured),
            ratio=statistics.median(point.ratio for point in moved),
            low=statistics.median(point.low for point in moved),
            high=statistics.median(point.high for point in moved),
            cause=proven or ("code" if watched else None),
            shift_id=step.shift_id,
            detail=moved[0].detail,
        )
