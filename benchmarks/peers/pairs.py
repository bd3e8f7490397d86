"""Which pairs of commits the tools compare, in which order, fixed before the first is measured.

About 80 minutes on two cores: of the twelve pairs of the six benchmarks perfkit takes 20 s, asv 100 s,
pytest-benchmark 12 s and the t-test 80 s each, pyperf 220 s of every second one; the four pairs of the hard
benchmarks take four to six minutes each. What is measured beyond that, where time allows, comes last.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "calibration"))

from plan import HARD, SIX, UNDOSED, Case

from perfkit.gating.aa_runs import in_turn

# A contest is known by the day on which its plan was fixed.
OLDER, NEWER = "2026-11-22", "2026-11-25"
# Two of the tools once more, some 16 minutes, since a launch costs perfkit less than it did in the newer one:
# first on a machine of another kind than that one's, and then on one of its kind.
AGAIN = ("2026-11-26", "2026-11-26-same-processor")
_TOOLS_AGAIN = ("perfkit", "asv")
EVERYWHERE = ("perfkit", "asv", "pytest-benchmark", "t-test")
# It takes as long as all others together, so that every second pair has to do.
QUICK_PYPERF = "pyperf --fast"
SLOW_PYPERF = "pyperf"
MARGIN = "2%"
_SLOWED_UNITS = 21
_SEED = 20261125


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two commits, and the tools that get them, in order; ``later`` are those that time may not allow."""

    case: Case
    tools: tuple[str, ...] = ()
    later: tuple[str, ...] = ()

    @property
    def number(self) -> int:
        """Its place in the plan."""
        return self.case.number


def plan_pairs() -> list[Pair]:
    """Return six identical pairs and six with +5 % in a benchmark, and as many halves of the hard ones.

    All are mixed by lot. Each tool is first, and last, equally often but for pyperf, whose place goes round.
    """
    source = random.Random(_SEED)  # noqa: S311 (an experiment's order, not a secret)
    drafts = [*_cases(source, SIX, 6), *_cases(source, HARD, 2)]
    source.shuffle(drafts)
    pairs = [Pair(case=replace(case, number=number)) for number, case in enumerate(drafts, start=1)]
    chosen = _every_second(pairs)
    return [_with_tools(pair, chosen.get(pair.number)) for pair in pairs]


def plan_again() -> list[Pair]:
    """Return the pairs of the six benchmarks for perfkit and asv, each of which begins every second one."""
    pairs = [pair for pair in plan_pairs() if pair.case.benchmarks == SIX]
    return [
        replace(pair, tools=_TOOLS_AGAIN[:: -1 if place % 2 else 1], later=())
        for place, pair in enumerate(pairs)
    ]


def turns(pairs: Iterable[Pair]) -> list[tuple[Pair, str]]:
    """Return what is measured, in its order: all that is planned, and then what time may not allow."""
    known = list(pairs)
    return [
        *((pair, tool) for pair in known for tool in pair.tools),
        *((pair, tool) for pair in known for tool in pair.later),
    ]


def _cases(source: random.Random, benchmarks: tuple[str, ...], count: int) -> list[Case]:
    """Return as many identical pairs as slowed ones, these in the benchmarks in turn."""
    names: list[str | None] = [*[None] * count, *in_turn(source, benchmarks, count)]
    return [
        Case(
            kind="A/A" if name is None else "+5 %",
            margin=MARGIN,
            benchmarks=benchmarks,
            benchmark=name,
            head=UNDOSED if name is None else _SLOWED_UNITS,
        )
        for name in names
    ]


def _every_second(pairs: Sequence[Pair]) -> dict[int, int]:
    """Return the numbers of every second pair of each kind, each with its place among those."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for pair in pairs:
        kinds.setdefault((pair.case.benchmarks, pair.case.kind), []).append(pair.number)
    chosen = sorted(number for numbers in kinds.values() for number in numbers[::2])
    return {number: place for place, number in enumerate(chosen)}


def _with_tools(pair: Pair, place: int | None) -> Pair:
    """Return the pair with its tools; ``place`` is its place among those that pyperf gets, None where not."""
    turn = pair.number % len(EVERYWHERE)
    tools = [*EVERYWHERE[turn:], *EVERYWHERE[:turn]]
    if place is None:
        return replace(pair, tools=tuple(tools))
    tools.insert(place % (len(EVERYWHERE) + 1), QUICK_PYPERF)
    return replace(pair, tools=tuple(tools), later=(SLOW_PYPERF,))
