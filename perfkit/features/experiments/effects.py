"""The effects of an experiment's factors: trials in, intervals and verdicts out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS
from perfkit.features.experiments.records import (
    TENSOR_PEAK,
    TIMES,
    Experiment,
    ExperimentRecord,
    Factor,
    Level,
    Response,
    Trial,
    Variant,
    response_named,
)
from perfkit.gating.judge import LARGEST_LOG, LEAST_SD, WELL_KNOWN, interval_verdict
from perfkit.model.comparisons import TimedVerdict
from perfkit.stats.interval import error_per_look, location_interval
from perfkit.stats.summary import crossing

Kind = Literal["main", "simple", "interaction"]
# Fewer blocks have no standard deviation.
FEWEST_BLOCKS = 2
# Numbers of blocks at which an experiment is judged, as far as it may run this many.
_LOOKS = (6, 9, 13, 18, 25, 35, 50, 70, 100)


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """Variants to compare: each of ``pairs`` is (reference, other), averaged over.

    An interaction is how the contrast ``pairs`` differs from the contrast ``against``. ``at`` are the levels
    of other factors that it holds for: all of them for a simple effect, one for an interaction.
    """

    kind: Kind
    factor: str
    reference: Level
    level: Level
    at: Mapping[str, Level] = field(default_factory=dict)
    pairs: tuple[tuple[str, str], ...]
    against: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What a contrast does to a response, with its interval at ``confidence``.

    ``value``, ``low`` and ``high`` are ratios (1.0 means no change), or differences where the response's
    scale needs it; all are None where there were too few blocks. ``verdict`` is that of times and bytes.
    ``blocks`` are those in which every trial it needs succeeded; ``left_out`` are variants that never did, or
    that failed where other pairs remained.
    """

    contrast: Contrast
    response: Response
    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float | None = None
    verdict: TimedVerdict | None = None
    blocks: int = 0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """Where along a factor of sizes the effect of another factor changes its sign.

    ``size`` is where the line between the two neighbours crosses, on the scale of logarithms; ``certain``
    means whether both neighbours' intervals exclude no change. The level is better below it or above it, at
    these levels of the other factors.
    """

    factor: str
    level: Level
    at: Mapping[str, Level]
    along: str
    below: float
    above: float
    size: float
    better_below: bool
    certain: bool


def contrasts_of(experiment: Experiment) -> tuple[Contrast, ...]:
    """Return the main effects; with more factors also each at every level of the others, and interactions.

    Interactions are those of two factors, averaged over the rest.
    """
    variants = experiment.variants
    found = [
        _contrast("main", factor, level, variants, {})
        for factor in experiment.factors
        for level in factor.levels[1:]
    ]
    for factor in experiment.factors if len(experiment.factors) > 1 else ():
        others = [other for other in experiment.factors if other != factor]
        for levels in itertools.product(*(other.levels for other in others)):
            at = {other.name: level for other, level in zip(others, levels, strict=True)}
            found += [_contrast("simple", factor, level, variants, at) for level in factor.levels[1:]]
    for one, other in itertools.combinations(experiment.factors, 2):
        for level, there in itertools.product(one.levels[1:], other.levels[1:]):
            found.append(_interaction(one, level, other, there, variants))
    return tuple(found)


def looks_of(experiment: Experiment) -> tuple[int, ...]:
    """Return the numbers of blocks at which the experiment is judged; the most it may run is the last."""
    return (*(look for look in _LOOKS if look < experiment.blocks), experiment.blocks)


def interval_error(experiment: Experiment) -> float:
    """Return the error of one interval: alpha shared over looks, contrasts and kinds of times.

    The end of the budget is one more look, since its moment does not depend on the values seen.
    """
    family = len(contrasts_of(experiment)) * len(TIMES)
    return error_per_look(experiment.alpha, family=family, looks=len(looks_of(experiment)) + 1)


def effects_of(record: ExperimentRecord) -> tuple[Effect, ...]:
    """Return every effect on every response that was measured, from the blocks that count."""
    contrasts, error = contrasts_of(record.experiment), interval_error(record.experiment)
    found: list[Effect] = []
    for name in dict.fromkeys(name for trial in record.trials for name in trial.responses):
        response = response_named(name)
        cells = cells_of(record, response)
        found += [_measured_effect(contrast, response, cells, record, error) for contrast in contrasts]
    if any(one.tensor_peak for one in record.fingerprints.values()):
        found += [_counted_effect(contrast, record) for contrast in contrasts]
    return tuple(found)


def judged_blocks(record: ExperimentRecord) -> int:
    """Return how many blocks count: all once it has stopped, until then those up to the last look."""
    finished = finished_blocks(record)
    if record.stopped:
        return finished
    return max((look for look in looks_of(record.experiment) if look <= finished), default=0)


