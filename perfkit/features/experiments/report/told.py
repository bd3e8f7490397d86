"""Puts an effect into words: its change, interval and verdict; and a mean with its scatter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from perfkit.features.experiments.effects import Contrast, Effect, main_effects
from perfkit.features.experiments.records import (
    ACCURACY,
    SAMPLE_TIME,
    TENSOR_PEAK,
    ExperimentRecord,
    Level,
    Response,
    level_text,
)
from perfkit.features.experiments.report.summary import failures, summary_of, told_response
from perfkit.model.comparisons import Estimate, TimedVerdict
from perfkit.report.gate.wording import change_text, interval_text
from perfkit.units import human_bytes

_INTERACTIONS: Mapping[TimedVerdict, str] = {
    "REGRESSED": "worse there",
    "IMPROVED": "better there",
    "UNCHANGED": "the same there",
}
_DIGITS = 3
_MOST_DIGITS = 5
_SCALES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")),
    "B": ((1 << 30, " GiB"), (1 << 20, " MiB"), (1 << 10, " KiB"), (1, " B")),
}
_IN_PERCENT = ((0.01, " %"),)
_AS_IT_IS = ((1.0, ""),)


@dataclass(frozen=True, kw_only=True)
class ToldEffect:
    """An effect in words."""

    title: str
    change: str
    interval: str
    verdict: str


def told_effect(effect: Effect) -> ToldEffect:
    """Return an effect in words; an effect on the time of a sample is told of samples per second."""
    title, estimate, verdict = told_response(effect.response).title, told_estimate(effect), _verdict(effect)
    if estimate is None:
        change = interval = "-"
    elif effect.response.scale == "difference":
        change, interval = _difference(effect.response, estimate)
    else:
        change = change_text(estimate)
        interval = "exact" if effect.confidence is None else interval_text(estimate)
    return ToldEffect(title=title, change=change, interval=interval, verdict=verdict)


def told_estimate(effect: Effect) -> Estimate | None:
    """Return the ratio that is shown, for times of a sample that of their rates; None where not measured."""
    if effect.value is None or effect.low is None or effect.high is None:
        return None
    value, low, high = effect.value, effect.low, effect.high
    if effect.response == SAMPLE_TIME:
        value, low, high = _inverse(value), _inverse(high), _inverse(low)
    return Estimate(
        ratio=value,
        low=low,
        high=high,
        confidence=effect.confidence or 1.0,
        launches=effect.blocks,
        launch_sd=None,
    )


def contrast_text(contrast: Contrast) -> str:
    """Return the levels that are compared: "precision: default → bf16"."""
    return f"{contrast.factor}: {level_text(contrast.reference)} → {level_text(contrast.level)}"


def levels_text(levels: Mapping[str, Level]) -> str:
    """Return levels as a variant's name has them: "batch_size=2, workers=0"."""
    return ", ".join(f"{factor}={level_text(level)}" for factor, level in levels.items())


def telling_response(effects: Sequence[Effect]) -> Response | None:
    """Return the time that matters most, or None where no time was measured."""
    found = main_effects(effects)
    return found[0].response if found else None


def _verdict(effect: Effect) -> str:
    if effect.value is None:
        return "not measured" if effect.left_out and not effect.blocks else "too few blocks"
    if effect.verdict is None:
        return _direction(effect)
    if effect.contrast.kind == "interaction":
        return _INTERACTIONS.get(effect.verdict, effect.verdict)
    return effect.verdict


def _direction(effect: Effect) -> str:
    """Return an interval of differences in words."""
    low, high = effect.low or 0.0, effect.high or 0.0
    if math.isnan(low) or math.isnan(high):
        return "no number"
    if low == high == 0:
        return "the same"
    return "higher" if low > 0 else "lower" if high < 0 else "may be the same"


def _difference(response: Response, estimate: Estimate) -> tuple[str, str]:
    if response == ACCURACY:
        value, low, high = (100 * limit for limit in (estimate.ratio, estimate.low, estimate.high))
        return f"{value:+.1f} points", f"{low:+.1f} to {high:+.1f}"
    return f"{estimate.ratio:+.3g}", f"{estimate.low:+.3g} to {estimate.high:+.3g}"


def _inverse(value: float) -> float:
    return 1 / value if value else math.inf


def cell_text(
    record: ExperimentRecord, variant: str, response: Response, *, spread: Literal["sd", "half_width"] = "sd"
) -> str:
    """Return a variant's mean with a spread, its count, or the words that say why there is neither."""
    if response == TENSOR_PEAK and variant in record.fingerprints:
        return human_bytes(record.fingerprints[variant].tensor_peak)
    summary = summary_of(record, variant, response)
    if summary is not None:
        return mean_text(response, summary.mean, getattr(summary, spread))
    return next((failure.words for failure in failures(record) if failure.variant == variant), "-")


def mean_text(response: Response, mean: float, spread: float | None = None) -> str:
    """Return "53.8 ± 1.2 s": a mean with its unit, and three digits or as many as its spread needs."""
    if not math.isfinite(mean):
        return str(mean)
    scales = _IN_PERCENT if response == ACCURACY else _SCALES.get(response.unit, _AS_IT_IS)
    scale, unit = next((one for one in scales if abs(mean) >= one[0]), scales[-1])
    value, scatter = mean / scale, (spread or 0.0) / scale
    wanted = max(_places(value, _DIGITS), _places(scatter, 1))
    places = max(min(wanted, _places(value, _MOST_DIGITS)), 0)
    return f"{value:,.{places}f}{'' if spread is None else f' ± {scatter:,.{places}f}'}{unit}"


def _places(value: float, digits: int) -> int:
    return digits - 1 - math.floor(math.log10(abs(value))) if value else 0
