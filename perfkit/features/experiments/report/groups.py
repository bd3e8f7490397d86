"""Arranges the effects of an experiment into tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from perfkit.features.experiments.effects import Effect
from perfkit.features.experiments.records import TENSOR_PEAK
from perfkit.features.experiments.report.summary import reading_order, told_response
from perfkit.features.experiments.report.told import contrast_text, levels_text, telling_response, told_effect


@dataclass(frozen=True, kw_only=True)
class EffectLine:
    """An effect, with a label that tells it from the others of its group."""

    label: str
    effect: Effect


@dataclass(frozen=True, kw_only=True)
class EffectGroup:
    """The effects of one level against another."""

    heading: str
    lines: tuple[EffectLine, ...]


@dataclass(frozen=True, kw_only=True)
class EffectTable:
    """Groups of effects of one kind."""

    title: str
    groups: tuple[EffectGroup, ...]


def effect_tables(effects: Sequence[Effect]) -> Iterator[EffectTable]:
    """Yield a table of the main effects on all responses, then tables of simple effects and interactions.

    The latter are told of the time that matters most and of the peak of tensors.
    """
    ordered = sorted(effects, key=lambda effect: reading_order(effect.response))
    yield from _table("effect", (effect for effect in ordered if effect.contrast.kind == "main"))
    for response in (telling_response(effects), TENSOR_PEAK):
        found = [effect for effect in effects if effect.response == response]
        simple = (effect for effect in found if effect.contrast.kind == "simple")
        interactions = (effect for effect in found if effect.contrast.kind == "interaction")
        title = told_response(response).title if response else ""
        yield from _table(f"{title}, at each level", simple)
        yield from _table(f"{title}, interactions", interactions)


def _table(title: str, effects: Iterable[Effect]) -> Iterator[EffectTable]:
    groups: dict[str, list[EffectLine]] = {}
    for effect in effects:
        line = EffectLine(label=_label(effect), effect=effect)
        groups.setdefault(contrast_text(effect.contrast), []).append(line)
    if groups:
        yield EffectTable(
            title=title,
            groups=tuple(EffectGroup(heading=name, lines=_merged(lines)) for name, lines in groups.items()),
        )


def _label(effect: Effect) -> str:
    at = effect.contrast.at
    return f"at {levels_text(at)}" if at else told_response(effect.response).title


def _merged(lines: Sequence[EffectLine]) -> tuple[EffectLine, ...]:
    """Return one line in place of several where the effect is the same at every level."""
    alike = len({told_effect(line.effect) for line in lines}) == 1
    if len(lines) > 1 and alike:
        return (EffectLine(label="at every level", effect=lines[0].effect),)
    return tuple(lines)
