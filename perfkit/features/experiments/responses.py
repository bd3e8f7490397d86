"""From what a trial's process saw to the responses of its variant."""

from __future__ import annotations

import itertools
import math
import numbers
import statistics
from collections.abc import Mapping

from perfkit.errors import UsageError
from perfkit.features.experiments.records import SAMPLE_TIME, STEP_TIME, TOTAL_TIME
from perfkit.model import PassSummary


def times_of(summary: PassSummary, *, warmup_steps: int, warmup_s: float) -> dict[str, float]:
    """Return total time, and time per step and per sample as far as steps and samples are known; in seconds.

    Steps of the warm-up do not count: ``warmup_steps``, and as many as fill ``warmup_s``, but never all. The
    mean of the others is taken: where workers load ahead, a step that waits is followed by some that do not.
    """
    times = {TOTAL_TIME.name: summary.total_s}
    if summary.steps:
        step_s = statistics.fmean(_warm(summary.step_s, warmup_steps, warmup_s))
        times[STEP_TIME.name] = step_s
        if summary.samples:
            times[SAMPLE_TIME.name] = step_s * summary.steps / summary.samples
    elif summary.samples:
        times[SAMPLE_TIME.name] = summary.total_s / summary.samples
    return times


def with_returned(
    times: Mapping[str, float], summary: PassSummary, returned: Mapping[str, float]
) -> dict[str, float]:
    """Return all responses: a total time that the target tells itself stands for the one around its call."""
    responses = {**times, **returned}
    if TOTAL_TIME.name in returned and summary.samples and not summary.steps:
        responses[SAMPLE_TIME.name] = returned[TOTAL_TIME.name] / summary.samples
    return responses


def returned_numbers(result: object, wanted: Mapping[str, str]) -> dict[str, float]:
    """Return the responses that the target itself returns, in an object's attributes or a mapping's keys.

    Raises:
        UsageError: one is not there, or is no number.
    """
    return {response: _number(result, name) for response, name in wanted.items()}


def finite_numbers(responses: Mapping[str, float]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the responses that are finite numbers, and a note on each other one.

    A loss that diverged says nothing of the times beside it, and has no mean.
    """
    kept = {name: value for name, value in responses.items() if math.isfinite(value)}
    notes = tuple(
        f"{name} is {value}, no finite number, and is left out"
        for name, value in responses.items()
        if name not in kept
    )
    return kept, notes


def _warm(step_s: tuple[float, ...], warmup_steps: int, warmup_s: float) -> tuple[float, ...]:
    by_time = sum(end <= warmup_s for end in itertools.accumulate(step_s))
    return step_s[min(max(warmup_steps, by_time), len(step_s) - 1) :]


def _number(result: object, name: str) -> float:
    known = result if isinstance(result, Mapping) else None
    value = known.get(name) if known is not None else getattr(result, name, None)
    if isinstance(value, numbers.Real):
        return float(value)
    found = "nothing of that name" if value is None else f"a {type(value).__name__}"
    raise UsageError(
        f'the target was to return "{name}", a number; found {found} in the {type(result).__name__} that it'
        " returned; mend [returned]"
    )
