"""An experiment's trials and effects summed up, arranged for tables, and in words."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from perfkit.features.experiments.effects import (
    Contrast,
    Crossover,
    Effect,
    cells_of,
    contrasts_of,
    crossovers,
    finished_blocks,
    judged_blocks,
    main_effects,
    mean_change,
)
from perfkit.features.experiments.records import (
    ACCURACY,
    RESPONSES,
    SAMPLE_TIME,
    TENSOR_PEAK,
    TOTAL_TIME,
    ExperimentRecord,
    Level,
    Response,
    Trial,
    level_text,
    response_named,
)
from perfkit.model import Status
from perfkit.model.comparisons import Estimate, TimedVerdict
from perfkit.report.gate.wording import change_text, interval_text, percent
from perfkit.stats.interval import student_quantile
from perfkit.units import counted, human_bytes

# People compare samples per second instead of seconds per sample.
SAMPLE_RATE = Response(name="sample_rate", title="samples per second", unit="1/s", better="higher")
_MEAN_ERROR = 0.05
_FAILED_IN_WORDS: dict[Status, str] = {
    "oom": "out of memory",
    "timeout": "took longer than its limit",
    "skipped": "skipped",
}
_INTERACTIONS: Mapping[TimedVerdict, str] = {
    "REGRESSED": "worse there",
    "IMPROVED": "better there",
    "UNCHANGED": "the same there",
}
_DIGITS, _MOST_DIGITS = 3, 5
_SCALES: Mapping[str, tuple[tuple[float, str], ...]] = {
    "s": ((1.0, " s"), (1e-3, " ms"), (1e-6, " us"), (1e-9, " ns")),
    "B": ((1 << 30, " GiB"), (1 << 20, " MiB"), (1 << 10, " KiB"), (1, " B")),
}
_IN_PERCENT = ((0.01, " %"),)
_AS_IT_IS = ((1.0, ""),)
# With fewer blocks pairs of single runs cannot show how far they disagree.
_FEWEST_BLOCKS = 3


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The mean over blocks, with its standard deviation and the half-width of its 95 % interval.

    These are None of a single block, and where a trial gave what is no finite number.
    """

    blocks: int
    mean: float
    sd: float | None
    half_width: float | None


@dataclass(frozen=True, kw_only=True)
class EffectText:
    """An effect in words."""

    title: str
    change: str
    interval: str
    verdict: str


@dataclass(frozen=True, kw_only=True)
class EffectTable:
    """Effects of one kind by the two levels that are compared, each with a label."""

    title: str
    groups: Mapping[str, Sequence[tuple[str, Effect]]]


def shown_response(response: Response) -> Response:
    """Return the response that is shown in place of another: samples per second instead of their time."""
    return SAMPLE_RATE if response == SAMPLE_TIME else response


def shown_responses(record: ExperimentRecord) -> tuple[Response, ...]:
    """Return the responses that were measured, as they are shown and in the order in which they are read."""
    names = {name for trial in record.trials for name in trial.responses}
    if record.fingerprints:
        names.add(TENSOR_PEAK.name)
    return tuple(map(shown_response, sorted(map(response_named, names), key=_reading_order)))


def values_of(record: ExperimentRecord, variant: str, response: Response) -> list[float]:
    """Return the value of a response in each trial of a variant, in the order of the blocks."""
    trials = sorted((one for one in record.trials if one.variant == variant), key=lambda one: one.block)
    return [value for trial in trials if (value := _shown_value(trial, response)) is not None]


def summary_of(record: ExperimentRecord, variant: str, response: Response) -> Summary | None:
    """Return the summary of a variant's trials, or None where no trial has that response."""
    values = values_of(record, variant, response)
    if not values:
        return None
    blocks = len(values)
    sd = statistics.stdev(values) if blocks > 1 and all(map(math.isfinite, values)) else None
    return Summary(
        blocks=blocks,
        mean=statistics.fmean(values),
        sd=sd,
        half_width=None if sd is None else student_quantile(blocks - 1, _MEAN_ERROR) * sd / math.sqrt(blocks),
    )


def succeeded_trials(record: ExperimentRecord, variant: str) -> int:
    """Return the number of a variant's trials that succeeded."""
    return sum(trial.variant == variant and trial.status == "ok" for trial in record.trials)


def ratios_by_block(record: ExperimentRecord, effect: Effect) -> list[float]:
    """Return the ratio in each block on which an effect rests; its response must be compared by ratios."""
    changes = (
        mean_change(found, effect.contrast.pairs, effect.left_out, effect.response)
        for _, found in sorted(cells_of(record, effect.response).items())
    )
    return [math.exp(change) for change in changes if change is not None]


