"""From which of a series' values on a benchmark has warmed up."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

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
