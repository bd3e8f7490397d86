"""From which of a series' values on a benchmark has warmed up.

Autotuning, the growth of the allocator and rising clocks make the first calls of a benchmark on an
accelerator differ from all later ones, by factors and for a number of calls that nobody knows beforehand.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

# The medians of so many values are compared: fewer would be moved by one slow call.
_WINDOW = 5
# A median this close to that of all that follow is settled, whatever the scatter.
_TOLERATED = 0.02
# Or one within so many of the standard errors of a window's median.
_ERRORS = 3.0
_DEVIATION_PER_MAD = 1.4826
_ERROR_OF_A_MEDIAN = 1.2533


def settled_from(
    seconds: Sequence[float],
    *,
    least_count: int = 1,
    least_s: float = 0.0,
    reserved: Sequence[float] = (),
    clocks: Sequence[float] = (),
) -> int | None:
    """Return the place of the first value that belongs to the settled ones; None where there is none yet.

    The window of values that begins there has the median of all behind it, within two hundredths or what the
    scatter of a window explains, and its first value is none that scatter does not explain. ``least_count``
    values and ``least_s`` seconds are never settled. Where ``reserved`` bytes and ``clocks`` in MHz of each
    value are given, the allocator grows no more from there on, and clocks are within two hundredths of those
    at the end.
    """
    first = max(least_count, _after(seconds, least_s), _after_growth(reserved), _after_rise(clocks))
    for place in range(first, len(seconds) - 2 * _WINDOW + 1):
        window, rest = seconds[place : place + _WINDOW], seconds[place + _WINDOW :]
        if _agree(window, rest):
            return place
    return None


def _agree(window: Sequence[float], rest: Sequence[float]) -> bool:
    """Tell whether a window is like all behind it, by its median and by its first value."""
    middle = statistics.median(rest)
    deviation = _DEVIATION_PER_MAD * statistics.median(abs(value - middle) for value in rest)
    error = _ERROR_OF_A_MEDIAN * deviation / len(window) ** 0.5
    return abs(statistics.median(window) - middle) <= max(_TOLERATED * middle, _ERRORS * error) and abs(
        window[0] - middle
    ) <= max(_TOLERATED * middle, _ERRORS * deviation)


def _after(seconds: Sequence[float], least_s: float) -> int:
    """Return the place behind which so many seconds have passed."""
    passed = itertools.accumulate(seconds)
    return next((place for place, total in enumerate(passed, start=1) if total >= least_s), len(seconds))


def _after_growth(reserved: Sequence[float]) -> int:
    grown = [place for place, (old, new) in enumerate(itertools.pairwise(reserved), start=1) if new > old]
    return grown[-1] + 1 if grown else 0


def _after_rise(clocks: Sequence[float]) -> int:
    if not clocks:
        return 0
    end = statistics.median(clocks[-_WINDOW:])
    far = [place for place, clock in enumerate(clocks) if abs(clock - end) > _TOLERATED * end]
    return far[-1] + 1 if far else 0
