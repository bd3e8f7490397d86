"""What the study will do, settled before its first gate: sizes, doses, margins and the order of it all."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from perfkit.compare.calibration import in_turn

BENCHMARKS = ("tensor", "loss", "training", "loading", "python", "allocation")
UNDOSED = 20
# A call is as short as these shares allow in whole units.
PLANTS = (("+3 % at margin 1 %", "1%", (33, 34)), ("+5 % at margin 2 %", "2%", (20, 21)))
_RARE = 24
_SEED = 20261123


@dataclass(frozen=True, kw_only=True)
class Case:
    """One gate: what kind it is, its number among all, and the dose that is planted in one benchmark.

    ``base`` and ``head`` are the benchmark's units of work on each side; ``rare`` are head's in each tenth
    call alone.
    """

    kind: str
    margin: str
    number: int = 0
    benchmark: str | None = None
    base: int = UNDOSED
    head: int = UNDOSED
    rare: int | None = None

    @property
    def subject(self) -> str:
        """The subject of the case's commit, by which its rows are known in the ledger."""
        if self.benchmark is None:
            return f"study case {self.number}: {self.kind}"
        dose = self.head if self.rare is None else f"{self.rare} in each tenth call"
        return f"study case {self.number}: {self.kind}: {self.benchmark}, {self.base} units to {dose}"


def plan_study(*, alike: int = 100, planted: int = 120) -> list[Case]:
    """Return the cases in the order they run: gates of identical code and planted ones, mixed by lot.

    Half of the plants are +3 % at margin 1 %, half +5 % at margin 2 %, each over the benchmarks in turn, in
    an order drawn anew for every turn.
    """
    source = random.Random(_SEED)  # noqa: S311 (an experiment's order, not a secret)
    drafts = [Case(kind="A/A", margin="2%") for _ in range(alike)]
    for kind, margin, (base, head) in PLANTS:
        drafts += [
            Case(kind=kind, margin=margin, benchmark=name, base=base, head=head)
            for name in in_turn(source, BENCHMARKS, planted // len(PLANTS))
        ]
    drafts.append(Case(kind="+20 % in each tenth call", margin="1%", benchmark="python", rare=_RARE))
    source.shuffle(drafts)
    return [replace(draft, number=number) for number, draft in enumerate(drafts, start=1)]
