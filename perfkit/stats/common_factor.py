"""What all benchmarks of a run have in common: the machine's part in their levels, and how to take it off.

A machine that is slow for an hour makes all benchmarks of that hour slow, some more and some less. So the
level of one is compared with what the others of the same runs did. What moves them all together is told of
the machine, as steps of the factor itself, and not of any benchmark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfkit.stats.change_points import FloatArray, Step, find_steps

# Of two others the median would follow each of them halfway.
OTHERS = 3
_ROUNDS = 5
# A benchmark may depend on the machine more than most do; beyond twice as much the slope is chance.
_STEEPEST = 2.0
_APART = (1, 2, 3, 5, 8, 13, 20)
_AS_OTHERS = 0.15
# The machine moved where the factor did by more than three times what it usually does from run to run.
_MOVED = 3.0


@dataclass(frozen=True, kw_only=True)
class WithoutFactor:
    """Levels of runs without the common factor of the machine.

    Attributes:
        levels: Runs x benchmarks, in the unit of each benchmark; NaN where it was not measured.
        factor: The factor of each run, 1 in an ordinary one and 1.1 in one that is 10 % slower; NaN where
            fewer than four benchmarks were measured.
        slopes: How much of the factor's logarithm each benchmark follows; 0 where nothing was taken off.
    """

    levels: FloatArray
    factor: FloatArray
    slopes: tuple[float, ...]

    def machine_steps(self) -> tuple[Step, ...]:
        """Return where all benchmarks moved together, their places being indices of the runs."""
        known = np.flatnonzero(np.isfinite(self.factor))
        return tuple(replace(step, place=int(known[step.place])) for step in find_steps(self.factor[known]))


def remove_common_factor(levels: Sequence[Sequence[float]] | FloatArray) -> WithoutFactor:
    """Return the levels of runs x benchmarks without what the others of the same runs have in common.

    A level is above zero, in any unit, or NaN where the run has not measured the benchmark. The factor of a
    run is the median of what its benchmarks are off their own levels (median polish, Tukey 1977), leaving out
    the benchmark from which it is taken, times the slope with which that one follows it. A benchmark that has
    three others in less than half of its runs stays as it is; in single runs that lack them, the factor lies
    between those of the runs around.

    Raises:
        ValueError: the levels are no table, or one of them is neither above zero nor NaN.
    """
    table = np.asarray(levels, dtype=np.float64)
    if table.ndim != 2 or np.isinf(table).any() or (table <= 0).any():  # noqa: PLR2004 (rows and columns)
        raise ValueError("expected a table of levels above zero, NaN where there is none")
    logs = np.log(table)
    off = _polished(logs)
    others = _medians_of_others(off)
    slopes = []
    for column in range(logs.shape[1]):
        measured = np.isfinite(logs[:, column])
        factor, slope = _followed(off[measured, column], others[measured, column])
        logs[measured, column] -= slope * factor
        slopes.append(slope)
    counts = np.isfinite(off).sum(axis=1)
    factor = np.where(counts > OTHERS, np.exp(_row_medians(off)), np.nan)
    return WithoutFactor(levels=np.exp(logs), factor=factor, slopes=tuple(slopes))


def _polished(logs: FloatArray) -> FloatArray:
    """Return what each log level is off its benchmark's own level, the run's factor left in it."""
    off, factor = logs, np.zeros(len(logs))
    for _ in range(_ROUNDS):
        off = logs - _column_medians(logs - factor[:, None])
        factor = np.nan_to_num(_row_medians(off))
    return off


def _column_medians(table: FloatArray) -> FloatArray:
    return _row_medians(table.T)


def _row_medians(table: FloatArray) -> FloatArray:
    """Return the median of each row over its numbers, NaN where it has none."""
    ordered = _ordered(table)
    rows, counts = np.arange(len(table)), np.isfinite(table).sum(axis=1)
    return np.asarray((ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2)


def _ordered(table: FloatArray) -> FloatArray:
    """Return each row in order, NaN last, and one NaN more: an empty row has one, too."""
    return np.column_stack([np.sort(table, axis=1), np.full(len(table), np.nan)])


def _medians_of_others(table: FloatArray) -> FloatArray:
    """Return for each number of a table the median of the others in its row; NaN with fewer than three.

    A row is put in order once: without one of its numbers, those above it move down by one place. Where the
    table has no number itself, what is returned means nothing.
    """
    ordered, ranks = _ordered(table), np.argsort(np.argsort(table, axis=1), axis=1)
    others = np.isfinite(table).sum(axis=1, keepdims=True) - 1
    lower, upper = (others - 1) // 2, others // 2
    below = np.take_along_axis(ordered, lower + (lower >= ranks), axis=1)
    above = np.take_along_axis(ordered, upper + (upper >= ranks), axis=1)
    return np.where(others >= OTHERS, (below + above) / 2, np.nan)


def _followed(off: FloatArray, factor: FloatArray) -> tuple[FloatArray, float]:
    """Return the log factor for each run of a benchmark and the slope with which it follows that."""
    known = np.flatnonzero(np.isfinite(factor))
    if len(off) < 2 or 2 * len(known) < len(off):  # noqa: PLR2004 (a run alone has not moved)
        return np.zeros(len(off)), 0.0
    whole = np.interp(np.arange(len(off)), known, factor[known])
    whole -= np.median(whole)
    return whole, _slope(off, whole)


def _slope(off: FloatArray, factor: FloatArray) -> float:
    """Return how much a benchmark moves with the factor, by the weighted median of pairs of runs.

    The pairs are up to twenty runs apart, so that a step of the benchmark's own touches few of them, and the
    factor moved between them by more than it does by chance; they count by how much it moved. Some weight
    says that the benchmark follows the machine as others do.
    """
    moves, follows = (np.concatenate([one[lag:] - one[:-lag] for lag in _APART]) for one in (factor, off))
    moved = np.abs(moves) > _MOVED * np.median(np.abs(np.diff(factor)))
    if not moved.any():
        return 0.0
    weights = np.abs(moves[moved])
    slopes = np.append(follows[moved] / moves[moved], 1.0)
    weights = np.append(weights, _AS_OTHERS * weights.sum())
    order = np.argsort(slopes)
    sums = np.cumsum(weights[order])
    slope = float(slopes[order][np.searchsorted(sums, sums[-1] / 2)])
    return min(max(slope, 0.0), _STEEPEST)
