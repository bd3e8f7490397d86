"""Change points: where the level of a benchmark changed for good, by how much, and how sure that is.

A trend is the levels of runs in commit order. Runs scatter, some are outliers, and levels wander and rise. A
change point is reported where the runs are far more likely with it than without it, *for any drift*: a ratio
of likelihoods under the local level and the local linear trend model (Harvey 1989, 2.3), in which either side
may have the drift that suits it best. Changes of a level that keeps coming back are none.
``docs/measured/change-points.md`` has the figures.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfkit.model.history import Stretch
from perfkit.stats.interval import student_quantile

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.intp]

# A step has at least this many runs on either side: fewer may be slow by a burst.
SHORTEST = 6
# Of counts, which repeat to the digit, this many equal ones are a level.
_SHORTEST_EXACT = 3
# How many runs are compared at once: older ones matter little where a machine drifts.
_LENGTHS = (12, 18, 25, 35, 50, 70, 100, 140, 200)
# The sd of a walk from run to run, in parts of the sd of single runs, and the log-likelihood penalty of a
# step beside it: clustered levels look like both a walk and a step.
_WALKS = ((0.0, 0.0), (0.05, 0.0), (0.1, 0.0), (0.2, 2.0), (0.4, 6.0), (0.8, 4.0), (2.0, 0.0))
# Likewise the sd of a slope's walk; a window may rise by some hundred sds of single runs.
_BENDS, _RISE = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0), 100.0
# Likewise with few runs, which hardly distinguish drift from a step.
_FEW_RUNS, _DOUBT_OF_FEW = 35, 2.0
# Windows begin at each run where fewer runs than these are looked through.
_EVERY_RUN = 50
# So many trends, and runs of windows, are looked at together: more do not fit into the cache of a core.
_TAMED_AT_ONCE, _RUNS_AT_ONCE = 16, 20_000
# Neighbours have a slope where the medians of their quarters rise evenly.
_PARTS = 4
# Runs count in full up to 2.5 deviations from the median of their neighbours, and not at all beyond 5.
_COUNTS_IN_FULL, _COUNTS_NOTHING = 2.5, 5.0
_NEIGHBOURS, _FEW_NEIGHBOURS = 21, 11
# The deviation of runs changes over years; it is taken from this many.
_SCALE_RUNS, _SCALE_EVERY = 101, 20
_SD_PER_MAD = 1.4826  # of a normal distribution
# No benchmark repeats better than to a tenth of a percent of the level.
_LEAST_SD = 0.001
_SESSIONS = 3
# A drift may be believed while the runs are this many times as likely with another one.
_AS_WELL = 10.0
# At most one in a hundred simulated trends of 100 runs has a step as clear as the first of these; a tenth of
# them have one that is clearer by the last.
_SURE, _SURE_CHANCE, _CLARITY_PER_TENTH = 17.0, 0.01, 4.0
# Fewer changes of random sign go to and fro by chance in more than one of a hundred trends.
_FEWEST_TO_AND_FRO, _SHUFFLES = 8, 2000


# A likely step has three runs on a side. Outliers count up to six deviations.
_FEWEST_LIKELY, _MOST_OFF, _RECENT = 3, 6.0, 100
# It stands out in a chart by so much, by so many deviations and so clearly: one in a hundred trends of
# identical code has one that is as clear. Of those that may be chance, a smaller one is further off.
_PROBABLE = (0.03, 2.5, 10.0)
_POSSIBLE = ((0.03, 2.0, 4.0), (0.01, 4.0, 6.0))
# This many more runs are asked for at most, twice as many as it takes if they are as those after the step.
_MOST_MORE_RUNS = 12
# Two levels are this many deviations apart, each has a fifth of the runs, and they alternate.
_APART_SDS, _LEAST_SHARE, _FEWEST_SWITCHES = 5.0, 0.2, 6
# A weekly pattern is looked for in the runs of three weeks.
_WEEKS, _WEEKDAYS = 3, 7


@dataclass(frozen=True, kw_only=True)
class Step:
    """A lasting change between two runs that follow one another.

    ``place`` is the first run after it; ``before`` and ``after`` reach to the neighbouring changes. ``ratio``
    is after / before right at the step, with its 95 % interval; ``chance`` is the probability of one this
    clear in 100 runs without any.
    """

    place: int
    before: Stretch
    after: Stretch
    ratio: float
    low: float
    high: float
    chance: float


def find_steps(
    levels: Sequence[float] | FloatArray,
    *,
    exact: bool = False,
    sessions: Sequence[Hashable] | None = None,
    chance: float = 0.01,
) -> tuple[Step, ...]:
    """Return the change points of positive levels in commit order; none of fewer than twelve inexact runs.

    ``exact`` levels are counts that repeat to the digit. ``sessions`` names when each run was measured: a
    change between two sessions has to be likelier than one of the machine, unless three sessions lie on
    either side or one has six runs on both. ``chance`` is the probability of any in 100 runs without.
    """
    return find_all_steps([Sought(levels, exact, sessions)], chance=chance)[0]


class Sought(NamedTuple):
    """A trend whose change points are sought, as ``find_steps`` takes it."""

    levels: Sequence[float] | FloatArray
    exact: bool = False
    sessions: Sequence[Hashable] | None = None


def find_all_steps(trends: Sequence[Sought], *, chance: float = 0.01) -> list[tuple[Step, ...]]:
    """Return the change points of each trend: together they take a fraction of the time."""
    threshold = _SURE - _CLARITY_PER_TENTH * math.log10(chance / _SURE_CHANCE)
    found: list[tuple[Step, ...]] = []
    long: dict[int, FloatArray] = {}
    for number, (levels, exact, sessions) in enumerate(trends):
        values = np.asarray(levels, dtype=np.float64)
        if sessions is not None and len(sessions) != len(values):
            raise ValueError(f"expected a session for each of {len(values)} runs, found {len(sessions)}")
        if not np.isfinite(values).all() or (values < 0).any() or (not exact and (values == 0).any()):
            raise ValueError("a level is not a finite number above zero")
        repeats = exact and len(values) > 1 and np.mean(np.diff(values) == 0) > 1 / 2
        found.append(_exact_steps(values) if repeats else ())
        if not repeats and len(values) >= 2 * SHORTEST and (values > 0).all():
            long[number] = values
    for (number, values), (tamed, clear) in zip(
        long.items(), _clear_steps([*long.values()], threshold), strict=True
    ):
        found[number] = _judged_steps(values, tamed, clear, trends[number].sessions, threshold)
    return found


def _judged_steps(
    values: FloatArray,
    tamed: FloatArray,
    clear: list[tuple[int, float]],
    sessions: Sequence[Hashable] | None,
    threshold: float,
) -> tuple[Step, ...]:
    found = _lasting(tamed, clear)
    steps = _describe(values, tamed, found)
    if sessions is None or not steps:
        return steps
    doubtful = _doubtful(sessions)
    edges = [0, *(place for place, _ in found), len(values)]
    return tuple(
        step
        for at, step in enumerate(steps)
        if _is_likelier(tamed, *edges[at : at + 3], doubtful=doubtful, threshold=threshold)
    )


def _clear_steps(
    trends: Sequence[FloatArray], threshold: float
) -> list[tuple[FloatArray, list[tuple[int, float]]]]:
    """Return the tamed log levels of each trend, and its clear steps."""
    logs = [np.log(values) for values in trends]
    tamed = _tamed([one - medians_of(one) for one in logs])
    begins = [0, *itertools.accumulate(map(len, tamed))]
    found = _search(np.concatenate(tamed) if tamed else np.empty(0), begins, threshold)
    own = [bisect.bisect_left(found, begin) for begin in begins]
    return [
        (one, _pruned(one, [place - begin for place in found[low:high]], threshold))
        for one, begin, (low, high) in zip(tamed, begins, itertools.pairwise(own), strict=False)
    ]


def _tamed(trends: Sequence[FloatArray]) -> list[FloatArray]:
    """Return tamed trends, those of one length together."""
    found = list(trends)
    by_length = sorted(range(len(trends)), key=lambda number: len(trends[number]))
    for _, group in itertools.groupby(by_length, key=lambda number: len(trends[number])):
        numbers = list(group)
        for begin in range(0, len(numbers), _TAMED_AT_ONCE):
            some = numbers[begin : begin + _TAMED_AT_ONCE]
            for number, one in zip(some, tame(np.array([trends[number] for number in some])), strict=True):
                found[number] = one
    return found


def to_and_fro(trends: Sequence[Sequence[float] | FloatArray]) -> list[tuple[int, float] | None]:
    """Return of each trend how many changes of a level undo one another, and their median ratio.

    None where they last.
    """
    values = [np.asarray(levels, dtype=np.float64) for levels in trends]
    long = [one for one in values if len(one) >= SHORTEST * _FEWEST_TO_AND_FRO]
    found = map(_habit, _clear_steps(long, _SURE))
    return [next(found) if len(one) >= SHORTEST * _FEWEST_TO_AND_FRO else None for one in values]


def _habit(found: tuple[FloatArray, list[tuple[int, float]]]) -> tuple[int, float] | None:
    tamed, clear = found
    if len(clear) == len(_lasting(tamed, clear)):
        return None
    edges = [0, *(place for place, _ in clear), len(tamed)]
    medians = [float(medians_of(tamed[low:high])) for low, high in itertools.pairwise(edges)]
    return len(clear), math.exp(float(medians_of(np.abs(np.diff(medians)))))


def describe_step(
    levels: Sequence[float] | FloatArray, place: int, *, beside: Sequence[Step], chance: float
) -> Step | None:
    """Describe the change at a place that is known, however clear it is; None with too few runs beside it.

    ``beside`` are the change points of the levels.
    """
    values = np.asarray(levels, dtype=np.float64)
    around = [step.place for step in beside if abs(step.place - place) >= SHORTEST]
    low = max((other for other in around if other < place), default=0)
    high = min((other for other in around if other > place), default=len(values))
    if min(place - low, high - place) < SHORTEST:
        return None
    logs = np.log(values)
    (tamed,) = tame(logs[None] - medians_of(logs))
    return _describe_one(values, tamed, (low, place, high), chance)


class LikelyStep(NamedTuple):
    """A step that a person would see, which may be chance unless it is ``probable``.

    If the level stays as it is after the step, ``needed`` more runs should show; 0 where that is not known.
    """

    place: int
    ratio: float
    probable: bool
    needed: int = 0


def likely_step(levels: Sequence[float] | FloatArray) -> LikelyStep | None:
    """Return the step of the last 100 runs that a person would see: its first run and its ratio.

    The runs are compared with one median and with two, as if they scattered by the law of Laplace.
    """
    earlier = max(len(levels) - _RECENT, 0)
    logs = np.log(np.asarray(levels[earlier:], dtype=np.float64))
    found = _best_step(logs)
    if found is None:
        return None
    place, change, *seen = found
    probable = _stands_out(seen, _PROBABLE)
    if not probable and not any(_stands_out(seen, least) for least in _POSSIBLE):
        return None
    needed, after = 0, logs[place:]
    for more in range(1, _MOST_MORE_RUNS // 2 + 1) if not probable else ():
        _, _, *then = _best_step(np.append(logs, np.resize(after, more))) or found
        if _stands_out(then, _PROBABLE):
            needed = 2 * more
            break
    return LikelyStep(earlier + place, math.exp(change), probable, needed)


def _stands_out(seen: Sequence[float], least: Sequence[float]) -> bool:
    return all(one >= other for one, other in zip(seen, least, strict=True))


def _best_step(logs: FloatArray) -> tuple[int, float, float, float, float] | None:
    """Return the place and change of the best step, its size, also in deviations, and its clarity."""
    places = [
        place
        for place in range(_FEWEST_LIKELY, len(logs) - _FEWEST_LIKELY + 1)
        if max(place, len(logs) - place) >= SHORTEST
    ]
    if not places:
        return None
    sd = max(_SD_PER_MAD * float(medians_of(np.abs(np.diff(logs)))) / math.sqrt(2), _LEAST_SD)

    def scatter(levels: FloatArray | np.float64) -> FloatArray:
        off = np.minimum(np.abs(logs - levels), _MOST_OFF * sd).sum(axis=-1) + len(logs) * _LEAST_SD
        return np.asarray(off, dtype=np.float64)

    cuts = np.array(places)
    before, after = _medians_of_begins(logs)[cuts - 1], _medians_of_begins(logs[::-1])[len(logs) - cuts - 1]
    is_before = np.arange(len(logs)) < cuts[:, None]
    off = scatter(np.where(is_before, before[:, None], after[:, None]))
    best = int(off.argmin())
    change = float(after[best] - before[best])
    clarity = len(logs) * math.log(float(scatter(medians_of(logs))) / off[best])
    return places[best], change, abs(change), abs(change) / sd, clarity


def _medians_of_begins(values: FloatArray) -> FloatArray:
    """Return the median of the first value, of the first two, and so on."""
    ordered: list[float] = []
    medians = []
    for value in values.tolist():
        bisect.insort(ordered, value)
        medians.append((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)
    return np.array(medians)


def two_levels(levels: Sequence[float] | FloatArray) -> tuple[int, float] | None:
    """Return how often the last 100 runs alternate between two levels, and their ratio; else None."""
    logs = np.log(np.asarray(levels[-_RECENT:], dtype=np.float64))
    fewest = math.ceil(_LEAST_SHARE * len(logs))
    if len(logs) < 4 * SHORTEST:
        return None
    ordered = np.sort(logs - logs.mean())
    cuts = np.arange(fewest, len(logs) - fewest + 1)
    sums = ordered.cumsum()[cuts - 1]
    cut = int(cuts[(sums**2 / cuts + sums**2 / (len(logs) - cuts)).argmax()])
    lower, upper = ordered[:cut], ordered[cut:]
    sd = max(math.sqrt((lower.var() * cut + upper.var() * len(upper)) / len(logs)), _LEAST_SD)
    apart = float(medians_of(upper) - medians_of(lower))
    switches = int(np.count_nonzero(np.diff(logs - logs.mean() > (lower[-1] + upper[0]) / 2)))
    by_chance = 2 * cut * len(upper) / len(logs)
    alternates = switches >= max(_FEWEST_SWITCHES, by_chance / 2)
    return (switches, math.exp(apart)) if alternates and apart >= max(_PROBABLE[0], _APART_SDS * sd) else None


def weekly(
    levels: Sequence[float] | FloatArray, times: Sequence[datetime]
) -> tuple[tuple[int, ...], float] | None:
    """Return the days of the week, 0 for Monday, on which the last 100 runs are slow, and by what ratio."""
    logs = np.log(np.asarray(levels[-_RECENT:], dtype=np.float64))
    times = times[-_RECENT:]
    if len(logs) < _WEEKS * _WEEKDAYS or (max(times) - min(times)).days < _WEEKDAYS * (_WEEKS - 1):
        return None
    days = np.array([time.weekday() for time in times])
    width = 2 * _WEEKDAYS + 1
    starts = np.clip(np.arange(len(logs)) - _WEEKDAYS, 0, len(logs) - width)
    off = logs - _moving_medians(logs, width)[starts]
    medians = {int(day): float(medians_of(off[days == day])) for day in np.unique(days)}
    middle = (min(medians.values()) + max(medians.values())) / 2
    slow = tuple(day for day, median in medians.items() if median > middle)
    is_slow = np.isin(days, slow)
    if min(np.count_nonzero(is_slow), np.count_nonzero(~is_slow)) < _FEWEST_LIKELY:
        return None
    apart = float(medians_of(off[is_slow]) - medians_of(off[~is_slow]))
    sd = _SD_PER_MAD * float(
        medians_of(np.abs(off - np.where(is_slow, apart, 0.0) - medians_of(off[~is_slow])))
    )
    if apart < max(_PROBABLE[0], _PROBABLE[1] * sd):
        return None
    # The days explain more than they would if the runs were shuffled.
    clipped = np.clip(off - medians_of(off), -apart, apart)
    shares = (days[:, None] == np.arange(_WEEKDAYS)) / np.maximum(
        np.bincount(days, minlength=_WEEKDAYS), 1
    ) ** 0.5
    shuffled = np.random.default_rng(0).permuted(np.tile(clipped, (_SHUFFLES, 1)), axis=1)
    further = np.square(shuffled @ shares).sum(axis=1) >= np.square(clipped @ shares).sum()
    return (slow, math.exp(apart)) if np.mean(further) <= _SURE_CHANCE / 10 else None


def tame(logs: FloatArray) -> FloatArray:
    """Return log levels, trends x runs, in which outliers stand at the level of their neighbours.

    The level beside a run is the median of 21 runs, along their slope: those around it, up to it or from it
    on, whichever is nearest to it, so that a step stays as it is; at either end also of the 11 last ones.
    This is Hampel's three-part estimate (Andrews et al. 1972) with the middle part left out. Runs have a
    slope, the least one between medians of quarters, where these rise evenly, as they do not at a step.
    """
    runs = logs.shape[1]
    wide = _NEIGHBOURS if runs >= 2 * _NEIGHBOURS else _FEW_NEIGHBOURS
    index, last = np.arange(runs), runs - wide
    apart = (wide - 1) // _PARTS
    width = wide - (_PARTS - 1) * apart
    parts = _moving_medians(logs, width)[:, np.arange(_PARTS)[:, None] * apart + np.arange(last + 1)]
    rises = np.sort(np.diff(parts, axis=1), axis=1)
    least, most = rises[:, 0], rises[:, -1]
    slopes = np.where(2 * least > most, least, np.where(2 * most < least, most, 0.0)) / apart
    medians = _moving_medians(logs, wide)
    starts = np.clip(index - np.array([[wide // 2], [wide - 1], [0]]), 0, last)
    lines = medians[:, starts] + slopes[:, starts] * (index - starts - wide // 2)
    around = medians[:, starts[0]]
    beside = lines[:, [0, 1, 2, 0, 0]]
    beside[:, 3, :_FEW_NEIGHBOURS] = medians_of(logs[:, :_FEW_NEIGHBOURS])[:, None]
    beside[:, 4, -_FEW_NEIGHBOURS:] = medians_of(logs[:, -_FEW_NEIGHBOURS:])[:, None]
    off = np.abs(logs[:, None] - beside).argmin(axis=1)
    nearest = np.take_along_axis(beside, off[:, None], axis=1)[:, 0]
    by_differences = _local_medians(np.abs(np.diff(logs)), runs) / math.sqrt(2)
    by_levels = _local_medians(np.abs(logs - around), runs)
    sd = np.maximum(_SD_PER_MAD * np.maximum(by_differences, by_levels), _LEAST_SD)
    off = np.abs(logs - nearest) / sd
    fading = _COUNTS_IN_FULL * (_COUNTS_NOTHING - off) / (_COUNTS_NOTHING - _COUNTS_IN_FULL)
    kept = np.where(off <= _COUNTS_IN_FULL, off, np.maximum(fading, 0.0))
    return np.asarray(nearest + np.sign(logs - nearest) * kept * sd)


def medians_of(values: FloatArray) -> FloatArray:
    """Return the medians along the last axis, as ``np.median`` does in twice the time."""
    middles = [(values.shape[-1] - 1) // 2, values.shape[-1] // 2]
    ordered = np.partition(values, middles, axis=-1)
    return np.asarray((ordered[..., middles[0]] + ordered[..., middles[1]]) / 2)


def _moving_medians(values: FloatArray, width: int) -> FloatArray:
    return medians_of(np.lib.stride_tricks.sliding_window_view(values, width, axis=-1))


def _local_medians(values: FloatArray, runs: int) -> FloatArray:
    last = values.shape[1] - _SCALE_RUNS
    if last <= 0:
        return medians_of(values)[:, None]
    starts = np.unique(np.append(np.arange(0, last, _SCALE_EVERY), last))
    medians = medians_of(np.lib.stride_tricks.sliding_window_view(values, _SCALE_RUNS, axis=1)[:, starts])
    middles = starts + _SCALE_RUNS // 2
    return np.array([np.interp(np.arange(runs), middles, one) for one in medians])


@dataclass(frozen=True, kw_only=True)
class _Drifts:
    """The models of windows of ``length`` runs, for each kind and strength of the drift.

    ``weights`` takes a window to the sums of what its runs from a place on are off the level, weighted
    (strengths x places numbers). These times ``errors``, standard errors of unit noise, are the step there.
    A window is the likelier, the smaller its sum of squares is times ``penalties``, which become
    ``doubted_penalties`` where there is a step (see ``_WALKS``).
    """

    length: int
    weights: FloatArray
    errors: FloatArray
    penalties: FloatArray
    doubted_penalties: FloatArray

    def fit(self, windows: FloatArray, shortest: int = SHORTEST) -> tuple[FloatArray, FloatArray]:
        sums = (windows @ self.weights).reshape(len(windows), -1, self.length - 1)
        squares = (sums @ np.diff(windows)[:, :, None])[:, :, 0] + self.least
        places = slice(shortest - 1, self.length - shortest)
        return np.asarray(squares), sums[:, :, places] * self.errors[:, places]

    def clarity(self, squares: FloatArray, steps: FloatArray) -> FloatArray:
        left = np.maximum(squares[:, :, None] - np.square(steps), self.least)
        left *= self.doubted_penalties[:, None]
        without = (squares * self.penalties).min(axis=1)
        return np.asarray((self.length - 1) * np.log(without[:, None] / left.min(axis=1)))

    @property
    def least(self) -> float:
        return (self.length - 1) * _LEAST_SD**2


@lru_cache(maxsize=32)
def _drifts(length: int) -> _Drifts:
    """Return the models for windows of ``length`` runs, with the level at their beginning not known."""
    time = np.arange(1.0, length + 1)
    earlier, later = np.minimum.outer(time, time), np.maximum.outer(time, time)
    line = _RISE**2 * np.outer(time, time) / length**2
    drifts = [
        *((walk**2 * earlier, doubt) for walk, doubt in _WALKS),
        *((bend**2 * earlier**2 * (3 * later - earlier) / 6 + line, 0.0) for bend in _BENDS),
    ]
    weights, errors, logs = [], [], []
    for drift, _ in drifts:
        covariance = np.eye(length) + drift
        precision = np.linalg.inv(covariance)
        sums = precision.sum(axis=0)
        within = precision - np.outer(sums, sums) / sums.sum()
        # All of them add up to nothing, so that those from a place on are those before it.
        before = within.cumsum(axis=1)[:, :-1]
        weights.append(-before)
        errors.append(1 / np.sqrt(before.cumsum(axis=0).diagonal()))
        logs.append(np.linalg.slogdet(covariance)[1] + math.log(sums.sum()))
    doubts = np.array([doubt for _, doubt in drifts]) + (_DOUBT_OF_FEW if length < _FEW_RUNS else 0.0)
    return _Drifts(
        length=length,
        weights=np.concatenate(weights, axis=1),
        errors=np.array(errors),
        penalties=np.exp(np.array(logs) / (length - 1)),
        doubted_penalties=np.exp((np.array(logs) + doubts) / (length - 1)),
    )


def _clarity(windows: FloatArray, shortest: int = SHORTEST) -> FloatArray:
    model = _drifts(windows.shape[1])
    return model.clarity(*model.fit(windows, shortest))


def _chance(clarity: float) -> float:
    return min(1.0, _SURE_CHANCE * 10 ** ((_SURE - clarity) / _CLARITY_PER_TENTH))


def _search(logs: FloatArray, begins: Sequence[int], threshold: float) -> list[int]:
    """Return the places of clear steps in trends that follow one another, and begin and end at ``begins``."""
    found: list[int] = []
    parts = list(itertools.pairwise(begins))
    while parts:
        new = _clear_places(logs, parts, threshold)
        edges = sorted({*begins, *found, *new})
        reach = 2 * _LENGTHS[-1]
        parts = []
        for place in new:
            at = bisect.bisect_left(edges, place)
            parts += [(max(edges[at - 1], place - reach), place), (place, min(edges[at + 1], place + reach))]
        parts = sorted(set(parts))
        found += new
    return sorted(found)


def _clear_places(logs: FloatArray, parts: Sequence[tuple[int, int]], threshold: float) -> list[int]:
    chosen: list[int] = []
    for _, place, low, high in sorted(_candidates(logs, parts, threshold), reverse=True):
        after = bisect.bisect_right(chosen, low)
        if after == len(chosen) or chosen[after] >= high:
            bisect.insort(chosen, place)
    return chosen


def _candidates(
    logs: FloatArray, parts: Sequence[tuple[int, int]], threshold: float
) -> Iterator[tuple[float, int, int, int]]:
    """Yield the clear windows: clarity, place of the step, begin and end."""
    # Of the shortest windows only the middle is looked at, and in few runs two steps lie close together, so
    # that windows begin at each run there; all others overlap by half.
    begins: dict[int, list[IntArray]] = {}
    for low, high in parts:
        every_run = high - low < _EVERY_RUN
        for length in _lengths(high - low):
            count = math.ceil((high - low - length) / (1 if every_run else length / 2)) + 1
            places = low + np.round(np.linspace(0, high - low - length, count)).astype(np.intp)
            begins.setdefault(length, []).append(places)
    for length, of_parts in begins.items():
        every = np.concatenate(of_parts)
        at_once = _RUNS_AT_ONCE // length
        for begin in range(0, len(every), at_once):
            starts = every[begin : begin + at_once]
            model = _drifts(length)
            squares, steps = model.fit(logs[starts[:, None] + np.arange(length)])
            # The largest step of each drift decides whether a window is clear; few are.
            largest = np.maximum(steps.max(axis=2), -steps.min(axis=2))[:, :, None]
            clear = np.flatnonzero(model.clarity(squares, largest)[:, 0] >= threshold)
            clarity = model.clarity(squares[clear], steps[clear])
            for start, best, most in zip(
                starts[clear].tolist(),
                clarity.argmax(axis=1).tolist(),
                clarity.max(axis=1).tolist(),
                strict=True,
            ):
                yield most, start + SHORTEST + best, start, start + length


def _lengths(runs: int) -> tuple[int, ...]:
    lengths = tuple(length for length in _LENGTHS if length <= runs)[::-1]
    return lengths if runs < _EVERY_RUN else lengths[::2]


def _window(low: int, place: int, high: int) -> tuple[int, int]:
    length = max(one for one in _LENGTHS if one <= high - low)
    start = min(max(place - length // 2, low), high - length)
    return start, start + length


def _pruned(logs: FloatArray, places: Sequence[int], threshold: float) -> list[tuple[int, float]]:
    kept = list(places)
    while kept:
        edges = [0, *kept, len(logs)]
        judged = []
        for at in range(len(kept)):
            judged.append(_refined(logs, *edges[at : at + 3]))
            edges[at + 1] = judged[at][0]
        clarities = [clarity for _, clarity in judged]
        weakest = int(np.argmin(clarities))
        if clarities[weakest] >= threshold:
            return judged
        del kept[weakest]
    return []


def _lasting(logs: FloatArray, found: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Leave out the changes of a level that keeps coming back, up to one after which it does not."""
    edges = [0, *(place for place, _ in found), len(logs)]
    levels = np.array([medians_of(logs[low:high]) for low, high in itertools.pairwise(edges)])
    least = medians_of(np.abs(np.diff(levels))) / 2 if found else 0.0
    lasting = [
        at
        for at in range(1, len(levels))
        if max(levels[at:].min() - levels[:at].max(), levels[:at].min() - levels[at:].max()) > least
    ]
    parts = itertools.pairwise([0, *lasting, len(levels)])
    kept = {at for low, high in parts if not _comes_back(levels[low:high]) for at in range(low + 1, high)}
    return [one for at, one in enumerate(found, start=1) if at in kept.union(lasting)]


