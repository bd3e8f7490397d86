"""Which benchmarks get the time that is left, and how much time all of them will take.

Among those that the time can decide, possible slowdowns come first, then benchmarks of changed code, then
those that were begun, then those that are decided soonest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from perfkit.units import counted, human_seconds

# So many are measured together, so that they share the cost of a generation. The others wait until one of
# these is decided: by then it is known better how many can be decided in the time that is left. Where there
# is no time for all, fewer are, so that some are decided before it is over.
_TOGETHER, _FEW_TOGETHER = 10, 4


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An undecided benchmark, and about how many seconds it needs.

    ``next_look_s`` are the seconds to its next look, ``decision_s`` those to the look that will decide it if
    its ratio and scatter stay as they are, None where none would. It is ``suspect`` where its ratio is above
    what is allowed, ``changed`` where it may run code that differs between the sides, and ``begun`` where it
    has had a launch in this run.
    """

    node: str
    next_look_s: float
    decision_s: float | None
    suspect: bool
    changed: bool
    begun: bool


def share_out(candidates: Iterable[Candidate], left_s: float) -> set[str]:
    """Return the nodes that get a launch now, when ``left_s`` seconds are left for all of them.

    Each benchmark in turn reserves the time to its decision, and the next ones share what remains. This
    choice does not change error rates, since each look of each benchmark has its own share of alpha.
    """
    found, chosen = list(candidates), set[str]()
    needed_s = sum(one.next_look_s if one.decision_s is None else one.decision_s for one in found)
    together = _TOGETHER if needed_s <= left_s else _FEW_TOGETHER
    for one in sorted(found, key=lambda one: _order(one, left_s)):
        if one.next_look_s <= left_s and len(chosen) < together:
            left_s -= _affordable_decision_s(one, left_s) or one.next_look_s
            chosen.add(one.node)
    return chosen


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """About how many seconds each undecided benchmark still needs, and how many seconds are left.

    ``after_s`` are kept for what follows, and not part of those that are left. ``changed_costs_s`` are those
    of benchmarks that may run changed code.
    """

    costs_s: Collection[float]
    changed_costs_s: Collection[float] = ()
    left_s: float
    after_s: float = 0.0

    @property
    def seconds(self) -> float:
        """The seconds that all of them need, and what follows."""
        return math.fsum(self.costs_s) + self.after_s

    @property
    def affordable(self) -> int:
        """How many of them can be decided in the time that is left, the cheapest first."""
        spent, number = 0.0, 0
        for cost in sorted(self.costs_s):
            spent += cost
            number += spent <= self.left_s
        return number

    def announced(self, margins: str, *, budget_s: float, goes_on: bool = False) -> str:
        """Return a sentence on how long measuring takes, and what a budget that is too small leaves out.

        Where measuring ``goes_on`` after the budget, nothing is left out.
        """
        told = (
            f"measuring {counted(len(self.costs_s), 'benchmark')}: about"
            f" {human_seconds(self.seconds, digits=2)} at {margins}"
        )
        if self.seconds - self.after_s <= self.left_s:
            return told
        others = "after which measuring goes on for the others" if goes_on else self._cure(budget_s)
        return (
            f"{told}; the {human_seconds(self.left_s, digits=2)} that are left are enough for about"
            f" {self.affordable}, those of changed code first ({others})"
        )

    def going_on(self, *, budget_s: float, most_s: float) -> str:
        """Return a sentence on what is measured after the budget, for ``most_s`` seconds at most."""
        return (
            f"the budget of {human_seconds(budget_s)} is over: going on with"
            f" {counted(len(self.costs_s), 'undecided benchmark')}, which takes about"
            f" {human_seconds(self.seconds, digits=2)} and {human_seconds(most_s)} at most"
            ' (inconclusive = "go on")'
        )

    def not_reached(self, number: int, *, of: int, changed: int | None, budget_s: float) -> str:
        """Return what to say of the ``number`` benchmarks that were not reached, and what reaches them.

        ``changed`` of them may run code that differs between the sides, None where all may, or none.
        """
        told = (
            f"{number} of {counted(of, 'benchmark')} {'was' if number == 1 else 'were'} not reached, since"
            f" the budget of {human_seconds(budget_s)} was over before"
        )
        if changed is not None:
            verb = "is" if changed == 1 else "are"
            left = f"{changed} of these {verb} left" if changed else "all of these were reached"
            told += f". Those that may run changed code come first, and {left}"
        soonest = self._enough_s(self.changed_costs_s, budget_s)
        these = f"--budget {soonest} reaches these, with " if changed else ""
        every = f"--budget {self.enough_s(budget_s)}{'' if changed else ' reaches'} all of them"
        return (
            f"{told}. The same command with {these}{every}; --select EXPR chooses fewer, and each of fewer is"
            " decided sooner"
        )

    def enough_s(self, budget_s: float) -> int:
        """Return the budget that decides all of them, to ten seconds."""
        return self._enough_s(self.costs_s, budget_s)

    def _enough_s(self, costs_s: Collection[float], budget_s: float) -> int:
        return math.ceil((budget_s + math.fsum(costs_s) - self.left_s) / 10) * 10

    def _cure(self, budget_s: float) -> str:
        return f"--budget {self.enough_s(budget_s)} for all, or --select to measure fewer"


def _order(one: Candidate, left_s: float) -> tuple[bool, bool, bool, bool, float]:
    decision_s = _affordable_decision_s(one, left_s)
    soonest_s = decision_s or one.next_look_s
    return (decision_s is None, not one.suspect, not one.changed, not one.begun, soonest_s)


def _affordable_decision_s(one: Candidate, left_s: float) -> float | None:
    return one.decision_s if one.decision_s is not None and one.decision_s <= left_s else None