def finished_blocks(record: ExperimentRecord) -> int:
    """Return how many blocks have a trial of every variant; one that has failed needs no more."""
    names = {variant.name for variant in record.experiment.variants} - _failed(record.trials)
    seen: dict[int, set[str]] = {}
    for trial in record.trials:
        seen.setdefault(trial.block, set()).add(trial.variant)
    return sum(names <= variants for variants in seen.values()) if names else 0


def is_decided(record: ExperimentRecord) -> bool:
    """Return whether every main effect on the time that matters most has a verdict that ends the experiment.

    That time is the one per sample where samples are known, else that of a step, else the total.
    """
    found, failed = main_effects(effects_of(record)), _failed(record.trials)
    # Variants that failed run in no further block.
    effects = [effect for effect in found if _without(effect.contrast.pairs, failed)]
    return bool(effects) and all(effect.verdict not in {None, "INCONCLUSIVE"} for effect in effects)


def is_comparable(record: ExperimentRecord) -> bool:
    """Return whether two variants are left, of those that have not failed, that a main effect compares."""
    failed = _failed(record.trials)
    contrasts = [one for one in contrasts_of(record.experiment) if one.kind == "main"]
    return any(_without(contrast.pairs, failed) for contrast in contrasts)


def exit_code_of(record: ExperimentRecord) -> int:
    """Return 4 where a variant failed, 3 where a main effect is undecided, and else 0."""
    if any(trial.status != "ok" for trial in record.trials):
        return EXIT_NOT_MEASURED
    return EXIT_PASS if is_decided(record) else EXIT_INCONCLUSIVE


def main_effects(effects: Iterable[Effect]) -> tuple[Effect, ...]:
    """Return the main effects on the time that matters most."""
    found = [effect for effect in effects if effect.contrast.kind == "main"]
    for time in reversed(TIMES):
        chosen = tuple(effect for effect in found if effect.response == time)
        if chosen:
            return chosen
    return ()


def crossovers(experiment: Experiment, effects: Sequence[Effect], response: Response) -> list[Crossover]:
    """Return where the simple effect of one factor changes its sign along another, which holds sizes.

    Of the ``response`` less is better, as of all times. Two neighbouring sizes whose intervals both contain
    no change give no crossing.
    """
    simple = [
        (effect, effect.value)
        for effect in effects
        if effect.response == response and effect.contrast.kind == "simple" and effect.value is not None
    ]
    found = []
    for along in (factor for factor in experiment.factors if factor.is_numeric):
        groups: dict[str, list[_Point]] = {}
        for effect, ratio in simple:
            rest = dict(effect.contrast.at)
            if along.name in rest:
                size = float(rest.pop(along.name))
                # As text: True equals 1.
                key = repr((effect.contrast.factor, effect.contrast.level, rest))
                groups.setdefault(key, []).append(_Point(size=size, ratio=ratio, effect=effect, rest=rest))
        for group in groups.values():
            ordered = sorted(group, key=lambda point: point.size)
            found += [
                crossing
                for low, high in itertools.pairwise(ordered)
                if (crossing := _crossing(along.name, low, high)) is not None
            ]
    return found


def _contrast(
    kind: Kind, factor: Factor, level: Level, variants: Sequence[Variant], at: Mapping[str, Level]
) -> Contrast:
    pairs = tuple(
        (Variant(levels={**variant.levels, factor.name: factor.levels[0]}).name, variant.name)
        for variant in variants
        if _has(variant, {**at, factor.name: level})
    )
    return Contrast(
        kind=kind, factor=factor.name, reference=factor.levels[0], level=level, at=at, pairs=pairs
    )


def _interaction(
    one: Factor, level: Level, other: Factor, at: Level, variants: Sequence[Variant]
) -> Contrast:
    there = _contrast("interaction", one, level, variants, {other.name: at})
    here = _contrast("interaction", one, level, variants, {other.name: other.levels[0]})
    return replace(there, against=here.pairs)


def _has(variant: Variant, levels: Mapping[str, Level]) -> bool:
    # Types too: True equals 1.
    return all(
        variant.levels[name] == level and type(variant.levels[name]) is type(level)
        for name, level in levels.items()
    )


def _measured_effect(
    contrast: Contrast,
    response: Response,
    cells: Mapping[int, Mapping[str, float]],
    record: ExperimentRecord,
    error: float,
) -> Effect:
    never = _left_out(contrast, record.trials, cells)
    seen = [
        value
        for _, found in sorted(cells.items())
        if (value := _value_in_block(found, contrast, never, response)) is not None
    ]
    if len(seen) < FEWEST_BLOCKS:
        return Effect(contrast=contrast, response=response, blocks=len(seen), left_out=tuple(never))
    doubted = response in TIMES and len(seen) < WELL_KNOWN
    interval = location_interval(seen, range(len(seen)), error=error, least_sd=LEAST_SD if doubted else 0.0)
    centre, half_width = float(interval.centre), float(interval.half_width)
    back: Callable[[float], float] = _ratio if response.scale == "ratio" else float
    low, high = back(centre - half_width), back(centre + half_width)
    return Effect(
        contrast=contrast,
        response=response,
        value=back(centre),
        low=low,
        high=high,
        confidence=1 - error,
        verdict=interval_verdict(low, high, record.experiment.margin) if response.scale == "ratio" else None,
        blocks=len(seen),
        left_out=tuple(never),
    )