def effect_text(effect: Effect) -> EffectText:
    """Return an effect in words; one on the time of a sample is shown as samples per second."""
    estimate = shown_estimate(effect)
    if estimate is None:
        change = interval = "-"
    elif effect.response.scale == "difference":
        change, interval = _difference(effect.response, estimate)
    else:
        change = change_text(estimate)
        interval = "exact" if effect.confidence is None else interval_text(estimate)
    title = shown_response(effect.response).title
    return EffectText(title=title, change=change, interval=interval, verdict=_verdict(effect))


def shown_estimate(effect: Effect) -> Estimate | None:
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


def main_time(effects: Sequence[Effect]) -> Response | None:
    """Return the time that matters most, or None where no time was measured."""
    found = main_effects(effects)
    return found[0].response if found else None


def cell_text(
    record: ExperimentRecord, variant: str, response: Response, *, spread: Literal["sd", "half_width"] = "sd"
) -> str:
    """Return a variant's mean with a spread, its count, or the reason why there is neither."""
    if response == TENSOR_PEAK and variant in record.fingerprints:
        return human_bytes(record.fingerprints[variant].tensor_peak)
    summary = summary_of(record, variant, response)
    if summary is not None:
        return mean_text(response, summary.mean, getattr(summary, spread))
    return failure_words(record, variant)


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


def effect_tables(effects: Sequence[Effect]) -> Iterator[EffectTable]:
    """Yield a table of the main effects on all responses, then tables of simple effects and interactions.

    The latter are of the time that matters most and of the peak of tensors.
    """
    ordered = sorted(effects, key=lambda effect: _reading_order(effect.response))
    yield from _table("effect", (effect for effect in ordered if effect.contrast.kind == "main"))
    for response in (main_time(effects), TENSOR_PEAK):
        found = [effect for effect in effects if effect.response == response]
        title = shown_response(response).title if response else ""
        yield from _table(f"{title}, at each level", (one for one in found if one.contrast.kind == "simple"))
        yield from _table(
            f"{title}, interactions", (one for one in found if one.contrast.kind == "interaction")
        )


def head_lines(record: ExperimentRecord) -> tuple[str, str]:
    """Return what was run, and how many of its blocks were judged and why it stopped."""
    experiment = record.experiment
    judged, finished = judged_blocks(record), finished_blocks(record)
    blocks = f"{judged} of {counted(finished, 'finished block')} judged, at most {experiment.blocks} planned"
    stopped = f"stopped: {record.stopped}" if record.stopped else "not stopped yet"
    return f"experiment {experiment.name} of {experiment.target}", f"{blocks}; {stopped}"


def failure_words(record: ExperimentRecord, variant: str) -> str:
    """Return how a variant failed, "-" where it did not."""
    failed = (one for one in record.trials if one.variant == variant and one.status != "ok")
    return next((_FAILED_IN_WORDS.get(trial.status, "failed") for trial in failed), "-")


def failure_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield how each variant failed, its message, and how many of its trials had succeeded before."""
    for trial in record.trials:
        if trial.status != "ok":
            words = _FAILED_IN_WORDS.get(trial.status, "failed")
            message = f": {trial.message}" if trial.message else ""
            succeeded = succeeded_trials(record, trial.variant)
            before = f" (after {counted(succeeded, 'trial')} that did not)" if succeeded else ""
            yield f"{trial.variant}: {words}{message}{before}"


def mistake_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield each mistake that the first steps showed, with the variants that make it."""
    found: dict[str, list[str]] = {}
    for variant, fingerprint in record.fingerprints.items():
        for sentence in fingerprint.mistakes:
            found.setdefault(sentence, []).append(variant)
    for sentence, variants in found.items():
        everywhere = len(variants) == len(record.fingerprints)
        yield f"{sentence} ({'all variants' if everywhere else '; '.join(variants)})"


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


def repeated_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield which of the user's numbers are the same in all blocks, as where a script fixes its own seed."""
    for name in record.experiment.returned if record.experiment.seed_argument is None else ():
        values = [values_of(record, one.name, response_named(name)) for one in record.experiment.variants]
        if all(len(found) > 1 and len(set(found)) == 1 for found in values):
            yield (
                f"{name} is the same in every block of a variant, so that its interval covers no other seed:"
                " let the target take one as seed_argument."
            )


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


