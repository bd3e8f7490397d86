"""Tests of what an interval over launches assumes: they are independent, and their order says nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

_FEWEST = 3


@dataclass(frozen=True, kw_only=True)
class Doubt:
    """What speaks against an assumption, and the probability of as much by chance, 1 if not known."""

    size: float
    p_value: float


def neighbours_alike(values: Sequence[float]) -> Doubt:
    """Return the correlation of values with the ones before them, from independent ones 0 on average.

    Its p-value is one-sided: neighbours that differ more than others make an interval too wide, never too
    narrow. The standard error of the correlation is 1 / sqrt(n) (Bartlett 1946).
    """
    middle = statistics.fmean(values) if values else 0.0
    apart = [value - middle for value in values]
    total = math.fsum(value**2 for value in apart)
    if len(values) < _FEWEST or not total:
        return Doubt(size=0.0, p_value=1.0)
    correlation = math.fsum(one * other for one, other in zip(apart[1:], apart, strict=False)) / total
    tail = statistics.NormalDist().cdf(-correlation * math.sqrt(len(values)))
    return Doubt(size=correlation, p_value=tail)


def halves_differ(first: Sequence[float], second: Sequence[float]) -> Doubt:
    """Return by how much the mean of ``first`` is above that of ``second``, with Welch's p-value (1947)."""
    from scipy.special import stdtr

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
    return Doubt(size=difference, p_value=2 * float(stdtr(degrees, -abs(difference) / error)))
