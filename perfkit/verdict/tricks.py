"""What a trick does on this machine: its times, its equivalence and its counts in one answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perfkit.records import Commit, Environment, Machine
from perfkit.records.tricks import Equivalence, TrickCase
from perfkit.stats.crossing import crossing
from perfkit.verdict.model import Comparison, ExactComparison, Policy, TimedVerdict

Answer = Literal["helps", "hurts", "no difference", "cannot tell", "not the same", "failed"]
ANSWERS: tuple[Answer, ...] = (
    "helps", "hurts", "no difference", "cannot tell", "not the same", "failed",
)  # fmt: skip
_OF_VERDICT: Mapping[TimedVerdict, Answer] = {
    "IMPROVED": "helps",
    "REGRESSED": "hurts",
    "UNCHANGED": "no difference",
    "INCONCLUSIVE": "cannot tell",
}


@dataclass(frozen=True, kw_only=True)
class TrickResult:
    """One trick at one size: base is without it, head with it. ``exact`` are the counts of both sides."""

    case: TrickCase
    comparison: Comparison
    equivalence: Equivalence
    exact: tuple[ExactComparison, ...] = ()

    @property
    def answer(self) -> Answer:
        """What it does; sides that do not do the same have no times to compare."""
        if not self.equivalence.equal:
            return "failed" if self.equivalence.problem else "not the same"
        for verdict, answer in _OF_VERDICT.items():
            if self.comparison.verdict == verdict:
                return answer
        return "failed"

    @property
    def ratio(self) -> float | None:
        """Time with the trick over time without it."""
        return self.comparison.estimate.ratio if self.comparison.estimate else None

    @property
    def peak_moved(self) -> float | None:
        """Bytes by which the peak of tensors differs; None where it was not counted on both sides."""
        for one in self.exact:
            if one.metric.name == "peak" and one.base is not None and one.head is not None:
                return one.head - one.base
        return None


@dataclass(frozen=True, kw_only=True)
class TricksReport:
    """All tricks that were tried, and why others were not: {"pinned_memory": "needs CUDA"}."""

    run_id: str
    recorded_at: datetime
    commit: Commit
    machine: Machine
    environment: Environment
    policy: Policy
    wall_s: float
    results: tuple[TrickResult, ...]
    left_out: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SizeCrossing:
    """A trick that hurts on one side of a size and helps on the other."""

    trick: str
    size_means: str
    below: int
    above: int
    size: float
    helps_above: bool


def ranked(results: Iterable[TrickResult]) -> list[TrickResult]:
    """Return results by their answer, and within one by how much they gain."""
    return sorted(results, key=lambda one: (ANSWERS.index(one.answer), one.ratio or 1.0, one.case.name))


def size_crossings(results: Iterable[TrickResult]) -> list[SizeCrossing]:
    """Return where a trick's answer turns from "helps" to "hurts" or back, between sizes that were tried."""
    by_trick: dict[str, list[TrickResult]] = {}
    for one in results:
        if one.answer in {"helps", "hurts"} and one.ratio:
            by_trick.setdefault(one.case.trick, []).append(one)
    found = []
    for trick, decided in by_trick.items():
        ordered = sorted(decided, key=lambda one: one.case.size)
        for low, high in itertools.pairwise(ordered):
            size = crossing((low.case.size, low.ratio or 1.0), (high.case.size, high.ratio or 1.0))
            if size is not None:
                found.append(
                    SizeCrossing(
                        trick=trick,
                        size_means=low.case.size_means,
                        below=low.case.size,
                        above=high.case.size,
                        size=size,
                        helps_above=high.answer == "helps",
                    )
                )
    return found