def _comes_back(levels: FloatArray) -> bool:
    """Return whether a level would wander further if its changes had random signs."""
    changes = np.append(0.0, np.diff(levels))
    if len(levels) <= _FEWEST_TO_AND_FRO:
        return False
    signs = np.random.default_rng(0).choice((-1.0, 1.0), (_SHUFFLES, len(changes)))
    further = np.cumsum(signs * changes, axis=1).std(axis=1)
    return bool(np.mean(further <= levels.std() + _LEAST_SD) <= _SURE_CHANCE)


def _refined(logs: FloatArray, low: int, place: int, high: int) -> tuple[int, float]:
    start, end = _window(low, place, high)
    clarity = _clarity(logs[None, start:end])[0]
    return start + SHORTEST + int(clarity.argmax()), float(clarity.max())


def _describe(values: FloatArray, logs: FloatArray, found: Sequence[tuple[int, float]]) -> tuple[Step, ...]:
    edges = [0, *(place for place, _ in found), len(values)]
    return tuple(
        _describe_one(values, logs, (edges[at], place, edges[at + 2]), _chance(clarity))
        for at, (place, clarity) in enumerate(found)
    )


def _describe_one(values: FloatArray, logs: FloatArray, edges: tuple[int, int, int], chance: float) -> Step:
    low, place, high = edges
    change, least, most = _interval(logs, low, place, high)
    # Outliers stand at the level of their neighbours here too, so that the levels differ by the ratio.
    kept = np.exp(logs + medians_of(np.log(values)))
    return Step(
        place=place,
        before=_stretch(kept[low:place]),
        after=_stretch(kept[place:high]),
        ratio=math.exp(change),
        low=math.exp(least),
        high=math.exp(most),
        chance=chance,
    )


