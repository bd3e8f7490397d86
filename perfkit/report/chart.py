"""The one chart maker: ratios with intervals, and trends over commits, as SVG that loads nothing."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from perfkit.model.comparisons import Estimate, Verdict
from perfkit.model.history import ChangePoint, CommitFacts, Trend
from perfkit.report.console import visible
from perfkit.report.history import date_text, metric_title, ratio_text, short_sha, value_text

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from jinja2 import Template

    FloatArray = npt.NDArray[np.float64]

NO_COLOUR = "#687082"
COLOURS: Mapping[Verdict | None, str] = {
    "REGRESSED": "#c8452f",
    "OTHER RESULT": "#c8452f",
    "IMPROVED": "#2c8a57",
    "UNCHANGED": "#4a6fa5",
    "NOT SLOWER": "#4a6fa5",
    "INCONCLUSIVE": "#b07c12",
}
# Colours of parts of a whole: neighbours differ in lightness, too.
PART_COLOURS = ("#7fb3e6", "#f2b36b", "#9fd08c", "#e79aa4", "#b9a3e3", "#e5d573", "#84cfc9", "#d6a884")
REST_COLOUR = "#c9ced6"
# Colours of pages by what they are for, on light and on dark paper.
LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "card": "#f7f8fa",
    "ink": "#1d2330",
    "dim": "#5d6577",
    "line": "#e0e4eb",
    "calm": "#4a6fa5",
    "band": "#4a6fa52e",
    "worse": "#c8452f",
    "better": "#237a4b",
    "warn": "#8f640c",
    "focus": "#1a6cd6",
}
DARK: Mapping[str, str] = {
    "paper": "#171b24",
    "card": "#1f2430",
    "ink": "#e6e8ee",
    "dim": "#a0a9ba",
    "line": "#333a48",
    "calm": "#86aee6",
    "band": "#86aee633",
    "worse": "#f28670",
    "better": "#63c98f",
    "warn": "#e3b557",
    "focus": "#7fb4ff",
}


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
    """Return rows as SVG; ratios within the ``band`` make no difference, ``ends`` name the axis' ends."""
    estimates = [row.estimate for row in rows if row.estimate is not None]
    axis = Axis.around(
        [*band, *(point for row in rows for point in row.points), *(one.ratio for one in estimates)],
        [(one.low, one.high) for one in estimates],
    )
    bottom = _TOP + row_height * len(rows)
    return _template("chart.svg.j2").render(
        title=title,
        ends=ends,
        rows=[_drawn(row, axis, _TOP + row_height * (place + 0.5)) for place, row in enumerate(rows)],
        ticks=[(_x(axis, ratio), text) for ratio, text in axis.ticks()],
        band=(_x(axis, band[0]), _x(axis, band[1])),
        legend=legend,
        one=_x(axis, 1.0),
        left=_INDENT + _LETTER * max([_FEWEST_LETTERS, *(len(row.label) for row in rows)]),
        plot=_PLOT,
        top=_TOP,
        bottom=bottom,
        height=bottom + (_BELOW if rows else 0),
    )


@functools.cache
def _template(name: str) -> Template:
    """Return a template, which takes longer to compile than to fill."""
    from jinja2 import Environment

    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return Environment(autoescape=True).from_string(text)


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
class Axis:
    """An axis from the ratio ``low`` to the ratio ``high``."""

    low: float
    high: float

    @classmethod
    def around(cls, points: Sequence[float], intervals: Sequence[tuple[float, float]]) -> Self:
        """Return an axis of all points; intervals widen it by at most the points' range at each end."""
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

    def ticks(self) -> tuple[tuple[float, str], ...]:
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

    def _factors(self, decades: Iterable[int], factors: Sequence[float]) -> tuple[tuple[float, str], ...]:
        ratios = (factor * 10.0**decade for decade in decades for factor in factors)
        return tuple((ratio, f"×{ratio:g}") for ratio in ratios if self.low <= ratio <= self.high)

    def _have_room(self, ticks: Sequence[tuple[float, str]]) -> bool:
        places = [self.share(ratio) for ratio, _ in ticks]
        return all(after - before >= _ROOM for before, after in itertools.pairwise(places))


def _in_percent(change: float) -> tuple[float, str]:
    percent = round(100 * change, 1)
    return 1 + change, f"{percent:+g} %" if percent else "0 %"


def _log(ratio: float) -> float:
    return math.log(ratio) if ratio > 0 else -math.inf


