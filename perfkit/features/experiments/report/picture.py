"""Draws the effects of an experiment: each row has the ratios of blocks, the interval and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.features.experiments.effects import Effect, effects_of
from perfkit.features.experiments.records import SAMPLE_TIME, ExperimentRecord
from perfkit.features.experiments.report.summary import ratios_by_block, told_response
from perfkit.features.experiments.report.told import (
    contrast_text,
    levels_text,
    telling_response,
    told_effect,
    told_estimate,
)
from perfkit.model.comparisons import Estimate
from perfkit.report.gate.wording import percent
from perfkit.report.palette import COLOURS, NO_COLOUR
from perfkit.report.ratio_axis import Axis

_TEMPLATE = Path(__file__).with_name("picture.svg.j2")
_TOP, _ROW, _BELOW, _PLOT = 74, 28, 72, 460
# A label is as wide as its letters together, and a fixed part besides.
_LETTER, _INDENT, _FEWEST_LETTERS = 7.5, 50.0, 20
# Dots of neighbouring blocks stand at different heights, so that equal ones can be told apart.
_LANES = (0, -7, 7, -4, 4)


@dataclass(frozen=True, kw_only=True)
class _Bar:
    """An interval and its estimate as places along the axis; an end beyond the axis has no cap."""

    start: float
    end: float
    estimate: float
    starts: bool
    ends: bool


@dataclass(frozen=True, kw_only=True)
class _Row:
    """An effect in the form that the template needs; ``y`` is the middle of its row."""

    label: str
    is_main: bool
    y: float
    words: str
    colour: str
    dots: tuple[tuple[float, int], ...]
    bar: _Bar | None


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """A tick of the axis with its label."""

    x: float
    text: str


def effects_picture(record: ExperimentRecord) -> str:
    """Return main and simple effects on the time that matters most as an SVG.

    It loads nothing from elsewhere. Without a time it says that none was measured.
    """
    from jinja2 import Environment

    effects = effects_of(record)
    response = telling_response(effects)
    shown = [
        effect
        for effect in _in_order(effects)
        if effect.response == response and effect.contrast.kind != "interaction"
    ]
    low, high = _margin(record, is_rate=response == SAMPLE_TIME)
    ratios = {id(effect): _ratios(record, effect) for effect in shown}
    axis = _axis(shown, [low, high, *(ratio for found in ratios.values() for ratio in found)])
    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        name=record.experiment.name,
        title=told_response(response).title if response else "no time was measured",
        ends=("fewer", "more") if response == SAMPLE_TIME else ("faster", "slower"),
        rows=[_row(effect, ratios[id(effect)], axis, place) for place, effect in enumerate(shown)],
        marks=[_Mark(x=_x(axis, tick.ratio), text=tick.text) for tick in axis.ticks()],
        band=(_x(axis, low), _x(axis, high)),
        margin=percent(record.experiment.margin),
        confidence=percent(1 - record.experiment.alpha),
        one=_x(axis, 1.0),
        left=_INDENT + _LETTER * max([_FEWEST_LETTERS, *(len(_label(effect)) for effect in shown)]),
        plot=_PLOT,
        top=_TOP,
        bottom=_TOP + _ROW * len(shown),
        height=_TOP + _ROW * len(shown) + (_BELOW if shown else 0),
    )


def _in_order(effects: Sequence[Effect]) -> list[Effect]:
    """Return each main effect, followed by the simple effects of the same levels."""
    contrasts = list(dict.fromkeys(contrast_text(effect.contrast) for effect in effects))
    return sorted(effects, key=lambda effect: contrasts.index(contrast_text(effect.contrast)))


def _margin(record: ExperimentRecord, *, is_rate: bool) -> tuple[float, float]:
    low, high = 1 - record.experiment.margin, 1 + record.experiment.margin
    return (1 / high, 1 / low) if is_rate else (low, high)


def _ratios(record: ExperimentRecord, effect: Effect) -> list[float]:
    found = ratios_by_block(record, effect)
    return [1 / ratio for ratio in found] if effect.response == SAMPLE_TIME else found


def _axis(effects: Sequence[Effect], points: Sequence[float]) -> Axis:
    estimates = [one for effect in effects if (one := told_estimate(effect)) is not None]
    return Axis.around(
        [*points, *(one.ratio for one in estimates)], [(one.low, one.high) for one in estimates]
    )


def _row(effect: Effect, ratios: Sequence[float], axis: Axis, place: int) -> _Row:
    told, estimate = told_effect(effect), told_estimate(effect)
    return _Row(
        label=_label(effect),
        is_main=effect.contrast.kind == "main",
        y=_TOP + _ROW * (place + 0.5),
        words=told.verdict if estimate is None else f"{told.change} {told.verdict}".strip(),
        colour=COLOURS.get(effect.verdict, NO_COLOUR),
        dots=tuple(_dots(ratios, axis)),
        bar=None if estimate is None else _bar(estimate, axis),
    )


def _label(effect: Effect) -> str:
    return levels_text(effect.contrast.at) or contrast_text(effect.contrast)


def _dots(ratios: Sequence[float], axis: Axis) -> Iterator[tuple[float, int]]:
    for number, ratio in enumerate(ratios):
        yield _x(axis, ratio), _LANES[number % len(_LANES)]


def _bar(one: Estimate, axis: Axis) -> _Bar:
    return _Bar(
        start=_x(axis, one.low),
        end=_x(axis, one.high),
        estimate=_x(axis, one.ratio),
        starts=one.low >= axis.low,
        ends=one.high <= axis.high,
    )


def _x(axis: Axis, ratio: float) -> float:
    return round(_PLOT * axis.share(ratio), 1)
