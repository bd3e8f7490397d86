"""Student's t, Fisher's F and the binomial distribution, all by the regularised incomplete beta function."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

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
