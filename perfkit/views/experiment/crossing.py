"""From which size on a level pays, in a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfkit.records.experiments import ExperimentRecord, Level, level_text
from perfkit.verdict.effects import Crossover, Effect, crossovers
from perfkit.views.experiment.told import levels_text, telling_response


def crossover_sentences(record: ExperimentRecord, effects: Sequence[Effect]) -> Iterator[str]:
    """Yield from or up to which size a level pays, by the time that matters most."""
    response = telling_response(effects)
    simple = [
        effect for effect in effects if effect.contrast.kind == "simple" and effect.response == response
    ]
    for along in (factor.name for factor in record.experiment.factors if factor.is_numeric):
        for rest, group in _by_the_rest(simple, along):
            sides = {effect.contrast.at[along]: effect for effect in group}
            for crossing in crossovers(record.experiment, group, group[0].response):
                below, above = sides[crossing.below], sides[crossing.above]
                # Between two that may be nothing there is nothing to cross.
                if _moves(below) or _moves(above):
                    yield _crossover(crossing, rest, pays_below=(below.value or 1.0) < 1)


def _by_the_rest(effects: Sequence[Effect], along: str) -> Iterator[tuple[str, list[Effect]]]:
    """Yield the effects of one level that only differ in the size along one factor, with what they share."""
    groups: dict[tuple[str, Level, str], list[Effect]] = {}
    for effect in effects:
        contrast = effect.contrast
        if along in contrast.at:
            rest = levels_text({name: level for name, level in contrast.at.items() if name != along})
            groups.setdefault((contrast.factor, level_text(contrast.level), rest), []).append(effect)
    for (_, _, rest), group in groups.items():
        yield rest, group


def _crossover(crossing: Crossover, rest: str, *, pays_below: bool) -> str:
    size = f"{float(f'{crossing.size:.2g}'):g}"
    where = f"up to {crossing.along} about {size}" if pays_below else f"from {crossing.along} about {size} on"
    certain = "" if crossing.certain else "; not certain: at one of these it may make no difference"
    return (
        f"{crossing.factor}={level_text(crossing.level)} pays {where}{f', at {rest}' if rest else ''}"
        f" (between {crossing.below:g} and {crossing.above:g}{certain})"
    )


def _moves(effect: Effect) -> bool:
    return effect.low is not None and effect.high is not None and not effect.low <= 1 <= effect.high
