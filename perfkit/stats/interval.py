"""The location of a launch, its interval over launches, and tests of what that interval assumes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

_TINY = 1e-300
_MOST_TERMS = 10_000
_MOST_STEPS = 200


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Return I_x(a, b), by the continued fraction of DLMF 8.17.22 in Lentz's order of evaluation."""
    if not 0 < x < 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    above, below = 1.0, 1 / (1 - (a + b) / (a + 1) * x)
    fraction = below
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            below = 1 / (1 + term * below or _TINY)
            above = 1 + term / above or _TINY
            fraction *= above * below
        if abs(above * below - 1) < 1e-16:  # noqa: PLR2004 (nothing more is added)
            break
    return math.exp(front) * fraction / a


def inverse_incomplete_beta(a: float, b: float, p: float) -> float:
    """Return x with I_x(a, b) = ``p``."""
    return _root(lambda x: incomplete_beta(a, b, x) - p, 0.0, 1.0)


def student_tails(degrees: float, t: float) -> float:
    """Return the probability that Student's t is farther from zero than ``t``."""
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


@lru_cache(maxsize=1024)
def student_quantile(degrees: int, error: float) -> float:
    """Return the quantile of Student's t that both tails together exceed with probability ``error``."""
    if degrees <= 0:
        return math.inf
    high = 1.0
    while student_tails(degrees, high) > error:
        high *= 2
    return _root(lambda t: error - student_tails(degrees, t), 0.0, high)


@lru_cache(maxsize=1024)
def fisher_quantile(between: int, within: int, error: float) -> float:
    """Return the quantile of Fisher's F that is exceeded with probability ``error``."""
    x = inverse_incomplete_beta(within / 2, between / 2, error)
    return within * (1 - x) / (between * x)


def upper_bound(count: int, of: int, *, confidence: float = 0.95) -> float:
    """Return the one-sided upper bound of a probability (Clopper and Pearson 1934); 1 if nothing ran."""
    return inverse_incomplete_beta(count + 1, of - count, confidence) if count < of else 1.0


def lower_bound(count: int, of: int, *, confidence: float = 0.95) -> float:
    """Return the one-sided lower bound of a probability (Clopper and Pearson 1934); 0 if nothing ran."""
    return inverse_incomplete_beta(count, of - count + 1, 1 - confidence) if count else 0.0


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    below, above = rising(low), rising(high)
    for step in range(_MOST_STEPS):
        middle = low + (high - low) / 2 if step % 3 == 0 else (low * above - high * below) / (above - below)
        if not low < middle < high:
            middle = low + (high - low) / 2
            if not low < middle < high:
                break
        value = rising(middle)
        if value == 0:
            return middle
        if value > 0:
            high, above, below = middle, value, below / 2
        else:
            low, below, above = middle, value, above / 2
    return high if abs(above) < abs(below) else low


FloatArray = npt.NDArray[np.float64]

# A test of an assumption needs this many values.
_FEWEST = 3