def _interval(logs: FloatArray, low: int, place: int, high: int) -> tuple[float, float, float]:
    start, end = _window(low, place, high)
    model, at = _drifts(end - start), place - start - SHORTEST
    squares, steps = (fitted[0] for fitted in model.fit(logs[None, start:end]))
    left = np.maximum(squares - steps[:, at] ** 2, model.least)
    quantile = student_quantile(model.length - 2, 0.05)
    errors = model.errors[:, place - start - 1]
    changes = steps[:, at] * errors
    halves = quantile * np.sqrt(left / (model.length - 2)) * errors
    penalised = left * model.penalties
    suits = penalised <= penalised.min() * _AS_WELL ** (2 / (model.length - 1))
    change = float(changes[penalised.argmin()])
    return change, float((changes - halves)[suits].min()), float((changes + halves)[suits].max())


def _stretch(values: FloatArray) -> Stretch:
    return Stretch(mean=float(values.mean()), sd=float(values.std(ddof=1)), runs=len(values))


def _is_likelier(
    logs: FloatArray, low: int, place: int, high: int, *, doubtful: IntArray, threshold: float
) -> bool:
    start, end = _window(low, place, high)
    beside = doubtful[(start < doubtful) & (doubtful < end)]
    if not len(beside):
        return True
    clarity = _clarity(logs[None, start:end], 1)[0]
    return bool(clarity[place - start - 1] - clarity[beside - start - 1].max() >= threshold)


