"""The sentences around an experiment's tables, the same in every view."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfkit.records.experiments import ExperimentRecord
from perfkit.units import counted
from perfkit.verdict.effects import Effect, finished_blocks, judged_blocks
from perfkit.views.experiment.summary import Failure, Mistake
from perfkit.views.gate.wording import percent


def head_lines(record: ExperimentRecord) -> Iterator[str]:
    """Yield what was run, how many of its blocks count, and why it has stopped."""
    experiment = record.experiment
    judged, finished = judged_blocks(record), finished_blocks(record)
    yield f"experiment {experiment.name} of {experiment.target}"
    blocks = f"{judged} of {counted(finished, 'finished block')} judged, at most {experiment.blocks} planned"
    yield f"{blocks}; {f'stopped: {record.stopped}' if record.stopped else 'not stopped yet'}"


def failure_text(failure: Failure) -> str:
    """Return how a variant failed, with its message, and what it had done before."""
    said = f": {failure.message}" if failure.message else ""
    before = f" (after {counted(failure.succeeded, 'trial')} that did not)" if failure.succeeded else ""
    return f"{failure.variant}: {failure.words}{said}{before}"


def mistake_text(mistake: Mistake, variants: int) -> str:
    """Return a mistake and which of so many variants make it."""
    alike = len(mistake.variants) == variants
    return f"{mistake.sentence} ({'all variants' if alike else '; '.join(mistake.variants)})"


def left_out_lines(effects: Sequence[Effect]) -> Iterator[str]:
    """Yield which variants the effects do without, nothing where they have all."""
    names = sorted({name for effect in effects for name in effect.left_out})
    if names:
        yield f"The effects leave out what was never measured: {'; '.join(names)}."


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
