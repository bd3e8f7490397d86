"""Which benchmarks get the time that is left: first possible slowdowns, then those decided soonest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """An undecided benchmark, and about how many seconds it asks for.

    ``next_look_s`` leads to its next look, ``decision_s`` to the look that will decide it if it goes on as
    it began, None where none would. ``suspect`` is one that reads slower than its margin allows.
    """

    node: str
    next_look_s: float
    decision_s: float | None
    suspect: bool


def share_out(candidates: Iterable[Candidate], left_s: float) -> set[str]:
    """Return the nodes that get a launch now, when ``left_s`` seconds are left for all of them.

    The first benchmark reserves the time to its decision, and the next ones share what remains. This choice
    does not change error rates: each look of each benchmark has its own share of alpha, whatever led to it.
    """
    chosen = set()
    for one in sorted(candidates, key=lambda one: _order(one, left_s)):
        if one.next_look_s <= left_s:
            chosen.add(one.node)
            left_s -= _affordable_decision_s(one, left_s) or one.next_look_s
    return chosen


def _order(one: Candidate, left_s: float) -> tuple[bool, bool, float]:
    decision_s = _affordable_decision_s(one, left_s)
    return (decision_s is None, not one.suspect, decision_s or one.next_look_s)


def _affordable_decision_s(one: Candidate, left_s: float) -> float | None:
    return one.decision_s if one.decision_s is not None and one.decision_s <= left_s else None
