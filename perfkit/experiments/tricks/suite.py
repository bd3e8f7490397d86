"""The benchmarks of tricks, as both sides have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.records import SIDES, Side
from perfkit.records.tricks import Loop, TrickCase

SUITE = Path(__file__).with_name("bench_tricks.py")


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a side is told: which one it is, the cases, and the loop that some of them are on."""

    side: Side
    cases: tuple[TrickCase, ...]
    loop: Loop | None

    def loop_named(self, name: str) -> Loop:
        """Return the loop that a case is on.

        Raises:
            ValueError: the side was told of no such loop.
        """
        if self.loop is None or self.loop.name != name:
            raise ValueError(f"expected the loop {name!r}, found {self.loop}")
        return self.loop


def said_to_sides(cases: Sequence[TrickCase], loop: Loop | None) -> dict[Side, dict[str, str]]:
    """Return the file by which each side knows the cases, and which side it is."""
    return {
        side: {"cases.json": msgspec.json.encode(Said(side=side, cases=tuple(cases), loop=loop)).decode()}
        for side in SIDES
    }


def node_of(case: TrickCase) -> str:
    """Return the benchmark of a case, as pytest names it."""
    return f"{SUITE.name}::test_trick[{case.trick}-{case.loop or case.size}]"
