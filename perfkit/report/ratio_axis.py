"""Computes a logarithmic axis of ratios: its range, and its ticks at round changes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

# Ticks are at least this share of the range apart.
_ROOM = 0.09
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_FACTORS = (1.0, 2.0, 5.0)
# This share of the range is left free at each end.
_FREE = 0.04


@dataclass(frozen=True, kw_only=True)
class Tick:
    """A ratio with its label: "+5 %" or "×2"."""

    ratio: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Axis:
    """An axis from the ratio ``low`` to the ratio ``high``."""

    low: float
    high: float

    @classmethod
    def around(cls, points: Sequence[float], intervals: Sequence[tuple[float, float]]) -> Self:
        """Return an axis that shows all points, and intervals up to the range of the points at each end.

        The interval of two blocks may span many powers of ten, and would leave the points no room.
        """
        logs = [math.log(point) for point in points]
        low, high = min(logs), max(logs)
        reach = high - low
        for start, end in intervals:
            low = max(min(low, _log(start)), min(logs) - reach)
            high = min(max(high, _log(end)), max(logs) + reach)
        free = _FREE * (high - low)
        return cls(low=math.exp(low - free), high=math.exp(high + free))

    def share(self, ratio: float) -> float:
        """Return the place of a ratio, 0 at the low end and 1 at the high one; none lies beyond the ends."""
        share = (_log(ratio) - math.log(self.low)) / math.log(self.high / self.low)
        return min(max(share, 0.0), 1.0)

    def ticks(self) -> tuple[Tick, ...]:
        """Return as many ticks as have room, in percent or, where the range is too large, as factors."""
        for step in _STEPS:
            steps = range(math.ceil((self.low - 1) / step), math.floor((self.high - 1) / step) + 1)
            if len(steps) <= 1 + 1 / _ROOM:
                in_percent = tuple(_in_percent(step * number) for number in steps)
                if self._have_room(in_percent):
                    return in_percent
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
        as_factors = self._factors(decades, _FACTORS)
        return as_factors if self._have_room(as_factors) else self._factors(decades, _FACTORS[:1])

    def _factors(self, decades: Iterable[int], factors: Sequence[float]) -> tuple[Tick, ...]:
        ratios = (factor * 10.0**decade for decade in decades for factor in factors)
        return tuple(
            Tick(ratio=ratio, text=f"×{ratio:g}") for ratio in ratios if self.low <= ratio <= self.high
        )

    def _have_room(self, ticks: Sequence[Tick]) -> bool:
        places = [self.share(tick.ratio) for tick in ticks]
        return all(after - before >= _ROOM for before, after in itertools.pairwise(places))


def _in_percent(change: float) -> Tick:
    percent = round(100 * change, 1)
    return Tick(ratio=1 + change, text=f"{percent:+g} %" if percent else "0 %")


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf
