"""Writes the sentences around an experiment's tables, which are the same in every view."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

from perfkit.features.experiments.effects import (
    Contrast,
    Crossover,
    Effect,
    contrasts_of,
    crossovers,
    finished_blocks,
    judged_blocks,
)
from perfkit.features.experiments.records import TOTAL_TIME, ExperimentRecord, level_text
from perfkit.features.experiments.report.summary import Failure, Mistake
from perfkit.features.experiments.report.told import levels_text, telling_response
from perfkit.report.gate.wording import percent
from perfkit.units import counted

# With fewer blocks pairs of single runs cannot show how far they disagree.
_FEWEST_BLOCKS = 3


def head_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield what was run, how many of its blocks were judged, and why it stopped."""
    experiment = record.experiment
    judged, finished = judged_blocks(record), finished_blocks(record)
    yield f"experiment {experiment.name} of {experiment.target}"
    blocks = f"{judged} of {counted(finished, 'finished block')} judged, at most {experiment.blocks} planned"
    yield f"{blocks}; {f'stopped: {record.stopped}' if record.stopped else 'not stopped yet'}"


def failure_text(failure: Failure) -> str:
    """Return how a variant failed, its message, and how many of its trials had succeeded before."""
    said = f": {failure.message}" if failure.message else ""
    before = f" (after {counted(failure.succeeded, 'trial')} that did not)" if failure.succeeded else ""
    return f"{failure.variant}: {failure.words}{said}{before}"


def mistake_text(mistake: Mistake, variants: int) -> str:
    """Return a mistake and the variants that make it, or that all ``variants`` do."""
    alike = len(mistake.variants) == variants
    return f"{mistake.sentence} ({'all variants' if alike else '; '.join(mistake.variants)})"


def left_out_lines(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield a sentence on the variants that the effects leave out, where there are any."""
    names = sorted({name for effect in effects for name in effect.left_out})
    if names:
        yield f"The effects leave out what failed or was never measured: {'; '.join(names)}."


def note_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield what was left out of trials that succeeded, each once for a variant."""
    notes = Counter((trial.variant, trial.message) for trial in record.trials if trial.status == "ok")
    for (variant, message), trials in notes.items():
        if message is not None:
            yield f"{variant}: {message} ({counted(trials, 'trial')})"


def guide_text(record: ExperimentRecord) -> str:
    """Return how to read the effects."""
    experiment = record.experiment
    interactions = (
        " An interaction is the effect at that level against the effect at the first level."
        if len(experiment.factors) > 1
        else ""
    )
    return (
        "Changes are of the level against the first level of its factor, within blocks. Intervals of times"
        f" hold together, at every look, with {percent(1 - experiment.alpha)} confidence; UNCHANGED lies"
        f" wholly within ±{percent(experiment.margin)}; what is exact was counted.{interactions}"
    )


def crossover_sentences(record: ExperimentRecord, effects: Sequence[Effect]) -> Iterator[str]:
    """Yield sentences on the size from which, or up to which, a level pays in the time that matters most."""
    response = telling_response(effects)
    if response is not None:
        yield from map(_sentence, crossovers(record.experiment, effects, response))


def _sentence(crossing: Crossover) -> str:
    size = f"{float(f'{crossing.size:.2g}'):g}"
    where = (
        f"up to {crossing.along} about {size}"
        if crossing.better_below
        else f"from {crossing.along} about {size} on"
    )
    rest = f", at {levels_text(crossing.at)}" if crossing.at else ""
    certain = "" if crossing.certain else "; not certain: at one of these it may make no difference"
    return (
        f"{crossing.factor}={level_text(crossing.level)} pays {where}{rest}"
        f" (between {crossing.below:g} and {crossing.above:g}{certain})"
    )


def single_run_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield how far single runs disagree on total time, and how much their place in a block mattered.

    Numbers taken by hand disagree for these reasons. With fewer than three blocks nothing is said.
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
    """Return the ratio of every run of one variant to every run of the other."""
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
    """Yield how long the last run of a block took against the first, on average over blocks."""
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