def _doubtful(sessions: Sequence[Hashable]) -> IntArray:
    numbers: dict[Hashable, int] = {}
    codes = np.array([numbers.setdefault(session, len(numbers)) for session in sessions])
    places = np.arange(1, len(codes))
    first = np.sort(np.unique(codes, return_index=True)[1])
    last = len(codes) - 1 - np.sort(np.unique(codes[::-1], return_index=True)[1])
    before = (first[:_SESSIONS] < places[:, None]).sum(axis=1)
    after = (last[:_SESSIONS] >= places[:, None]).sum(axis=1)
    bridged = np.zeros(len(places), dtype=bool)
    # Where a side has fewer than three sessions, these are the first or the last ones.
    for code in {*codes[first[: _SESSIONS - 1]], *codes[last[: _SESSIONS - 1]]}:
        earlier = np.cumsum(codes == code)
        bridged |= np.minimum(earlier[:-1], earlier[-1] - earlier[:-1]) >= SHORTEST
    is_doubtful = (codes[1:] != codes[:-1]) & (np.minimum(before, after) < _SESSIONS) & ~bridged
    return np.asarray(places[is_doubtful])


def _exact_steps(values: FloatArray) -> tuple[Step, ...]:
    """Return where one value that at least three runs repeat gives way to another such."""
    edges = np.concatenate([[0], np.flatnonzero(np.diff(values)) + 1, [len(values)]])
    stretches = [
        (int(start), float(values[start]))
        for start, end in itertools.pairwise(edges)
        if end - start >= _SHORTEST_EXACT
    ]
    changes = [
        (start, before, after)
        for (_, before), (start, after) in itertools.pairwise(stretches)
        if before != after
    ]
    bounds = [0, *(start for start, _, _ in changes), len(values)]
    return tuple(
        Step(
            place=place,
            before=_stretch(values[bounds[at] : place]),
            after=_stretch(values[place : bounds[at + 2]]),
            ratio=(ratio := after / before if before else math.inf),
            low=ratio,
            high=ratio,
            chance=0.0,
        )
        for at, (place, before, after) in enumerate(changes)
    )


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
    """Return the levels of runs x benchmarks without what the others of the same runs have in common."""
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
    off, factor = logs, np.zeros(len(logs))
    for _ in range(_ROUNDS):
        off = logs - _row_medians((logs - factor[:, None]).T)
        before, factor = factor, np.nan_to_num(_row_medians(off))
        if np.array_equal(before, factor):
            break
    return off


