"""Which numbers of another tool make no sense, and what becomes of them."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterator

from perfkit.errors import UsageError
from perfkit.model import Outcome, Summary
from perfkit.units import counted, human_seconds

_FAR = 10.0
_SPREAD = 3.0
_ENOUGH = 8
# Squares of it are still numbers.
_ABSURD = 1e100
_MOST = (1 << 63) - 1


def checked(outcome: Outcome, least: float | None = None) -> tuple[Outcome, tuple[str, ...]]:
    """Return an outcome as the ledger may keep it, and a sentence for each doubt about its numbers.

    What is no measurement (no number, or a time that is not above zero) becomes an error that says so.
    ``least`` is the smallest value, where a summary stands in place of the values.

    Raises:
        UsageError: a number of loops or values is none.
    """
    for count in (outcome.loops, outcome.warmup, outcome.summary.n if outcome.summary else None):
        if count is not None and not 0 <= count <= _MOST:
            raise UsageError(f"says that there are {str(count)[:20]} loops or values, which cannot be")
    if outcome.status != "ok" or not outcome.is_measured:
        return outcome, ()
    problem = _problem(outcome)
    if problem:
        failed = dataclasses.replace(outcome, values=(), summary=None, status="error", message=problem)
        return failed, (f"{outcome.benchmark.name}: {problem}",)
    return outcome, tuple(f"{outcome.benchmark.name}: {doubt}" for doubt in _doubts(outcome, least))


def _problem(outcome: Outcome) -> str:
    """Say why an outcome's numbers cannot be kept as measured, "" where they can."""
    numbers = outcome.values or _numbers(outcome.summary)
    strange = [number for number in numbers if not (math.isfinite(number) and abs(number) < _ABSURD)]
    if strange:
        return f"{counted(len(strange), 'value')} of {len(numbers)} cannot be a measurement ({strange[0]})"
    middle = _middle(outcome)
    if outcome.metric.unit == "s" and middle <= 0:
        return f"its typical time is {middle:g} s, and a time is above zero"
    return ""


def _doubts(outcome: Outcome, least: float | None) -> Iterator[str]:
    if outcome.metric.unit != "s":
        return
    middle = _middle(outcome)
    smallest = min(outcome.values) if outcome.values else least
    not_above = sum(value <= 0 for value in outcome.values)
    if not_above:
        yield f"{counted(not_above, 'time')} of {len(outcome.values)} are not above zero"
    elif smallest is not None and smallest * _FAR < middle:
        yield (
            f"its fastest call took {human_seconds(smallest)} and its typical one {human_seconds(middle)}; "
            "were all of its CUDA kernels waited for?"
        )
    n, mean, sd = _spread(outcome)
    if sd is not None and n >= _ENOUGH and sd > _SPREAD * mean:
        yield f"its deviation ({human_seconds(sd)}) is far above its mean ({human_seconds(mean)})"


def _middle(outcome: Outcome) -> float:
    summary = outcome.summary
    if summary is None:
        return statistics.median(outcome.values)
    return summary.mean if summary.median is None else summary.median


def _spread(outcome: Outcome) -> tuple[int, float, float | None]:
    if outcome.summary is not None:
        return outcome.summary.n, outcome.summary.mean, outcome.summary.sd
    values = outcome.values
    return len(values), statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def _numbers(summary: Summary | None) -> tuple[float, ...]:
    known = () if summary is None else (summary.mean, summary.sd, summary.median)
    return tuple(number for number in known if number is not None)
