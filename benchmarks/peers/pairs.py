"""Which pairs of commits the tools compare, in which order, settled before the first is measured."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "calibration"))

from plan import SIX, UNDOSED, Case

from perfkit.compare.calibration import in_turn

TOOLS = ("perfkit", "asv", "pytest-benchmark", "pyperf")
MARGIN = "2%"
_PLANTED_UNITS = 21
_SEED = 20261122


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two commits, and the order in which the tools get them: each is first, and last, equally often."""

    case: Case
    tools: tuple[str, ...]

    @property
    def number(self) -> int:
        """Its place in the plan."""
        return self.case.number


def plan_pairs(*, alike: int = 12, planted: int = 12) -> list[Pair]:
    """Return identical pairs and pairs with +5 % in one benchmark after the other, mixed by lot."""
    source = random.Random(_SEED)  # noqa: S311 (an experiment's order, not a secret)
    drafts: list[str | None] = [*[None] * alike, *in_turn(source, SIX, planted)]
    source.shuffle(drafts)
    return [_pair(number, name) for number, name in enumerate(drafts, start=1)]


def _pair(number: int, name: str | None) -> Pair:
    turn = number % len(TOOLS)
    return Pair(
        case=Case(
            number=number,
            kind="A/A" if name is None else "+5 %",
            margin=MARGIN,
            benchmark=name,
            head=UNDOSED if name is None else _PLANTED_UNITS,
        ),
        tools=(*TOOLS[turn:], *TOOLS[:turn]),
    )
