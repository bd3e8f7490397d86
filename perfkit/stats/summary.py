"""Summaries of a sample: mean, standard deviation, and ratios of paired samples."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from perfkit.model import Outcome, Summary
from perfkit.model.change_log import Ratio


def summarise(values: Sequence[float]) -> Summary | None:
    """Return the summary of ``values``, or None where there are none."""
    if not values:
        return None
    return Summary(
        n=len(values),
        mean=statistics.fmean(values),
        sd=_deviation(values) if len(values) > 1 else None,
        median=statistics.median(values),
    )


def summary_of(outcome: Outcome) -> Summary | None:
    """Return the summary of an outcome's values, or that which it has in their place; None without either."""
    return outcome.summary or summarise(outcome.values)


def _deviation(values: Sequence[float]) -> float:
    moved = [value - values[0] for value in values]
    mean = statistics.fmean(moved)
    return math.hypot(*(value - mean for value in moved)) / math.sqrt(len(values) - 1)


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Ratio | None:
    """Return the geometric mean of head / base over (base, head) pairs, or None where there are none."""
    if not pairs:
        return None
    logs = [math.log(head) - math.log(base) for base, head in pairs]
    value = math.exp(statistics.fmean(logs))
    spread = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else None
    return Ratio(value=value, standard_error=None if spread is None else value * spread)


def crossing(low: tuple[float, float], high: tuple[float, float]) -> float | None:
    """Return the size at which the line between two (size, ratio) points crosses a ratio of one."""
    (below, first), (above, second) = low, high
    if below <= 0 or above <= 0 or math.log(first) * math.log(second) >= 0:
        return None
    share = math.log(first) / (math.log(first) - math.log(second))
    return math.exp(math.log(below) + share * (math.log(above) - math.log(below)))
