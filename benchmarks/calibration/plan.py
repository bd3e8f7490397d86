"""What each study does, fixed before its first gate: sizes, doses, margins and the order of it all.

A study is known by the day on which its plan was fixed, and its rows lie in the ledger's folder of that
name. The older one has run and is kept, so that its rows can be judged and rendered anew.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from neutral import KINDS

from perfkit.gating.aa_runs import in_turn

SIX = ("tensor", "loss", "training", "loading", "python", "allocation")
HARD = ("workers", "threads")
# A benchmark file for each of the two: they are gated apart, since the hard ones would use up every budget.
FILES = {SIX: "bench_six.py", HARD: "bench_hard.py"}
UNDOSED = 20
OLDER, NEWER = "2026-11-23", "2026-11-25"
_RARE = 24
# The lots of a study are drawn from a number, which is its day in both.
_SEEDS = {OLDER: 20261123, NEWER: 20261125}


@dataclass(frozen=True, kw_only=True)
class Slowdown:
    """A slowdown, as so many units of work in place of so many, its margin, and what fails the gate.

    A call is as short as the share allows in whole units.
    """

    kind: str
    margin: str
    units: tuple[int, int]
    fail_on: str | None = None


OLDER_SLOWDOWNS = (
    Slowdown(kind="+3 % at margin 1 %", margin="1%", units=(33, 34)),
    Slowdown(kind="+5 % at margin 2 %", margin="2%", units=(20, 21)),
)
SLOWDOWNS = (
    *OLDER_SLOWDOWNS,
    Slowdown(kind="+2 % at margin 1 %", margin="1%", units=(50, 51)),
    Slowdown(kind="+2 % at margin 1 %, --fail-on proven", margin="1%", units=(50, 51), fail_on="proven"),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One gate: what kind it is, its number among all, and what differs between its sides.

    ``benchmarks`` are those that it measures. ``base`` and ``head`` are the units of work of the slowed
    ``benchmark`` on each side; ``rare`` are head's in each tenth call alone. ``neutral`` is the kind of a
    change that adds no work. ``fail_on`` is the gate's option of that name, None for its default.
    """

    kind: str
    margin: str
    number: int = 0
    benchmarks: tuple[str, ...] = SIX
    benchmark: str | None = None
    base: int = UNDOSED
    head: int = UNDOSED
    rare: int | None = None
    neutral: str | None = None
    fail_on: str | None = None

    @property
    def subject(self) -> str:
        """The subject of the case's commit, by which its rows are known in the ledger."""
        named = f"study case {self.number}: {self.kind}"
        if self.neutral is not None:
            return f"{named}: {self.neutral}"
        if self.benchmark is None:
            return named
        dose = self.head if self.rare is None else f"{self.rare} in each tenth call"
        return f"{named}: {self.benchmark}, {self.base} units to {dose}"


def plan_study(study: str = NEWER) -> list[Case]:
    """Return the cases of a study in the order they run: its kinds mixed by lot."""
    source = random.Random(_SEEDS[study])  # noqa: S311 (an experiment's order, not a secret)
    drafts = _older(source) if study == OLDER else _newer(source)
    source.shuffle(drafts)
    return [replace(draft, number=number) for number, draft in enumerate(drafts, start=1)]


def _older(source: random.Random) -> list[Case]:
    """Return identical code, slowdowns of two sizes, and one that slows each tenth call alone."""
    return [
        *(Case(kind="A/A", margin="2%") for _ in range(100)),
        *(case for slowdown in OLDER_SLOWDOWNS for case in _slowed(source, slowdown, count=60)),
        Case(kind="+20 % in each tenth call", margin="1%", benchmark="python", rare=_RARE),
    ]


def _newer(source: random.Random) -> list[Case]:
    """Return identical code, neutral changes and slowdowns, and both of the hard ones."""
    return [
        *(Case(kind="A/A", margin="2%") for _ in range(50)),
        *(Case(kind="neutral", margin="2%", neutral=kind) for kind in in_turn(source, list(KINDS), 30)),
        *(case for slowdown in SLOWDOWNS for case in _slowed(source, slowdown, count=20)),
        *(Case(kind="A/A", margin="2%", benchmarks=HARD) for _ in range(6)),
        *_slowed(source, OLDER_SLOWDOWNS[1], count=6, benchmarks=HARD),
    ]


def _slowed(
    source: random.Random, slowdown: Slowdown, *, count: int, benchmarks: Sequence[str] = SIX
) -> list[Case]:
    """Return a slowdown in the benchmarks in turn, in an order drawn anew for every turn."""
    base, head = slowdown.units
    return [
        Case(
            kind=slowdown.kind,
            margin=slowdown.margin,
            benchmarks=tuple(benchmarks),
            benchmark=name,
            base=base,
            head=head,
            fail_on=slowdown.fail_on,
        )
        for name in in_turn(source, benchmarks, count)
    ]
