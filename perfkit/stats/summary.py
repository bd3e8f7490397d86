"""Summaries of a sample, ratios of paired samples, and when a series has warmed up."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from perfkit.model import Outcome, Summary
from perfkit.model.history import Ratio


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


# The medians of this many values are compared: fewer would be moved by one slow call.
_WINDOW = 5
# A median this close to that of all that follow is warm, in spite of the scatter.
_TOLERATED = 0.02
# Or one within this many of the standard errors of a window's median.
_ERRORS = 3.0
_DEVIATION_PER_MAD = 1.4826
# Calls as long as these are compared by windows of two, since a warm-up of eleven would take many seconds.
_LONG_S, _SHORT_WINDOW = 0.15, 2
# After the first call, which may compile for minutes, no more time or calls are spent on waiting.
_MOST_S, _MOST_CALLS = 5.0, 200
_ERROR_OF_A_MEDIAN = 1.2533


def warm_from(
    seconds: Sequence[float],
    *,
    reserved: Sequence[float] = (),
    clocks: Sequence[float] = (),
    window: int = _WINDOW,
) -> int | None:
    """Return the place of the first value of a warm benchmark; None while it warms up."""
    cold = {0, *_grown(reserved), *_far_from_the_end(clocks)}
    for place in range(max(cold) + 1, len(seconds) - 2 * window + 1):
        if _agree(seconds[place : place + window], seconds[place + window :]):
            return place
    return None


@dataclass
class WarmUp:
    """Follows the first calls of a benchmark on an accelerator, until they are warm or took too long."""

    seconds: list[float] = field(default_factory=list)
    warm_from: int | None = None
    _reserved: list[float] = field(default_factory=list)
    _clocks: list[float] = field(default_factory=list)

    def add(self, seconds: float, *, reserved: float | None = None, clock: float | None = None) -> None:
        """Note one more call; after each window, check whether it is warm."""
        self.seconds.append(seconds)
        self._reserved += [] if reserved is None else [reserved]
        self._clocks += [] if clock is None else [clock]
        whole = len(self.seconds)
        if whole % self._window == 1:
            self.warm_from = warm_from(
                self.seconds,
                reserved=self._reserved if len(self._reserved) == whole else (),
                clocks=self._clocks if len(self._clocks) == whole else (),
                window=self._window,
            )

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be waited for."""
        after_first = self.seconds[1:]
        enough = sum(after_first) >= _MOST_S or len(self.seconds) >= _MOST_CALLS
        return self.warm_from is not None or enough

    @property
    def _window(self) -> int:
        after_first = self.seconds[1:]
        return _SHORT_WINDOW if after_first and statistics.median(after_first) >= _LONG_S else _WINDOW


def _agree(window: Sequence[float], rest: Sequence[float]) -> bool:
    middle = statistics.median(rest)
    deviation = _DEVIATION_PER_MAD * statistics.median(abs(value - middle) for value in rest)
    error = _ERROR_OF_A_MEDIAN * deviation / len(window) ** 0.5
    return abs(statistics.median(window) - middle) <= max(_TOLERATED * middle, _ERRORS * error) and abs(
        window[0] - middle
    ) <= max(_TOLERATED * middle, _ERRORS * deviation)


def _grown(reserved: Sequence[float]) -> list[int]:
    return [place for place, (old, new) in enumerate(itertools.pairwise(reserved), start=1) if new > old]


def _far_from_the_end(clocks: Sequence[float]) -> list[int]:
    if not clocks:
        return []
    end = statistics.median(clocks[-_WINDOW:])
    return [place for place, clock in enumerate(clocks) if abs(clock - end) > _TOLERATED * end]
