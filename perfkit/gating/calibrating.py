"""The plan of a calibration: its gates in order, and which benchmark each gate slows down by how much."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Case:
    """One gate of a calibration; ``plant`` is the share by which one benchmark is made slower on purpose."""

    number: int
    plant: float | None = None
    benchmark: str | None = None


def plan_cases(
    benchmarks: Sequence[str], *, gates: int, plants: Sequence[float], seed: int
) -> tuple[Case, ...]:
    """Return ``gates`` gates of identical code and as many with each plant, in a random order.

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
    """Return ``count`` names: each comes once before any is repeated, in an order drawn anew each time."""
    turns: list[str] = []
    while len(turns) < count:
        turns += source.sample(list(names), len(names))
    return turns[:count]