def fastest_lines(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield the fastest level of each factor of several, in the time that matters most."""
    by_factor: dict[str, list[Effect]] = {}
    for effect in main_effects(effects):
        by_factor.setdefault(effect.contrast.factor, []).append(effect)
    for factor, found in by_factor.items():
        measured = [effect for effect in found if effect.value is not None]
        if len(found) > 1 and measured:
            best = min(measured, key=lambda effect: effect.value or math.inf)
            text, reference = effect_text(best), level_text(best.contrast.reference)
            level = f"{factor}={level_text(best.contrast.level)}"
            numbers = f"{text.change} {text.title} against {reference} ({text.interval})"
            if best.verdict == "IMPROVED":
                yield f"{level} is the fastest measured: {numbers}."
            elif all(effect.verdict in {"UNCHANGED", "REGRESSED"} for effect in found):
                yield f"No other {factor} is faster than {reference}."
            else:
                yield f"Which {factor} is the fastest is not decided; {level}: {numbers}."


def crossover_sentences(record: ExperimentRecord, effects: Sequence[Effect]) -> Iterator[str]:
    """Yield sentences on the size from which, or up to which, a level pays in the time that matters most."""
    response = main_time(effects)
    if response is not None:
        yield from map(_crossover_sentence, crossovers(record.experiment, effects, response))


def single_run_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield how far single runs disagree on total time, and how much their place in a block mattered.

    Numbers taken by hand disagree for these reasons. With fewer than three blocks there is nothing to yield.
    """
    seconds: dict[str, list[float]] = {}
    for trial in record.trials:
        if trial.responses.get(TOTAL_TIME.name, 0.0) > 0:
            seconds.setdefault(trial.variant, []).append(trial.responses[TOTAL_TIME.name])
    for contrast in contrasts_of(record.experiment):
        if len(contrast.pairs) == 1 and contrast.kind != "interaction":
            ((reference, other),) = contrast.pairs
            runs = product(seconds.get(reference, []), seconds.get(other, []))
            ratios = [new / old for old, new in runs]
            if len(ratios) >= _FEWEST_BLOCKS**2:
                yield _disagreement(contrast, ratios)
    yield from _order_lines(record, seconds)


def _reading_order(response: Response) -> tuple[int, str]:
    """Return the sort key of a response: known ones come in their listed order, then the user's by name."""
    known = list(RESPONSES)
    return (known.index(response.name) if response.name in known else len(known), response.name)


def _shown_value(trial: Trial, response: Response) -> float | None:
    if response != SAMPLE_RATE:
        return trial.responses.get(response.name)
    seconds = trial.responses.get(SAMPLE_TIME.name)
    return 1 / seconds if seconds else None


def _verdict(effect: Effect) -> str:
    if effect.value is None:
        return "not measured" if effect.left_out and not effect.blocks else "too few blocks"
    if effect.verdict is None:
        return _direction(effect.low or 0.0, effect.high or 0.0)
    if effect.contrast.kind == "interaction":
        return _INTERACTIONS.get(effect.verdict, effect.verdict)
    return effect.verdict


def _direction(low: float, high: float) -> str:
    """Return an interval of differences in words."""
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


def _places(value: float, digits: int) -> int:
    return digits - 1 - math.floor(math.log10(abs(value))) if value else 0


def _table(title: str, effects: Iterable[Effect]) -> Iterator[EffectTable]:
    groups: dict[str, list[tuple[str, Effect]]] = {}
    for effect in effects:
        at = effect.contrast.at
        label = f"at {levels_text(at)}" if at else shown_response(effect.response).title
        groups.setdefault(contrast_text(effect.contrast), []).append((label, effect))
    if groups:
        yield EffectTable(title=title, groups={name: _merged(lines) for name, lines in groups.items()})


def _merged(lines: Sequence[tuple[str, Effect]]) -> Sequence[tuple[str, Effect]]:
    """Return one line in place of several where the effect is the same at every level."""
    if len(lines) > 1 and len({effect_text(effect) for _, effect in lines}) == 1:
        return [("at every level", lines[0][1])]
    return lines


def _crossover_sentence(crossing: Crossover) -> str:
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


def _disagreement(contrast: Contrast, ratios: Sequence[float]) -> str:
    at = f" at {levels_text(contrast.at)}" if contrast.at else ""
    slower = sum(ratio > 1 for ratio in ratios)
    return (
        f"One run of each, {contrast.factor} {contrast.reference} and {contrast.level}{at}, would have read"
        f" anything from {_change(min(ratios))} to {_change(max(ratios))} of total time, and slower in"
        f" {slower} of the {len(ratios)} pairs of runs that there are."
    )


def _order_lines(record: ExperimentRecord, seconds: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield how long the last run of a block took against the first, on average over blocks."""
    last = len(record.experiment.variants) - 1
    typical = {variant: statistics.fmean(map(math.log, found)) for variant, found in seconds.items()}
    by_place: dict[int, list[float]] = {}
    for trial in record.trials:
        taken_s = trial.responses.get(TOTAL_TIME.name, 0.0)
        if taken_s > 0:
            by_place.setdefault(trial.order, []).append(math.log(taken_s) - typical[trial.variant])
    first, final = by_place.get(0, []), by_place.get(last, [])
    if min(len(first), len(final)) >= _FEWEST_BLOCKS and last > 0:
        ratio = math.exp(statistics.fmean(final) - statistics.fmean(first))
        yield (
            f"Runs that came last in their block took {_change(ratio)} against those that came first, each"
            " against its variant's mean; a fixed order would have given that to one of the variants."
        )


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
