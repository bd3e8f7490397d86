"""From which size on a level pays, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfkit.records.experiments import ExperimentRecord, level_text
from perfkit.verdict.effects import Crossover, Effect, crossovers
from perfkit.views.experiment.told import levels_text, telling_response


def crossover_sentences(record: ExperimentRecord, effects: Sequence[Effect]) -> Iterator[str]:
    """Yield from or up to which size a level pays, by the time that matters most."""
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
