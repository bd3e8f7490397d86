"""Which benchmarks get the time that is left, and how much time all of them will take.

Possible slowdowns come first, then benchmarks of changed code, then what has begun, then what is decided
soonest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from perfkit.units import counted, human_seconds

# So many are measured together, which share the cost of a generation. The others wait until one of these is
# decided: how many can be decided in the time that is left is known better then.
_TOGETHER = 10


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An undecided benchmark, and about how many seconds it asks for.

    ``next_look_s`` leads to its next look, ``decision_s`` to the look that will decide it if it goes on as
    it began, None where none would. ``suspect`` is one that reads slower than its margin allows, ``changed``
    one that may run code that differs between the sides; one that is not ``begun`` has had no launch.
    """

    node: str
    next_look_s: float
    decision_s: float | None
    suspect: bool
    changed: bool = True
    begun: bool = True


def share_out(candidates: Iterable[Candidate], left_s: float) -> set[str]:
    """Return the nodes that get a launch now, when ``left_s`` seconds are left for all of them.

    The first benchmark reserves the time to its decision, and the next ones share what remains. This choice
    does not change error rates: each look of each benchmark has its own share of alpha, whatever led to it.
    """
    chosen: set[str] = set()
    for one in sorted(candidates, key=lambda one: _order(one, left_s)):
        if one.next_look_s <= left_s and len(chosen) < _TOGETHER:
            left_s -= _affordable_decision_s(one, left_s) or one.next_look_s
            chosen.add(one.node)
    return chosen


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """About how many seconds the undecided benchmarks still ask for, each of them, and how many are left.

    ``after_s`` are kept for what follows, and not part of those that are left.
    """

    costs_s: Collection[float]
    left_s: float
    after_s: float = 0.0

    @property
    def seconds(self) -> float:
        """What all of them ask for, and what follows."""
        return math.fsum(self.costs_s) + self.after_s

    @property
    def affordable(self) -> int:
        """How many of them can be decided in the time that is left, the cheapest first."""
        spent, number = 0.0, 0
        for cost in sorted(self.costs_s):
            spent += cost
            number += spent <= self.left_s
        return number

    def announced(self, margins: str, *, budget_s: float) -> str:
        """Say what measuring will take, and what a budget that is too small leaves out."""
        told = (
            f"measuring {counted(len(self.costs_s), 'benchmark')}: about"
            f" {human_seconds(self.seconds, digits=2)} at {margins}"
        )
        if self.seconds - self.after_s <= self.left_s:
            return told
        return (
            f"{told}; the {human_seconds(self.left_s, digits=2)} that are left are enough for about"
            f" {self.affordable}, those of changed code first ({self._cure(budget_s)})"
        )

    def not_reached(self, number: int, *, budget_s: float) -> str:
        """Say what it would take to decide the ``number`` benchmarks that were not reached, and others."""
        return (
            f"the budget of {human_seconds(budget_s)} was over before {counted(number, 'benchmark')}"
            f" {'was' if number == 1 else 'were'} reached ({self._cure(budget_s)})"
        )

    def _cure(self, budget_s: float) -> str:
        whole = budget_s + self.seconds - self.after_s - self.left_s
        return f"--budget {math.ceil(whole / 10) * 10} for all, or --select to measure fewer"


def _order(one: Candidate, left_s: float) -> tuple[bool, bool, bool, bool, float]:
    decision_s = _affordable_decision_s(one, left_s)
    soonest_s = decision_s or one.next_look_s
    return (decision_s is None, not one.suspect, not one.changed, not one.begun, soonest_s)


def _affordable_decision_s(one: Candidate, left_s: float) -> float | None:
    return one.decision_s if one.decision_s is not None and one.decision_s <= left_s else None