_WIDTH, _HEIGHT = 760, 250
_LEFT, _RIGHT, _ABOVE, _BOTTOM = 84, 22, 66, 34
_SMALL_WIDTH, _SMALL_HEIGHT = 132, 30
# More runs than these are drawn by what several of them have in common.
_COLUMNS, _SMALL_COLUMNS = 320, 60
# Runs are drawn as dots while there is room between them.
_MOST_DOTS = 80
# An axis covers at least this share of the values: scatter of half a percent must not look like mountains.
_LEAST_RANGE, _SMALL_LEAST_RANGE = 0.04, 0.1
_FREE_ABOVE = 0.08
# 1.96 standard errors, of 1.36 sd / sqrt(n) each, of the lower quartile of n normal values.
_QUARTILE_95 = 2.67
_MOST_TICKS = 6


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Groups of neighbouring runs: the middles of their places, their mean levels, and what they cover."""

    places: FloatArray
    levels: FloatArray
    lows: FloatArray
    highs: FloatArray


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """A rectangle of a picture, and the range of places and values that it shows."""

    left: float
    top: float
    width: float
    height: float
    places: int
    low: float
    high: float

    def x(self, place: float) -> float:
        """Return the distance from the left of a run's place."""
        share = place / (self.places - 1) if self.places > 1 else 0.5
        return round(self.left + share * self.width, 1)

    def y(self, value: float) -> float:
        """Return the distance from the top of a value; none lies outside the rectangle."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.top + (1 - min(max(share, 0.0), 1.0)) * self.height, 1)

    def xs(self, places: FloatArray) -> list[float]:
        """Return the distances from the left of runs' places."""
        shares = places / (self.places - 1) if self.places > 1 else 0 * places + 0.5
        found: list[float] = (self.left + shares * self.width).round(1).tolist()
        return found

    def ys(self, values: FloatArray) -> list[float]:
        """Return the distances from the top of values."""
        shares = (values - self.low) / (self.high - self.low)
        found: list[float] = (self.top + (1 - shares.clip(0.0, 1.0)) * self.height).round(1).tolist()
        return found


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A change point in a picture, with its label."""

    x: float
    text: str
    colour: str
    anchor: str
    y: float


@dataclass(frozen=True, kw_only=True)
class Sparkline:
    """A trend in the size of a word: its line, its newest run, and its steps as (x, whether it is a loss)."""

    width: int
    height: int
    line: str
    end: tuple[float, float]
    steps: tuple[tuple[float, bool], ...]


@dataclass(frozen=True, kw_only=True)
class ShownTrend:
    """The columns of runs, the first and the last of them, and change points.

    ``ends`` are (trend, place), ``steps`` (point, place among the runs, needs no attention).
    """

    ends: tuple[tuple[Trend, int], tuple[Trend, int]]
    levels: Sequence[float]
    means: Sequence[float]
    sds: Sequence[float | None]
    launches: Sequence[int]
    steps: Sequence[tuple[ChangePoint, int, bool]]

    @functools.cached_property
    def bands(self) -> FloatArray:
        """The level of each run, and the ends of its 95 % interval by the scatter of its launches."""
        import numpy as np

        levels, means, sds, launches = (
            np.array(column, dtype=np.float64)
            for column in (self.levels, self.means, self.sds, self.launches)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            halves = levels * np.minimum(_QUARTILE_95 / np.sqrt(launches) * sds / means, 1.0)
        # One launch has no scatter.
        halves[(launches < 2) | (means == 0) | np.isnan(sds)] = 0.0  # noqa: PLR2004
        return np.array([levels, levels - halves, levels + halves])

    def columns(self, most: int) -> _Columns:
        """Return the runs, or as many groups of neighbours as have room."""
        import numpy as np

        begins, ends = _groups(len(self.levels), most)
        levels, lows, highs = self.bands
        return _Columns(
            places=(begins + ends - 1) / 2,
            levels=np.add.reduceat(levels, begins) / (ends - begins),
            lows=np.minimum.reduceat(lows, begins),
            highs=np.maximum.reduceat(highs, begins),
        )


@functools.lru_cache(maxsize=16)
def _groups(count: int, most: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return where each of at most so many groups of neighbours begins and ends."""
    import numpy as np

    columns = min(count, most)
    edges = np.array([round(number * count / columns) for number in range(columns + 1)])
    return edges[:-1], edges[1:]


