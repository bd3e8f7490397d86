"""Draws ratios and their intervals as an SVG, one row each, on a logarithmic axis.

A chart of Vega-Lite would need a browser, or a converter of 30 MB, to become a file that a document can show.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from perfkit.model.comparisons import Estimate, Verdict
from perfkit.report.palette import COLOURS, NO_COLOUR

_TEMPLATE = Path(__file__).with_name("chart.svg.j2")
_TOP, _BELOW, _PLOT = 74, 72, 460
# A label is as wide as its letters together, and a fixed part besides.
_LETTER, _INDENT, _FEWEST_LETTERS = 7.5, 50.0, 20
# Neighbouring points stand at different heights, so that equal ones do not hide each other.
_LANES = (0, -7, 7, -4, 4)
# Ticks are at least this share of the range apart.
_ROOM = 0.09
_STEPS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5)
_FACTORS = (1.0, 2.0, 5.0)
# This share of the range is left free at each end.
_FREE = 0.04


@dataclass(frozen=True, kw_only=True)
class ChartRow:
    """A row: single ratios as dots, an estimate with its interval, and words in the verdict's colour."""

    label: str
    is_main: bool
    words: str = ""
    verdict: Verdict | None = None
    estimate: Estimate | None = None
    points: Sequence[float] = ()


def interval_chart(
    rows: Sequence[ChartRow],
    *,
    title: str,
    ends: tuple[str, str] = ("faster", "slower"),
    band: tuple[float, float],
    legend: str,
    row_height: int = 28,
) -> str:
    """Return the rows as an SVG that loads nothing from elsewhere; without rows it shows the title alone.

    ``ends`` are the words at the ends of the axis; ratios within the ``band`` make no difference.
    """
    from jinja2 import Environment

    estimates = [row.estimate for row in rows if row.estimate is not None]
    axis = Axis.around(
        [*band, *(point for row in rows for point in row.points), *(one.ratio for one in estimates)],
        [(one.low, one.high) for one in estimates],
    )
    bottom = _TOP + row_height * len(rows)
    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=title,
        ends=ends,
        rows=[_drawn(row, axis, _TOP + row_height * (place + 0.5)) for place, row in enumerate(rows)],
        ticks=[(_x(axis, tick.ratio), tick.text) for tick in axis.ticks()],
        band=(_x(axis, band[0]), _x(axis, band[1])),
        legend=legend,
        one=_x(axis, 1.0),
        left=_INDENT + _LETTER * max([_FEWEST_LETTERS, *(len(row.label) for row in rows)]),
        plot=_PLOT,
        top=_TOP,
        bottom=bottom,
        height=bottom + (_BELOW if rows else 0),
    )


def _drawn(row: ChartRow, axis: Axis, y: float) -> dict[str, Any]:
    """Return a row as the template draws it; an end of an interval beyond the axis has no cap."""
    one, bar = row.estimate, None
    if one is not None:
        low, high = _x(axis, one.low), _x(axis, one.high)
        caps = [*([low] if one.low >= axis.low else []), *([high] if one.high <= axis.high else [])]
        bar = {"low": low, "high": high, "estimate": _x(axis, one.ratio), "caps": caps}
    return {
        "label": row.label,
        "is_main": row.is_main,
        "words": row.words,
        "y": y,
        "colour": COLOURS.get(row.verdict, NO_COLOUR),
        "dots": [(_x(axis, ratio), _LANES[place % len(_LANES)]) for place, ratio in enumerate(row.points)],
        "bar": bar,
    }


def _x(axis: Axis, ratio: float) -> float:
    return round(_PLOT * axis.share(ratio), 1)


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
