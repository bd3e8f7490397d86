"""Which commit of a range made a step, from launches of pairs of them: by halves, each decided by a t test.

Places count the commits of a range: 0 is its beginning, the last one its end. A step at a place is made by
the commit there. One step is taken for granted; others are not sought.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from perfkit.stats.interval import student_quantile

# So many launches are made of a pair before it is judged, and so many more each time it stays open.
_FIRST, _MORE = 4, 3
_MOST_LAUNCHES = 60
# Few launches may agree by chance, so that they are taken to scatter by this much at least.
_LEAST_SD = 0.003


@dataclass(frozen=True, kw_only=True)
class MeasuredPair:
    """The launches of two places side by side: ln(head / base), one for each launch."""

    base: int
    head: int
    log_ratios: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """How many seconds it takes to open a pair of places, and to make a launch of an open one."""

    opening_s: float
    launch_s: float


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When an answer is good enough: the posterior it needs, the error of each test, the least log ratio.

    ``confirming`` is how many launches there have to be of a found place against the one before it.
    """

    confidence: float = 0.95
    alpha: float = 0.01
    least_step: float = 0.005
    most_launches: int | None = None
    confirming: int = 0


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What to measure next: so many launches of two places."""

    base: int
    head: int
    launches: int


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step that one of ``places`` made: the log ratio across them, with an interval of it."""

    places: tuple[int, ...]
    probability: float
    log_ratio: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """What was found; ``why`` says in words why it ended so."""

    steps: tuple[Step, ...]
    status: Literal["found", "no change", "undecided"]
    why: str


@dataclass(frozen=True, kw_only=True)
class _Mean:
    launches: int
    centre: float
    error: float

    def interval(self, confidence: float) -> tuple[float, float]:
        half = student_quantile(self.launches - 1, 1 - confidence) * self.error
        return self.centre - half, self.centre + half


def next_move(
    pairs: Sequence[MeasuredPair],
    *,
    weights: Sequence[float],
    unusable: Collection[int],
    costs: Costs,  # noqa: ARG001 (halves are the same whatever they cost)
    rules: Rules,
    open_pair: tuple[int, int] | None,  # noqa: ARG001 (likewise)
) -> Measure | Conclusion:
    """Return what to measure next, or what was found; ``weights`` are those of places 1 to the last."""
    last = len(weights)
    whole = _mean(pairs, 0, last)
    low, high = whole.interval(1 - rules.alpha) if whole else (-math.inf, math.inf)
    if max(abs(low), abs(high)) < rules.least_step:
        return Conclusion(steps=(), status="no change", why="both ends are equally fast")
    if whole is None or low <= 0 <= high:
        return _more(whole, 0, last, rules) or _undecided("the ends do not differ clearly")
    begin, end = 0, last
    while inner := [place for place in range(begin + 1, end) if place not in unusable]:
        middle = _middle(inner, weights, begin, end)
        half = _mean(pairs, 0, middle)
        low, high = half.interval(1 - rules.alpha) if half else (-math.inf, math.inf)
        if half is None or low <= whole.centre / 2 <= high:
            why = f"place {middle} is between both ends"
            return _more(half, 0, middle, rules) or _undecided(why)
        in_first = (half.centre > whole.centre / 2) == (whole.centre > 0)
        begin, end = (begin, middle) if in_first else (middle, end)
    found = _mean(pairs, begin, end)
    if found is None:
        return Measure(base=begin, head=end, launches=max(_FIRST, rules.confirming))
    low, high = found.interval(rules.confidence)
    places = tuple(range(begin + 1, end + 1))
    share = math.fsum(posterior(pairs, weights=weights, unusable=unusable, rules=rules)[begin:end])
    step = Step(places=places, probability=share, log_ratio=found.centre, low=low, high=high)
    return Conclusion(steps=(step,), status="found", why="no place is left between the last two")


def posterior(
    pairs: Sequence[MeasuredPair],
    *,
    weights: Sequence[float],
    unusable: Collection[int],  # noqa: ARG001 (a place that cannot be measured may have made the step)
    rules: Rules,  # noqa: ARG001 (likewise)
) -> tuple[float, ...]:
    """Return how probable it is of each place from 1 to the last that it made the step."""
    last = len(weights)
    whole = _mean(pairs, 0, last)
    size = whole.centre if whole else 0.0
    known = {(one.base, one.head) for one in pairs}
    logs = [math.log(weight) for weight in weights]
    for base, head in known if whole else ():
        mean = _mean(pairs, base, head)
        if mean is not None:
            for place in range(1, last + 1):
                expected = size if base < place <= head else 0.0
                logs[place - 1] -= ((mean.centre - expected) / mean.error) ** 2 / 2
    largest = max(logs)
    shares = [math.exp(log - largest) for log in logs]
    return tuple(share / math.fsum(shares) for share in shares)


def _mean(pairs: Sequence[MeasuredPair], base: int, head: int) -> _Mean | None:
    found = [log for one in pairs if (one.base, one.head) == (base, head) for log in one.log_ratios]
    if len(found) < _FIRST:
        return None
    sd = max(statistics.stdev(found), _LEAST_SD)
    return _Mean(launches=len(found), centre=statistics.fmean(found), error=sd / math.sqrt(len(found)))


def _more(mean: _Mean | None, base: int, head: int, rules: Rules) -> Measure | None:
    """Return the next launches of a pair, None where it has had its most."""
    if mean is None:
        return Measure(base=base, head=head, launches=_FIRST)
    if mean.launches >= (rules.most_launches or _MOST_LAUNCHES):
        return None
    return Measure(base=base, head=head, launches=_MORE)


def _undecided(why: str) -> Conclusion:
    return Conclusion(steps=(), status="undecided", why=why)


def _middle(inner: Sequence[int], weights: Sequence[float], begin: int, end: int) -> int:
    """Return the place that halves the weights between two places most evenly."""
    half = math.fsum(weights[begin:end]) / 2
    return min(inner, key=lambda place: abs(math.fsum(weights[begin:place]) - half))
