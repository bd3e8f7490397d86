"""Draws a small plot for each trick with its ratio at each size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.features.tricks.verdict import TrickResult, TricksReport
from perfkit.model.comparisons import Estimate
from perfkit.report.gate.wording import change_text, percent
from perfkit.report.palette import COLOURS, NO_COLOUR
from perfkit.report.ratio_axis import Axis

_TEMPLATE = Path(__file__).with_name("picture.svg.j2")
_COLUMNS = 3
_PLOT_WIDTH, _PLOT_HEIGHT = 220, 110
_LEFT, _TOP, _ACROSS, _DOWN, _BELOW = 70, 80, 310, 200, 10
# A smaller plot would leave its ticks no room.
_LEAST_MARGIN = 0.1
_Tried = tuple[TrickResult, Estimate]


@dataclass(frozen=True, kw_only=True)
class _Point:
    """The ratio at one size and its interval from ``low`` to ``high``, all of them places in the plot."""

    x: float
    y: float
    low: float
    high: float
    size: str
    words: str
    colour: str


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """A tick of the axis with its label."""

    y: float
    text: str


@dataclass(frozen=True, kw_only=True)
class _Panel:
    """A trick in the form that the template needs."""

    x: float
    y: float
    title: str
    size_means: str
    marks: tuple[_Mark, ...]
    band: tuple[float, float]
    one: float
    points: tuple[_Point, ...]


def sizes_picture(report: TricksReport) -> str | None:
    """Return an SVG of the tricks that were tried by themselves at several sizes, or None without any.

    It loads nothing from elsewhere.
    """
    swept = _swept(report)
    if not swept:
        return None
    from jinja2 import Environment

    margin = report.results[0].comparison.margin
    rows = -(-len(swept) // _COLUMNS)
    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        panels=[_panel(found, place, margin) for place, found in enumerate(swept)],
        margin=percent(margin),
        confidence=percent(1 - report.policy.alpha),
        plot_width=_PLOT_WIDTH,
        plot_height=_PLOT_HEIGHT,
        width=_LEFT + _ACROSS * _COLUMNS - (_ACROSS - _PLOT_WIDTH) + 20,
        height=_TOP + _DOWN * rows + _BELOW,
    )


def _swept(report: TricksReport) -> list[list[_Tried]]:
    by_trick: dict[str, list[_Tried]] = {}
    for one in report.results:
        if not one.case.loop and one.equivalence.equal and one.comparison.estimate is not None:
            by_trick.setdefault(one.case.trick, []).append((one, one.comparison.estimate))
    return [
        sorted(found, key=lambda tried: tried[0].case.size) for found in by_trick.values() if len(found) > 1
    ]


def _axis(estimates: Sequence[Estimate], margin: float) -> Axis:
    room = max(margin, _LEAST_MARGIN)
    points = [1 - room, 1 + room, *(one.ratio for one in estimates)]
    return Axis.around(points, [(one.low, one.high) for one in estimates])


def _panel(found: Sequence[_Tried], place: int, margin: float) -> _Panel:
    row, column = divmod(place, _COLUMNS)
    axis, case = _axis([estimate for _, estimate in found], margin), found[0][0].case
    return _Panel(
        x=_LEFT + _ACROSS * column,
        y=_TOP + _DOWN * row,
        title=case.title,
        size_means=case.size_means,
        marks=tuple(_Mark(y=_y(axis, tick.ratio), text=tick.text) for tick in axis.ticks()),
        band=(_y(axis, 1 + margin), _y(axis, 1 - margin)),
        one=_y(axis, 1.0),
        points=tuple(
            _point(one, estimate, (number + 0.5) / len(found), axis)
            for number, (one, estimate) in enumerate(found)
        ),
    )


def _point(one: TrickResult, estimate: Estimate, share: float, axis: Axis) -> _Point:
    return _Point(
        x=round(share * _PLOT_WIDTH, 1),
        y=_y(axis, estimate.ratio),
        low=_y(axis, estimate.low),
        high=_y(axis, estimate.high),
        size=str(one.case.size),
        words=change_text(estimate),
        colour=COLOURS.get(one.comparison.verdict, NO_COLOUR),
    )


def _y(axis: Axis, ratio: float) -> float:
    return round(_PLOT_HEIGHT * (1 - axis.share(ratio)), 1)
