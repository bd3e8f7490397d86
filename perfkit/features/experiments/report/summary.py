"""Sums up the trials of each variant: means with their scatter, failures, and mistakes that were caught."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from perfkit.features.experiments.effects import Effect, judged_blocks
from perfkit.features.experiments.records import (
    RESPONSES,
    SAMPLE_TIME,
    TENSOR_PEAK,
    ExperimentRecord,
    Response,
    Trial,
    response_named,
)
from perfkit.model import Status
from perfkit.stats.distributions import student_quantile

# People compare samples per second instead of seconds per sample.
SAMPLE_RATE = Response(name="sample_rate", title="samples per second", unit="1/s", better="higher")
_MEAN_ERROR = 0.05
_FAILED_IN_WORDS: dict[Status, str] = {
    "oom": "out of memory",
    "timeout": "took longer than its limit",
    "skipped": "skipped",
}


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
class Failure:
    """A variant that failed, how it failed in words, and the number of its trials before that."""

    variant: str
    words: str
    message: str | None
    succeeded: int


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A mistake in a sentence, and the variants that make it."""

    sentence: str
    variants: tuple[str, ...]


def told_response(response: Response) -> Response:
    """Return the response that is shown in place of another: samples per second instead of their time."""
    return SAMPLE_RATE if response == SAMPLE_TIME else response


def reading_order(response: Response) -> tuple[int, str]:
    """Return the sort key of a response: known ones come in their listed order, then the user's by name."""
    known = list(RESPONSES)
    return (known.index(response.name) if response.name in known else len(known), response.name)


def shown_responses(record: ExperimentRecord) -> tuple[Response, ...]:
    """Return the responses that were measured, as they are shown and in the order in which they are read."""
    names = {name for trial in record.trials for name in trial.responses}
    if record.fingerprints:
        names.add(TENSOR_PEAK.name)
    return tuple(map(told_response, sorted(map(response_named, names), key=reading_order)))


def values_of(record: ExperimentRecord, variant: str, response: Response) -> list[float]:
    """Return the value of a response in each trial of a variant, in the order of the blocks."""
    trials = sorted(
        (trial for trial in record.trials if trial.variant == variant), key=lambda trial: trial.block
    )
    return [value for trial in trials if (value := _told_value(trial, response)) is not None]


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


def failures(record: ExperimentRecord) -> tuple[Failure, ...]:
    """Return the variants that failed, each once, in the order in which they failed."""
    return tuple(
        Failure(
            variant=trial.variant,
            words=_FAILED_IN_WORDS.get(trial.status, "failed"),
            message=trial.message,
            succeeded=succeeded_trials(record, trial.variant),
        )
        for trial in record.trials
        if trial.status != "ok"
    )


def mistakes(record: ExperimentRecord) -> tuple[Mistake, ...]:
    """Return the mistakes that fingerprints show, each once, with the variants that make it."""
    found: dict[str, list[str]] = {}
    for variant, fingerprint in record.fingerprints.items():
        for sentence in fingerprint.mistakes:
            found.setdefault(sentence, []).append(variant)
    return tuple(Mistake(sentence=sentence, variants=tuple(variants)) for sentence, variants in found.items())


def ratios_by_block(record: ExperimentRecord, effect: Effect) -> list[float]:
    """Return the ratio in each block on which an effect rests; its response must be compared by ratios."""
    pairs = [pair for pair in effect.contrast.pairs if not set(pair) & set(effect.left_out)]
    judged = judged_blocks(record)
    by_block: dict[int, dict[str, float]] = {}
    for trial in record.trials:
        value = trial.responses.get(effect.response.name, 0.0)
        if trial.block < judged and value > 0:
            by_block.setdefault(trial.block, {})[trial.variant] = value
    return [
        _mean_ratio(found, pairs)
        for _, found in sorted(by_block.items())
        if pairs and all(name in found for pair in pairs for name in pair)
    ]


def _mean_ratio(found: dict[str, float], pairs: Sequence[tuple[str, str]]) -> float:
    logs = [math.log(found[other] / found[reference]) for reference, other in pairs]
    return math.exp(statistics.fmean(logs))


def _told_value(trial: Trial, response: Response) -> float | None:
    if response != SAMPLE_RATE:
        return trial.responses.get(response.name)
    seconds = trial.responses.get(SAMPLE_TIME.name)
    return 1 / seconds if seconds else None