def _row_medians(table: FloatArray) -> FloatArray:
    ordered = _ordered(table)
    rows, counts = np.arange(len(table)), np.isfinite(table).sum(axis=1)
    return np.asarray((ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2)


def _ordered(table: FloatArray) -> FloatArray:
    return np.column_stack([np.sort(table, axis=1), np.full(len(table), np.nan)])


def _medians_of_others(table: FloatArray) -> FloatArray:
    ordered, ranks = _ordered(table), np.argsort(np.argsort(table, axis=1), axis=1)
    others = np.isfinite(table).sum(axis=1, keepdims=True) - 1
    lower, upper = (others - 1) // 2, others // 2
    below = np.take_along_axis(ordered, lower + (lower >= ranks), axis=1)
    above = np.take_along_axis(ordered, upper + (upper >= ranks), axis=1)
    return np.where(others >= OTHERS, (below + above) / 2, np.nan)


def _followed(off: FloatArray, factor: FloatArray) -> tuple[FloatArray, float]:
    known = np.flatnonzero(np.isfinite(factor))
    if len(off) < 2 or 2 * len(known) < len(off):  # noqa: PLR2004 (a run alone has not moved)
        return np.zeros(len(off)), 0.0
    whole = np.interp(np.arange(len(off)), known, factor[known])
    whole -= medians_of(whole)
    return whole, _slope(off, whole)


def _slope(off: FloatArray, factor: FloatArray) -> float:
    moves, follows = (np.concatenate([one[lag:] - one[:-lag] for lag in _APART]) for one in (factor, off))
    moved = np.abs(moves) > _MOVED * medians_of(np.abs(np.diff(factor)))
    if not moved.any():
        return 0.0
    weights = np.abs(moves[moved])
    slopes = np.append(follows[moved] / moves[moved], 1.0)
    weights = np.append(weights, _AS_OTHERS * weights.sum())
    order = np.argsort(slopes)
    sums = np.cumsum(weights[order])
    slope = float(slopes[order][np.searchsorted(sums, sums[-1] / 2)])
    return min(max(slope, 0.0), _STEEPEST)
