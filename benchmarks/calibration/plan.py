"""What the study will do, settled before its first gate: sizes, doses, margins and the order of it all."""

from __future__ import annotations

import random
from dataclasses import dataclass

from perfkit.experiments.calibration import in_turn

BENCHMARKS = ("tensor", "loss", "training", "loading", "python", "allocation")
_SEED = 20261121


@dataclass(frozen=True, kw_only=True)
class Case:
    """One gate: its number among all, what kind it is, and the dose that is planted in one benchmark.

    ``units`` is the benchmark's work, of 100 undosed; ``rare`` that of each tenth call alone.
    """

    number: int
    kind: str
    margin: str
    benchmark: str | None = None
    units: int = 100
    rare: int | None = None

    @property
    def subject(self) -> str:
        """The subject of the case's commit, by which its rows are known in the ledger."""
        if self.benchmark is None:
            return f"study case {self.number}: {self.kind}"
        dose = f"{self.units} units" if self.rare is None else f"{self.rare} units in each tenth call"
        return f"study case {self.number}: {self.kind}: {self.benchmark} {dose}"


def plan_study(*, alike: int = 20, planted: int = 20) -> list[Case]:
    """Return the cases in the order they run: gates of identical code and planted ones, mixed by lot.

    Half of the plants are +3 % at margin 1 %, half +5 % at margin 2 %, each over the benchmarks in turn, in
    an order drawn anew for every turn.
    """
    source = random.Random(_SEED)  # noqa: S311 (an experiment's order, not a secret)
    drafts: list[tuple[str, str, str | None, int, int | None]] = [("A/A", "2%", None, 100, None)] * alike
    for kind, margin, units in (("+3 % at margin 1 %", "1%", 103), ("+5 % at margin 2 %", "2%", 105)):
        drafts += [(kind, margin, name, units, None) for name in in_turn(source, BENCHMARKS, planted // 2)]
    drafts.append(("+20 % in each tenth call", "1%", "python", 100, 120))
    source.shuffle(drafts)
    return [
        Case(number=number, kind=kind, margin=margin, benchmark=name, units=units, rare=rare)
        for number, (kind, margin, name, units, rare) in enumerate(drafts, start=1)
    ]
