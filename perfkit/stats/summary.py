"""Summaries of a sample: mean, standard deviation, and ratios of paired samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Size, mean, sample standard deviation (None for one value) and median, in the values' own unit."""

    n: int
    mean: float
    sd: float | None
    median: float


def summarise(values: Sequence[float]) -> Summary | None:
    """Return the summary of ``values``, or None where there are none."""
    if not values:
        return None
    return Summary(
        n=len(values),
        mean=statistics.fmean(values),
        sd=statistics.stdev(values) if len(values) > 1 else None,
        median=statistics.median(values),
    )


def geometric_mean_ratio(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the geometric mean of head / base over (base, head) pairs, or None where there are none.

    The geometric mean is the one that inverts when the sides are swapped (Fleming and Wallace 1986).

    Raises:
        ValueError: a value is not above zero.
    """
    if not pairs:
        return None
    return math.exp(statistics.fmean(math.log(head) - math.log(base) for base, head in pairs))
