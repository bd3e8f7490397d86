"""Drift of a trend: a level that rises little by little, beyond what a wandering machine explains.

The runs are compared under the local level model of ``change_points`` with and without a rise, each with the
random walk and the differences between sessions that suit it best. The rise may take all of the trend or part
of it, with level ground before and after. A trend that wanders explains its own rise, so only one that rises
more evenly than it wanders is a drift.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from perfkit.stats.change_points import SHORTEST, FloatArray, medians_of
from perfkit.stats.interval import student_quantile

# Fewer runs than a step needs cannot show a drift either.
FEWEST = 12
# More points than these add little; runs are put together by medians.
_MOST_POINTS = 48
# The sd of the walk from run to run, and that between sessions, in parts of the sd of single runs.
_WALKS = (0.0, 0.1, 0.2, 0.4, 0.8, 2.0, 8.0)
_SESSIONS = (0.0, 0.5, 1.0, 2.0)
# How many runs a rise may take; its middle has as many on either side as a step needs.
_RISES = (2, 3, 4, 6, 8, 12, 16, 24, 32)
# At most about one in a hundred simulated trends of 100 runs of identical code has so clear a drift.
_SURE = 15.0
# A rise in part of a trend has to be clearer by this: a walk has many parts to rise in.
_DOUBT_OF_PARTS = 11.0
# A model may be believed while the runs are this many times as likely with another one.
_AS_WELL = 10.0
_ERROR = 0.01
_SD_PER_MAD = 1.4826
_OUTLIER = 4.0
# No benchmark repeats better than to a tenth of a percent of the level.
_LEAST_SD = 0.001
# The levels at both ends are medians of this many runs.
_ENDS = 3
# The squares of a rise that is to be seen within environments add up to so much.
_LEAST_WITHIN = 0.5
# A rise is visible in a chart beyond 5 %, and beyond this many times the scatter of single runs.
_VISIBLE, _VISIBLE_SCATTER = math.log(1.05), 3.0


@dataclass(frozen=True, kw_only=True)
class Drift:
    """The rise from the first run to the last: last / first, with its interval at 99 %."""

    ratio: float
    low: float
    high: float


def find_drift(
    levels: Sequence[float] | FloatArray,
    *,
    sessions: Sequence[Hashable],
    environments: Sequence[Hashable],
    least: float,
) -> Drift | None:
    """Return the rise of a trend whose whole interval lies above 1 + ``least``, None where there is none."""
    values = np.log(np.asarray(levels, dtype=np.float64))
    if len(values) < FEWEST:
        return None
    rise = float(medians_of(values[-_ENDS:]) - medians_of(values[:_ENDS]))
    if rise <= math.log1p(least):
        return None
    points, kept = _blocks(values, environments)
    codes = _codes([sessions[place] for place in kept])
    groups = _codes([environments[place] for place in kept])
    if len(points) - len(set(groups)) < FEWEST - 1:
        return None
    model = _models(len(points), codes, groups)
    half = model.half_interval(_without_outliers(points))
    if rise - half <= math.log1p(least):
        return None
    return Drift(ratio=math.exp(rise), low=math.exp(rise - half), high=math.exp(rise + half))


def visible_rise(levels: Sequence[float] | FloatArray) -> float | None:
    """Return last level / first level where it stands out to the eye; else None."""
    values = np.log(np.asarray(levels, dtype=np.float64))
    if len(values) < FEWEST:
        return None
    scatter = _SD_PER_MAD * float(medians_of(np.abs(np.diff(values)))) / math.sqrt(2)
    rise = float(medians_of(values[-SHORTEST:]) - medians_of(values[:SHORTEST]))
    return math.exp(rise) if rise > max(_VISIBLE, _VISIBLE_SCATTER * scatter) else None


def best_place(levels: Sequence[float]) -> int:
    """Return the first of the three neighbouring runs with the lowest median that a drift may begin at."""
    last = len(levels) - FEWEST
    if last <= 0:
        return 0
    beside = np.lib.stride_tricks.sliding_window_view(np.asarray(levels), _ENDS)[: last + 1]
    return int(medians_of(beside).argmin())


def _blocks(values: FloatArray, environments: Sequence[Hashable]) -> tuple[FloatArray, list[int]]:
    size = math.ceil(len(values) / _MOST_POINTS)
    medians, kept = [], []
    for _, stretch in itertools.groupby(range(len(values)), key=environments.__getitem__):
        places = list(stretch)
        for start in range(0, len(places), size):
            block = places[start : start + size]
            medians.append(statistics.median(values[block].tolist()))
            kept.append(block[len(block) // 2])
    return np.array(medians), kept


def _codes(names: Sequence[Hashable]) -> tuple[int, ...]:
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)


def _without_outliers(points: FloatArray) -> FloatArray:
    places = np.arange(len(points))
    first, second = np.triu_indices(len(points), 1)
    slope = medians_of((points[second] - points[first]) / (second - first))
    off = points - slope * places
    off -= medians_of(off)
    sd = _SD_PER_MAD * max(
        float(medians_of(np.abs(off))), float(medians_of(np.abs(np.diff(off)))) / math.sqrt(2), _LEAST_SD
    )
    return np.asarray(slope * places + np.clip(off, -_OUTLIER * sd, _OUTLIER * sd))


@dataclass(frozen=True, kw_only=True)
class _Models:
    """The models of a walk and of sessions for this many points."""

    within: FloatArray
    penalties: FloatArray
    rises: FloatArray
    along: FloatArray
    information: FloatArray
    freedom: int

    def half_interval(self, points: FloatArray) -> float:
        least = self.freedom * _LEAST_SD**2
        squares = (self.within @ points) @ points + least
        by_rise = self.along @ points
        left = np.maximum(squares[:, None] - np.maximum(by_rise, 0.0) ** 2 / self.information, least)
        rising = left * self.penalties[:, None]
        rising[:, :-1] *= math.exp(_DOUBT_OF_PARTS / self.freedom)
        best = float(rising.min())
        clarity = self.freedom * math.log(float((squares * self.penalties).min()) / best)
        if clarity < _SURE:
            return math.inf
        suits = rising <= best * _AS_WELL ** (2 / self.freedom)
        heights = by_rise / self.information
        quantile = student_quantile(self.freedom - 1, _ERROR)
        halves = quantile * np.sqrt(left / (self.freedom - 1) / self.information)
        height = heights.flat[rising.argmin()]
        return float((np.abs(heights - height) + halves)[suits].max())


@lru_cache(maxsize=32)
def _models(count: int, sessions: tuple[int, ...], environments: tuple[int, ...]) -> _Models:
    time = np.arange(count)
    same = np.equal.outer(sessions, sessions).astype(np.float64)
    alone = len(set(sessions)) in {1, count}
    levels = np.equal.outer(environments, np.unique(environments)).astype(np.float64)
    within, logs = [], []
    for walk, session in itertools.product(_WALKS, (0.0,) if alone else _SESSIONS):
        covariance = np.eye(count) + walk**2 * np.minimum.outer(time, time) + session**2 * same
        precision = np.linalg.inv(covariance)
        weighted = precision @ levels
        inner = levels.T @ weighted
        within.append(precision - weighted @ np.linalg.solve(inner, weighted.T))
        logs.append(np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(inner)[1])
    freedom = count - levels.shape[1]
    spans = np.array(
        [
            (start, length)
            for length in _RISES
            for start in range(count - length)
            if min(start + length / 2, count - 1 - start - length / 2) >= SHORTEST
        ]
    ).reshape(-1, 2)
    parts = np.clip((time - spans[:, :1]) / spans[:, 1:], 0.0, 1.0)
    rises = np.vstack([parts, time / (count - 1)])
    # A rise from one environment to the next is theirs.
    beside = (rises @ levels / levels.sum(axis=0)) @ levels.T
    rises = rises[
        (np.square(rises - beside).sum(axis=1) > _LEAST_WITHIN) | (np.arange(len(rises)) == len(parts))
    ]
    along = rises @ np.array(within)
    return _Models(
        within=np.array(within),
        penalties=np.exp((np.array(logs) - max(logs)) / freedom),
        rises=rises,
        along=along,
        information=np.einsum("ijk,jk->ij", along, rises),
        freedom=freedom,
    )
