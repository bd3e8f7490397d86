"""The order in which the sides of each launch are forked and begin: drawn from a seed, balanced in blocks."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from perfkit.model import SIDES, Side

_COMBINATIONS = tuple(itertools.product(SIDES, SIDES))


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The place of one launch: its number, its block, which side is forked first and which begins."""

    launch: int
    block: int
    forked_first: Side
    begins: Side


def schedule(*, seed: int) -> Iterator[Slot]:
    """Yield launches without end; each block of four has every combination of the two orders once."""
    source = random.Random(seed)  # noqa: S311 (an experiment's order, not a secret)
    launches = itertools.count()
    for block in itertools.count():
        for forked_first, begins in source.sample(_COMBINATIONS, len(_COMBINATIONS)):
            yield Slot(launch=next(launches), block=block, forked_first=forked_first, begins=begins)


def other(side: Side) -> Side:
    """Return the opposite side."""
    return "head" if side == "base" else "base"
