"""What one run of each variant would have said: why numbers taken by hand do not agree with each other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import product

from perfkit.records.experiments import TOTAL_TIME, ExperimentRecord
from perfkit.verdict.effects import Contrast, contrasts_of
from perfkit.views.experiment.told import levels_text

_FEWEST_BLOCKS = 3


def single_run_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield how far pairs of single runs disagree on total time, and what the place in a block did.

    Nothing where there are fewer than three blocks.
    """
    seconds = _seconds(record)
    for contrast in contrasts_of(record.experiment):
        if len(contrast.pairs) == 1 and contrast.kind != "interaction":
            ratios = _all_pairs(seconds, contrast)
            if len(ratios) >= _FEWEST_BLOCKS**2:
                yield _disagreement(contrast, ratios)
    yield from _order(record)


def _seconds(record: ExperimentRecord) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {}
    for trial in record.trials:
        if trial.responses.get(TOTAL_TIME.name, 0.0) > 0:
            seconds.setdefault(trial.variant, []).append(trial.responses[TOTAL_TIME.name])
    return seconds


def _all_pairs(seconds: dict[str, list[float]], contrast: Contrast) -> list[float]:
    """Return the ratio of every run of the one to every run of the other."""
    ((reference, other),) = contrast.pairs
    return [new / old for old, new in product(seconds.get(reference, []), seconds.get(other, []))]


def _disagreement(contrast: Contrast, ratios: Sequence[float]) -> str:
    at = f" at {levels_text(contrast.at)}" if contrast.at else ""
    slower = sum(ratio > 1 for ratio in ratios)
    return (
        f"One run of each, {contrast.factor} {contrast.reference} and {contrast.level}{at}, would have read"
        f" anything from {_change(min(ratios))} to {_change(max(ratios))} of total time, and slower in"
        f" {slower} of the {len(ratios)} pairs of runs that there are."
    )


def _order(record: ExperimentRecord) -> Iterator[str]:
    """Yield what runs that came last in their block took against those that came first."""
    last = len(record.experiment.variants) - 1
    typical = {variant: statistics.fmean(map(math.log, found)) for variant, found in _seconds(record).items()}
    by_place: dict[int, list[float]] = {}
    for trial in record.trials:
        seconds = trial.responses.get(TOTAL_TIME.name, 0.0)
        if seconds > 0:
            by_place.setdefault(trial.order, []).append(math.log(seconds) - typical[trial.variant])
    first, final = by_place.get(0, []), by_place.get(last, [])
    if min(len(first), len(final)) >= _FEWEST_BLOCKS and last > 0:
        ratio = math.exp(statistics.fmean(final) - statistics.fmean(first))
        yield (
            f"Runs that came last in their block took {_change(ratio)} against those that came first, each"
            " against its variant's mean; a fixed order would have given that to one of the variants."
        )


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
