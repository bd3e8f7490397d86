"""What all benchmarks of a machine's runs have in common: it is taken off each, and told as the machine's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from perfkit.history.trends import Order
from perfkit.records.history import ChangePoint, Shift, Trend
from perfkit.stats.change_points import FloatArray
from perfkit.stats.common_factor import remove_common_factor

# Of fewer benchmarks in a run nothing can be said to be common.
_FEWEST = 4


class _Measured(NamedTuple):
    """A run at a commit, in the order of commits."""

    place: float
    recorded_at: datetime
    run_id: str
    commit: str


@dataclass(frozen=True, kw_only=True)
class WithoutMachine:
    """The levels of trends, by their place, without what is common to their runs; and the steps of that."""

    levels: Mapping[int, Sequence[float]]
    shifts: tuple[Shift, ...]


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
    shifts: list[Shift] = []
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
        shifts += [
            Shift(
                machine_id=beside[0].machine_id,
                last_before=runs[step.place - 1].commit,
                first_after=runs[step.place].commit,
                at=runs[step.place].recorded_at,
                benchmarks=len(places),
                ratio=step.ratio,
                low=step.low,
                high=step.high,
            )
            for step in found.machine_steps()
        ]
    return WithoutMachine(levels=levels, shifts=tuple(shifts))


def _runs(trend: Trend, order: Order) -> Iterator[_Measured]:
    for run_id, commit, recorded_at in zip(trend.run_ids, trend.commits, trend.recorded_at, strict=True):
        yield _Measured(order.place(commit), recorded_at, run_id, commit)


def _table(trends: Sequence[Trend], rows: Mapping[_Measured, int], order: Order) -> FloatArray:
    """Return the levels of runs x benchmarks, NaN where a run has not measured one."""
    table = np.full((len(rows), len(trends)), np.nan)
    for column, trend in enumerate(trends):
        table[[rows[run] for run in _runs(trend, order)], column] = trend.levels
    return table


def with_causes(
    shifts: Iterable[Shift],
    sentinels: Sequence[Trend],
    steps: Iterable[ChangePoint],
    order: Order,
) -> list[Shift]:
    """Return shifts with what sentinels say of them: ``steps`` are those of the sentinels' trends."""
    moved = list(steps)
    told = []
    for shift in shifts:
        watched = any(one.machine_id == shift.machine_id for one in sentinels)
        is_moved = any(
            step.machine_id == shift.machine_id
            and order.place(step.last_before) <= order.place(shift.first_after)
            and order.place(step.first_after) >= order.place(shift.last_before)
            and (step.ratio > 1) == (shift.ratio > 1)
            for step in moved
        )
        told.append(replace(shift, cause=("machine" if is_moved else "code") if watched else None))
    return told
