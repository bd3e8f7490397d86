"""Draws a trend as a picture that needs no script: a small one for a table, and one to link from a text."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.features.site.series import Series, band, is_undone, state_of, status_words
from perfkit.model.history import ChangePoint, CommitFacts
from perfkit.report.console import visible
from perfkit.report.history_wording import date_text, metric_title, ratio_text, short_sha, value_text
from perfkit.report.palette import LIGHT

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = Path(__file__).with_name("picture.svg.j2")
_WIDTH, _HEIGHT = 760, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 22, 66, 34
_SMALL_WIDTH, _SMALL_HEIGHT = 132, 30
# More runs than these are drawn by what several of them have in common.
_COLUMNS, _SMALL_COLUMNS = 320, 60
# Runs are drawn as dots while there is room between them.
_MOST_DOTS = 80
# An axis covers at least this share of the values: scatter of half a percent must not look like mountains.
_LEAST_RANGE, _SMALL_LEAST_RANGE = 0.04, 0.1
_FREE = 0.08
_TICKS = 6


@dataclass(frozen=True, kw_only=True)
class _Column:
    """Some neighbouring runs: the middle of their places, the mean of their levels, and what all cover."""

    place: float
    level: float
    low: float
    high: float


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


def sparkline(series: Series) -> Sparkline:
    """Return the small picture of a series."""
    columns = _columns(series, _SMALL_COLUMNS)
    frame = _frame(
        columns, len(series.order), (2, 3, _SMALL_WIDTH - 6, _SMALL_HEIGHT - 6), _SMALL_LEAST_RANGE
    )
    last = columns[-1]
    return Sparkline(
        width=_SMALL_WIDTH,
        height=_SMALL_HEIGHT,
        line=_path((frame.x(column.place), frame.y(column.level)) for column in columns),
        end=(frame.x(last.place), frame.y(last.level)),
        steps=tuple((frame.x(place), step.worse) for step, place in _shown_steps(series)),
    )


def trend_picture(series: Series, commits: Mapping[str, CommitFacts]) -> str:
    """Return the picture of a series as SVG, the same for the same records; it loads nothing."""
    columns = _columns(series, _COLUMNS)
    area = (_LEFT, _TOP, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM)
    frame = _frame(columns, len(series.order), area, _LEAST_RANGE)
    upper = [(frame.x(column.place), frame.y(column.high)) for column in columns]
    lower = [(frame.x(column.place), frame.y(column.low)) for column in reversed(columns)]
    trend, last = series.last
    drawn = _template().render(
        width=_WIDTH,
        height=_HEIGHT,
        frame=frame,
        colours=LIGHT,
        title=visible(series.benchmark),
        value=value_text(trend.levels[last], series.metric),
        subtitle=f"{metric_title(series.metric)}: {status_words(series, state_of(series), commits)}",
        band=f"{_path([*upper, *lower])}Z",
        line=_path((frame.x(column.place), frame.y(column.level)) for column in columns),
        dots=[
            (frame.x(column.place), frame.y(column.level))
            for column in (columns if len(columns) <= _MOST_DOTS else columns[-1:])
        ],
        ticks=[(frame.y(value), value_text(value, series.metric)) for value in _ticks(frame.low, frame.high)],
        marks=list(_marks(series, frame)),
        ends=(_end_text(series, 0, commits), _end_text(series, -1, commits)),
    )
    return f"{drawn}\n"


@functools.cache
def _template() -> Template:
    """Return the template of a picture, which takes longer to compile than to fill."""
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))


def _columns(series: Series, most: int) -> list[_Column]:
    """Return the runs of a series, or as many groups of neighbours as have room."""
    runs = [(series.trends[number], place) for number, place in series.order]
    count = len(runs)
    edges = [round(number * count / min(count, most)) for number in range(min(count, most) + 1)]
    found = []
    for start, end in itertools.pairwise(edges):
        levels = [trend.levels[place] for trend, place in runs[start:end]]
        bands = [band(trend, place) for trend, place in runs[start:end]]
        found.append(
            _Column(
                place=(start + end - 1) / 2,
                level=math.fsum(levels) / len(levels),
                low=min(low for low, _ in bands),
                high=max(high for _, high in bands),
            )
        )
    return found


def _frame(
    columns: Sequence[_Column], places: int, area: tuple[float, float, float, float], least: float
) -> _Frame:
    """Return a frame for all levels; bands widen it only up to their range, so that none can fill it."""
    low, high = (chosen(column.level for column in columns) for chosen in (min, max))
    reach = max(high - low, least * max(abs(high), abs(low)) / 2, 1e-300)
    bottom = max(min(column.low for column in columns), low - reach)
    top = min(max(column.high for column in columns), high + reach)
    lacking = max(0.0, least * max(abs(high), abs(low), 1e-300) - (top - bottom)) / 2
    free = _FREE * (top - bottom + 2 * lacking)
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


def _shown_steps(series: Series) -> Iterator[tuple[ChangePoint, int]]:
    """Yield the steps that nobody set aside, each with its place among all runs."""
    places = {key: place for place, key in enumerate(series.order)}
    for placed in series.placed:
        if placed.point.state != "ignored":
            yield placed.point, places[placed.trend, placed.point.place]


def _marks(series: Series, frame: _Frame) -> Iterator[Mark]:
    """Yield the marks of steps; a label that would cover the one before it is left out."""
    free_from = -math.inf
    for step, place in _shown_steps(series):
        x = frame.x(place - 0.5)
        at_end = x > frame.left + frame.width - 70
        text = f"{'▲' if step.ratio > 1 else '▼'} {ratio_text(step.ratio)}"
        has_room = x - (60 if at_end else 0) >= free_from
        quiet = not step.is_open or is_undone(step, series.current)
        yield Mark(
            x=x,
            text=text if has_room else "",
            colour=LIGHT["dim" if quiet else "worse" if step.worse else "better"],
            anchor="end" if at_end else "start",
            y=frame.top - 5,
        )
        if has_room:
            free_from = x + 66


def _end_text(series: Series, end: int, commits: Mapping[str, CommitFacts]) -> str:
    number, place = series.order[end]
    sha = series.trends[number].commits[place]
    facts = commits.get(sha)
    when = facts.time if facts is not None and facts.time else series.trends[number].recorded_at[place]
    return f"{date_text(when)} {short_sha(sha)}"


def _path(points: Iterator[tuple[float, float]] | Sequence[tuple[float, float]]) -> str:
    return "".join(f"{'L' if number else 'M'}{x:g} {y:g}" for number, (x, y) in enumerate(points))


def _ticks(low: float, high: float) -> list[float]:
    """Return round values within a range, about four."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough)
    first = math.ceil(low / step)
    return [number * step for number in range(first, math.floor(high / step) + 1)]