# The share of the values that is left out at each end: bursts that slow whole launches would otherwise leave
# every gate undecided.
_TRIMMED = 0.1
# From this many values on they are left out. Of fewer, nearly all may agree by chance where launches have two
# states, and the one that is left out would have been the only one to show it.
TRIMMED_FROM = 20
# Zygotes count as differing below this p-value. With 0.05 hardly more biases would be noticed, and without
# any bias one comparison in twenty would rest on two or three zygotes and never be decided.
_DIFFERING = 0.001


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Centre and half-width on the log scale, and whether zygotes were the unit; one entry per series."""

    centre: FloatArray
    half_width: FloatArray
    by_zygotes: npt.NDArray[np.bool_]


def error_per_look(alpha: float, *, family: int, looks: int) -> float:
    """Return the two-sided error of one interval: ``alpha`` in equal shares to all looks and comparisons."""
    return alpha / (family * looks)


def location_interval(
    logs: npt.ArrayLike,
    zygotes: npt.ArrayLike,
    *,
    error: float,
    shared_variance: float = 0.0,
    least_sd: float = 0.0,
    trimmed_from: int = TRIMMED_FROM,
) -> Interval:
    """Return the interval for the location of log ratios at confidence 1 - ``error``."""
    values = np.asarray(logs, dtype=np.float64)
    centre, half_width = _trimmed_t(values, error, trimmed_from, least_sd)
    half_width = half_width * widening(zygotes, shared_variance)
    names, groups = np.unique(np.asarray(zygotes), return_inverse=True)
    if names.size in {1, values.shape[-1]}:
        return Interval(centre=centre, half_width=half_width, by_zygotes=np.zeros(centre.shape, dtype=bool))
    means = _group_means(values, groups)
    differ = _groups_differ(values, means, groups)
    group_centre, group_half_width = _trimmed_t(means, error, trimmed_from)
    return Interval(
        centre=np.where(differ, group_centre, centre),
        half_width=np.where(differ, group_half_width, half_width),
        by_zygotes=differ,
    )


def widening(zygotes: npt.ArrayLike, shared_variance: float) -> float:
    """Return by how much to widen an interval that takes launches with a shared variance as independent."""
    sizes = np.unique(np.asarray(zygotes), return_counts=True)[1]
    launches = int(sizes.sum())
    if launches == 1:
        return 1.0
    together = float((sizes**2).sum()) / launches
    seen = (launches - together) / (launches - 1)
    return math.sqrt((1 + shared_variance * together) / (1 + shared_variance * seen))


def degrees_of_freedom(units: int, *, trimmed_from: int = TRIMMED_FROM) -> int:
    """Return the degrees of freedom that this many values leave after trimming."""
    return units - 2 * _trimmed_from_each_end(units, trimmed_from) - 1


def _trimmed_from_each_end(units: int, trimmed_from: int) -> int:
    return int(_TRIMMED * units) if units >= trimmed_from else 0


def trimmed_variance(values: npt.ArrayLike, *, trimmed_from: int = TRIMMED_FROM) -> float:
    """Return the variance of units whose plain mean would have the standard error of the trimmed one."""
    found = np.asarray(values, dtype=np.float64)
    _, standard_error = _trimmed_mean(found, trimmed_from)
    return found.size * float(standard_error**2)


def _trimmed_t(
    values: FloatArray, error: float, trimmed_from: int, least_sd: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    units = values.shape[-1]
    if units < 2:  # noqa: PLR2004 (a deviation needs two)
        return values.mean(axis=-1), np.full(values.shape[:-1], math.inf)
    centre, standard_error = _trimmed_mean(values, trimmed_from, least_sd)
    degrees = degrees_of_freedom(units, trimmed_from=trimmed_from)
    return centre, student_quantile(degrees, error) * standard_error


def _trimmed_mean(
    values: FloatArray, trimmed_from: int, least_sd: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    units = values.shape[-1]
    cut = _trimmed_from_each_end(units, trimmed_from)
    kept = units - 2 * cut
    ordered = np.sort(values, axis=-1)
    inner = ordered[..., cut : cut + kept]
    winsorised = np.clip(ordered, inner[..., :1], inner[..., -1:])
    scale = math.sqrt((units - 1) / (kept * (kept - 1)))
    sd = np.maximum(winsorised.std(axis=-1, ddof=1), least_sd)
    return inner.mean(axis=-1), scale * sd


def _group_means(values: FloatArray, groups: npt.NDArray[np.intp]) -> FloatArray:
    return np.stack(
        [values[..., groups == group].mean(axis=-1) for group in range(groups.max() + 1)], axis=-1
    )


def log_ratios(base: Sequence[float], head: Sequence[float]) -> FloatArray:
    """Return log(head / base) of every pair of rounds; any unit, the same for both."""
    below, above = np.asarray(base, dtype=np.float64), np.asarray(head, dtype=np.float64)
    if not below.size or below.shape != above.shape:
        raise ValueError(f"expected as many head as base values and at least one: {above.size}, {below.size}")
    if min(below.min(), above.min()) <= 0:
        raise ValueError("a time is not above zero")
    ratios: FloatArray = np.log(above) - np.log(below)
    return ratios


def _groups_differ(
    values: FloatArray, means: FloatArray, groups: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    between_degrees = means.shape[-1] - 1
    within_degrees = values.shape[-1] - means.shape[-1]
    fitted = means[..., groups]
    between = ((fitted - values.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1) / between_degrees
    within = ((values - fitted) ** 2).sum(axis=-1) / within_degrees
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(between / within > fisher_quantile(between_degrees, within_degrees, _DIFFERING))


def location(base: Sequence[float], head: Sequence[float]) -> float:
    """Return the location of a launch: the median of the log ratios of its paired rounds."""
    return float(np.median(log_ratios(base, head)))


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """Evidence against an assumption, and the probability of as much by chance (1 if not known)."""

    size: float
    p_value: float


def neighbours_alike(values: Sequence[float]) -> Doubt:
    """Return the correlation of values with the ones before them, from independent ones 0 on average."""
    middle = statistics.fmean(values) if values else 0.0
    off = [value - middle for value in values]
    total = math.fsum(value**2 for value in off)
    if len(values) < _FEWEST or not total:
        return Doubt(size=0.0, p_value=1.0)
    correlation = math.fsum(one * other for one, other in zip(off[1:], off, strict=False)) / total
    tail = statistics.NormalDist().cdf(-correlation * math.sqrt(len(values)))
    return Doubt(size=correlation, p_value=tail)


def halves_differ(first: Sequence[float], second: Sequence[float]) -> Doubt:
    """Return by how much the mean of ``first`` is above that of ``second``, with Welch's p-value (1947)."""
    if min(len(first), len(second)) < _FEWEST:
        return Doubt(size=0.0, p_value=1.0)
    difference = statistics.fmean(first) - statistics.fmean(second)
    parts = [statistics.variance(half) / len(half) for half in (first, second)]
    error = math.sqrt(sum(parts))
    if not error:
        return Doubt(size=difference, p_value=float(difference == 0))
    degrees = sum(parts) ** 2 / sum(
        part**2 / (len(half) - 1) for part, half in zip(parts, (first, second), strict=True)
    )
    return Doubt(size=difference, p_value=student_tails(degrees, difference / error))
