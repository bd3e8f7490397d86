"""Where a ratio that changes with a size passes through one."""

from __future__ import annotations

import math


def crossing(low: tuple[float, float], high: tuple[float, float]) -> float | None:
    """Return the size at which the line between two (size, ratio) points crosses a ratio of one.

    The line is straight on logarithmic scales of both. None where both points lie on one side, or a size is
    not above zero.
    """
    (below, first), (above, second) = low, high
    if below <= 0 or above <= 0 or math.log(first) * math.log(second) >= 0:
        return None
    share = math.log(first) / (math.log(first) - math.log(second))
    return math.exp(math.log(below) + share * (math.log(above) - math.log(below)))
