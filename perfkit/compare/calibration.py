"""The gates of a calibration: how many of which kind, with which plant in which benchmark, in what order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Case:
    """One gate of a calibration; ``plant`` is the share by which one benchmark is made slower, if any is."""

    number: int
    plant: float | None = None
    benchmark: str | None = None


def plan_cases(
    benchmarks: Sequence[str], *, gates: int, plants: Sequence[float], seed: int
) -> tuple[Case, ...]:
    """Return so many gates of identical code, and as many with each plant, mixed by lot.

    Plants go through the benchmarks in turn, in an order drawn anew for every turn.
    """
    source = random.Random(seed)  # noqa: S311 (an experiment's order, not a secret)
    drafts: list[tuple[float | None, str | None]] = [(None, None)] * gates
    for plant in plants:
        drafts += [(plant, name) for name in in_turn(source, benchmarks, gates)]
    source.shuffle(drafts)
    return tuple(
        Case(number=number, plant=plant, benchmark=name)
        for number, (plant, name) in enumerate(drafts, start=1)
    )


def in_turn(source: random.Random, names: Sequence[str], count: int) -> list[str]:
    """Return so many names, each once before any comes again, in an order drawn anew for every turn."""
    turns: list[str] = []
    while len(turns) < count:
        turns += source.sample(list(names), len(names))
    return turns[:count]
