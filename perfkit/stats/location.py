"""The location of a launch: one log ratio head / base from its paired rounds.

Every candidate changes its sign when the sides are swapped, and stays the same when all values are scaled.
The median is used because it scattered least from launch to launch on recorded launches. It overlooks a
slowdown of fewer than half of the rounds. ``docs/measured/evidence.md`` has the figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Location = Callable[[Sequence[float], Sequence[float]], float]

# A call that is 20 % slower than its neighbours still counts in full, one that is twice as slow does not.
_ALWAYS_KEPT = 0.25
_KEPT_DEVIATIONS = 5.0
_DEVIATION_PER_MAD = 1.4826  # of a normal distribution
_LOWER = 0.25


def log_ratios(base: Sequence[float], head: Sequence[float]) -> FloatArray:
    """Return log(head / base) of every pair of rounds; any unit, the same for both.

    Raises:
        ValueError: there are no pairs, the lengths differ, or a value is not above zero.
    """
    below, above = np.asarray(base, dtype=np.float64), np.asarray(head, dtype=np.float64)
    if not below.size or below.shape != above.shape:
        raise ValueError(f"expected as many head as base values and at least one: {above.size}, {below.size}")
    if min(below.min(), above.min()) <= 0:
        raise ValueError("a time is not above zero")
    ratios: FloatArray = np.log(above) - np.log(below)
    return ratios


def ratio_of_means(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the log of the ratio of the sides' mean times."""
    log_ratios(base, head)
    return math.log(np.mean(head)) - math.log(np.mean(base))


def mean_log_ratio(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the mean of the paired log ratios (the geometric mean of the ratios)."""
    return float(np.mean(log_ratios(base, head)))


def median_log_ratio(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the median of the paired log ratios."""
    return float(np.median(log_ratios(base, head)))


def hodges_lehmann(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the median of all means of two paired log ratios (Hodges and Lehmann 1963)."""
    ratios = log_ratios(base, head)
    first, second = np.triu_indices(ratios.size)
    return float(np.median((ratios[first] + ratios[second]) / 2))


def ratio_of_lower_quartiles(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the log of the ratio of the sides' lower quartiles; it ignores how rounds are paired."""
    log_ratios(base, head)
    return math.log(np.quantile(head, _LOWER)) - math.log(np.quantile(base, _LOWER))


def winsorised_mean(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the mean of the paired log ratios, those far out counted as if they stood at the fence.

    The fence stands five deviations (by the median absolute deviation) from the median, and never nearer
    than 0.25: a burst of twice the time counts for less, a real slowdown of some calls counts in full.
    """
    ratios = log_ratios(base, head)
    median = np.median(ratios)
    deviation = _DEVIATION_PER_MAD * float(np.median(np.abs(ratios - median)))
    fence = max(_ALWAYS_KEPT, _KEPT_DEVIATIONS * deviation)
    return float(np.mean(np.clip(ratios, median - fence, median + fence)))


CANDIDATES: Mapping[str, Location] = MappingProxyType(
    {
        "ratio of means": ratio_of_means,
        "mean log ratio": mean_log_ratio,
        "median log ratio": median_log_ratio,
        "Hodges-Lehmann": hodges_lehmann,
        "winsorised mean": winsorised_mean,
        "ratio of lower quartiles": ratio_of_lower_quartiles,
    }
)
location: Location = median_log_ratio