def sparkline(shown: ShownTrend) -> Sparkline:
    """Return the small picture of a trend."""
    columns = shown.columns(_SMALL_COLUMNS)
    area = (2, 3, _SMALL_WIDTH - 6, _SMALL_HEIGHT - 6)
    frame = _frame(columns, len(shown.levels), area, _SMALL_LEAST_RANGE)
    places, levels = frame.xs(columns.places), frame.ys(columns.levels)
    return Sparkline(
        width=_SMALL_WIDTH,
        height=_SMALL_HEIGHT,
        line=_path(places, levels),
        end=(places[-1], levels[-1]),
        steps=tuple((frame.x(place), step.worse) for step, place, _ in shown.steps),
    )


def trend_chart(shown: ShownTrend, words: str, commits: Mapping[str, CommitFacts]) -> str:
    """Return a trend as SVG, the same for the same records; ``words`` are its state."""
    columns = shown.columns(_COLUMNS)
    area = (_LEFT, _ABOVE, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _ABOVE - _BOTTOM)
    frame = _frame(columns, len(shown.levels), area, _LEAST_RANGE)
    places, levels = frame.xs(columns.places), frame.ys(columns.levels)
    upper, lower = frame.ys(columns.highs), frame.ys(columns.lows)
    line = list(zip(places, levels, strict=True))
    trend, last = shown.ends[1]
    drawn = _template("trend.svg.j2").render(
        width=_WIDTH,
        height=_HEIGHT,
        frame=frame,
        colours=LIGHT,
        title=visible(trend.benchmark),
        value=value_text(trend.levels[last], trend.metric),
        subtitle=f"{metric_title(trend.metric)}: {words}",
        band=f"{_path([*places, *places[::-1]], [*upper, *lower[::-1]])}Z",
        line=_path(places, levels),
        dots=line if len(line) <= _MOST_DOTS else line[-1:],
        ticks=[
            (frame.y(value), value_text(value, trend.metric))
            for value in _round_values(frame.low, frame.high)
        ],
        marks=list(_marks(shown.steps, frame)),
        ends=tuple(_end_text(*end, commits) for end in shown.ends),
    )
    return f"{drawn}\n"


def _frame(columns: _Columns, places: int, area: tuple[float, float, float, float], least: float) -> _Frame:
    """Return a frame for all levels; bands widen it only up to their range, so that none can fill it."""
    low, high = float(columns.levels.min()), float(columns.levels.max())
    reach = max(high - low, least * max(abs(high), abs(low)) / 2, 1e-300)
    bottom = max(float(columns.lows.min()), low - reach)
    top = min(float(columns.highs.max()), high + reach)
    lacking = max(0.0, least * max(abs(high), abs(low), 1e-300) - (top - bottom)) / 2
    free = _FREE_ABOVE * (top - bottom + 2 * lacking)
    left, start, width, height = area
    return _Frame(
        left=left,
        top=start,
        width=width,
        height=height,
        places=places,
        low=bottom - lacking - free,
        high=top + lacking + free,
    )


def _marks(steps: Iterable[tuple[ChangePoint, int, bool]], frame: _Frame) -> Iterator[Mark]:
    """Yield the marks of steps; a label that would cover the one before it is left out."""
    free_from = -math.inf
    for step, place, quiet in steps:
        x = frame.x(place - 0.5)
        at_end = x > frame.left + frame.width - 70
        has_room = x - (60 if at_end else 0) >= free_from
        yield Mark(
            x=x,
            text=f"{'▲' if step.ratio > 1 else '▼'} {ratio_text(step.ratio)}" if has_room else "",
            colour=LIGHT["dim" if quiet else "worse" if step.worse else "better"],
            anchor="end" if at_end else "start",
            y=frame.top - 5,
        )
        if has_room:
            free_from = x + 66


def _end_text(trend: Trend, place: int, commits: Mapping[str, CommitFacts]) -> str:
    sha = trend.commits[place]
    facts = commits.get(sha)
    when = facts.time if facts is not None and facts.time else trend.recorded_at[place]
    return f"{date_text(when)} {short_sha(sha)}"


def _path(xs: Sequence[float], ys: Sequence[float]) -> str:
    numbers = tuple(itertools.chain(*zip(xs, ys, strict=True)))
    # All numbers at once: a chart has a thousand.
    return ("L%g %g" * len(xs) % numbers).replace("L", "M", 1)


def _round_values(low: float, high: float) -> list[float]:
    """Return round values within a range, about four."""
    rough = (high - low) / _MOST_TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]
