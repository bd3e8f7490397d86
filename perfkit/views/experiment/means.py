"""A variant's mean with its scatter, in one unit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from perfkit.records.experiments import ACCURACY, TENSOR_PEAK, ExperimentRecord, Response
from perfkit.units import human_bytes
from perfkit.views.experiment.summary import failures, summary_of

_DIGITS = 3
_MOST_DIGITS = 5
_SCALES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")),
    "B": ((1 << 30, " GiB"), (1 << 20, " MiB"), (1 << 10, " KiB"), (1, " B")),
}
_IN_PERCENT = ((0.01, " %"),)
_AS_IT_IS = ((1.0, ""),)


def cell_text(
    record: ExperimentRecord, variant: str, response: Response, *, spread: Literal["sd", "half_width"] = "sd"
) -> str:
    """Return what a variant gave: its mean with a spread, a count, or in words why there is none."""
    if response == TENSOR_PEAK and variant in record.fingerprints:
        return human_bytes(record.fingerprints[variant].tensor_peak)
    summary = summary_of(record, variant, response)
    if summary is not None:
        return mean_text(response, summary.mean, getattr(summary, spread))
    return next((failure.words for failure in failures(record) if failure.variant == variant), "-")


def mean_text(response: Response, mean: float, spread: float | None = None) -> str:
    """Return "53.8 ± 1.2 s": a mean with three digits or as many as its spread needs, and the unit."""
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
