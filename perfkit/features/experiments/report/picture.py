"""Draws the effects of an experiment: each row has the ratios of blocks, the interval and the verdict."""

from __future__ import annotations

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
from perfkit.report.chart import ChartRow, interval_chart
from perfkit.report.gate.wording import percent


def effects_picture(record: ExperimentRecord) -> str:
    """Return main and simple effects on the time that matters most as an SVG.

    Each main effect is followed by the simple effects of the same levels.
    """
    effects = effects_of(record)
    response = telling_response(effects)
    is_rate = response == SAMPLE_TIME
    contrasts = list(dict.fromkeys(contrast_text(effect.contrast) for effect in effects))
    shown = sorted(
        (one for one in effects if one.response == response and one.contrast.kind != "interaction"),
        key=lambda effect: contrasts.index(contrast_text(effect.contrast)),
    )
    experiment = record.experiment
    low, high = 1 - experiment.margin, 1 + experiment.margin
    title = told_response(response).title if response else "no time was measured"
    return interval_chart(
        [_row(record, effect, is_rate=is_rate) for effect in shown],
        title=f"{experiment.name}: {title}",
        ends=("fewer", "more") if is_rate else ("faster", "slower"),
        band=(1 / high, 1 / low) if is_rate else (low, high),
        legend=(
            "Small dots are blocks; a bar is the interval around its estimate, all of them together at"
            f" {percent(1 - experiment.alpha)} confidence; the band is ±{percent(experiment.margin)} of time."
        ),
    )


def _row(record: ExperimentRecord, effect: Effect, *, is_rate: bool) -> ChartRow:
    told, estimate = told_effect(effect), told_estimate(effect)
    ratios = ratios_by_block(record, effect)
    return ChartRow(
        label=levels_text(effect.contrast.at) or contrast_text(effect.contrast),
        is_main=effect.contrast.kind == "main",
        words=told.verdict if estimate is None else f"{told.change} {told.verdict}".strip(),
        verdict=effect.verdict,
        estimate=estimate,
        points=[1 / ratio for ratio in ratios] if is_rate else ratios,
    )