def _left_out(
    contrast: Contrast, trials: Sequence[Trial], cells: Mapping[int, Mapping[str, float]]
) -> list[str]:
    """Return the variants that a contrast does without: they have no value, or failed.

    One that failed runs no more, so that with it no later block would count. Where no pair is left without
    it, the blocks before it failed are all there is.
    """
    names = {name for pair in (*contrast.pairs, *contrast.against) for name in pair}
    never = names - {variant for found in cells.values() for variant in found}
    lost = never | (names & _failed(trials))
    sides = [side for side in (contrast.pairs, contrast.against) if side]
    return sorted(lost if all(_without(side, lost) for side in sides) else never)


def _failed(trials: Iterable[Trial]) -> set[str]:
    return {trial.variant for trial in trials if trial.status != "ok"}


def _counted_effect(contrast: Contrast, record: ExperimentRecord) -> Effect:
    """Return the effect on a count: it repeats, so both ends of its interval are the value itself."""
    counted = {
        name: float(found.tensor_peak) for name, found in record.fingerprints.items() if found.tensor_peak
    }
    never = sorted({name for pair in (*contrast.pairs, *contrast.against) for name in pair} - counted.keys())
    log = _value_in_block(counted, contrast, never, TENSOR_PEAK)
    if log is None:
        return Effect(contrast=contrast, response=TENSOR_PEAK, left_out=tuple(never))
    ratio = math.exp(log)
    return Effect(
        contrast=contrast,
        response=TENSOR_PEAK,
        value=ratio,
        low=ratio,
        high=ratio,
        verdict=interval_verdict(ratio, ratio, record.experiment.margin),
        left_out=tuple(never),
    )


def _ratio(log: float) -> float:
    """Return the ratio of a log ratio; infinite where that overflows, as with two blocks it may."""
    return math.exp(log) if log < LARGEST_LOG else math.inf


def cells_of(record: ExperimentRecord, response: Response) -> dict[int, dict[str, float]]:
    """Return block -> variant -> value of the blocks that count; a time of zero is none."""
    blocks = judged_blocks(record)
    cells: dict[int, dict[str, float]] = {}
    for trial in record.trials:
        value = trial.responses.get(response.name)
        if trial.block < blocks and value is not None and (response.scale == "difference" or value > 0):
            cells.setdefault(trial.block, {})[trial.variant] = value
    return cells


def _without(pairs: Iterable[tuple[str, str]], never: Iterable[str]) -> list[tuple[str, str]]:
    missing = set(never)
    return [pair for pair in pairs if not missing & set(pair)]


def _value_in_block(
    found: Mapping[str, float], contrast: Contrast, never: Iterable[str], response: Response
) -> float | None:
    there = mean_change(found, contrast.pairs, never, response)
    if not contrast.against or there is None:
        return there
    here = mean_change(found, contrast.against, never, response)
    return None if here is None else there - here


def mean_change(
    found: Mapping[str, float], pairs: Iterable[tuple[str, str]], never: Iterable[str], response: Response
) -> float | None:
    """Return the mean log ratio, or difference, of pairs without variants that were ``never`` measured.

    None where there is no such pair, or a trial of one is missing.
    """
    pairs = _without(pairs, never)
    if not pairs or any(name not in found for pair in pairs for name in pair):
        return None
    changes = [
        math.log(found[other] / found[reference])
        if response.scale == "ratio"
        else found[other] - found[reference]
        for reference, other in pairs
    ]
    return sum(changes) / len(changes)


@dataclass(frozen=True, kw_only=True)
class _Point:
    """The known ratio of a simple effect at a size, and the levels of the ``rest`` of the other factors."""

    size: float
    ratio: float
    effect: Effect
    rest: Mapping[str, Level]


def _crossing(along: str, low: _Point, high: _Point) -> Crossover | None:
    certain = [_excludes_one(point.effect) for point in (low, high)]
    size = crossing((low.size, low.ratio), (high.size, high.ratio)) if any(certain) else None
    if size is None:
        return None
    return Crossover(
        factor=low.effect.contrast.factor,
        level=low.effect.contrast.level,
        at=low.rest,
        along=along,
        below=low.size,
        above=high.size,
        size=size,
        better_below=low.ratio < 1,
        certain=all(certain),
    )


def _excludes_one(effect: Effect) -> bool:
    return effect.low is not None and effect.high is not None and not effect.low <= 1 <= effect.high
