"""What a trick does on this machine: its times, its equivalence and its counts in one answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, get_args

from perfkit.features.experiments.records import Level
from perfkit.features.tricks.trick import CheckedClaim, Equivalence, TrickCase
from perfkit.gating.judge import interval_verdict
from perfkit.model import Commit, Environment, Machine
from perfkit.model.comparisons import Comparison, Estimate, ExactComparison, Policy, TimedVerdict, Verdict
from perfkit.stats.summary import crossing

Answer = Literal["helps", "hurts", "no difference", "cannot tell", "not the same", "failed"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)
_OF_VERDICT: Mapping[Verdict, Answer] = {
    "IMPROVED": "helps",
    "REGRESSED": "hurts",
    "UNCHANGED": "no difference",
    "INCONCLUSIVE": "cannot tell",
    "NOT REACHED": "cannot tell",
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
        return _OF_VERDICT.get(self.comparison.verdict, "failed")

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
    """All tricks that were tried, and why others were not.

    ``left_out`` is {"pinned_memory": "needs CUDA"}, and ``arguments`` are those of the loop; ``patches`` are
    the lines of its source that a trick is written into. Before the
    ``wall_s`` seconds that all took, another perfkit kept it waiting for ``waited_s``. ``unrecorded`` is
    the reason why it is not in the ledger, None where it is.
    """

    run_id: str
    recorded_at: datetime
    commit: Commit
    machine: Machine
    environment: Environment
    policy: Policy
    wall_s: float
    waited_s: float = 0.0
    results: tuple[TrickResult, ...]
    left_out: Mapping[str, str]
    claims: tuple[CheckedClaim, ...] = ()
    arguments: Mapping[str, Level] = field(default_factory=dict)
    patches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unrecorded: str | None = None


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """What two tricks give together on a loop, against what they would give if their effects multiplied.

    The interval is of the measured time over the expected one: above one, each reduces the gain of the other.
    """

    both: TrickResult
    expected: float
    low: float
    high: float
    verdict: TimedVerdict


def helping(found: Iterable[tuple[TrickCase, Comparison]]) -> list[TrickCase]:
    """Return the cases on a loop that help, the best first."""
    helped = [
        (one.estimate.ratio, case)
        for case, one in found
        if case.loop and one.verdict == "IMPROVED" and one.estimate is not None
    ]
    return [case for _, case in sorted(helped, key=lambda pair: pair[0])]


def suggested(results: Iterable[TrickResult]) -> list[TrickResult]:
    """Return the single tricks that help on a loop, the best first."""
    return [
        one
        for one in ranked(results)
        if one.case.loop and one.answer == "helps" and len(one.case.tricks) == 1
    ]


def interactions(results: Sequence[TrickResult]) -> list[Interaction]:
    """Return what tricks tried together give against each by itself; intervals hold at once."""
    known = {one.case.name: one.comparison.estimate for one in results}
    found = []
    for both in results:
        names = (replace(both.case, trick=trick).name for trick in both.case.tricks)
        match [both.comparison.estimate, *map(known.get, names)]:
            case [Estimate() as joint, Estimate() as one, Estimate() as other]:
                found.append(_interaction(both, joint, one, other))
    return found


def _interaction(both: TrickResult, joint: Estimate, one: Estimate, other: Estimate) -> Interaction:
    low, high = joint.low / (one.high * other.high), joint.high / (one.low * other.low)
    return Interaction(
        both=both,
        expected=one.ratio * other.ratio,
        low=low,
        high=high,
        verdict=interval_verdict(low, high, both.comparison.margin),
    )


def ranked(results: Iterable[TrickResult]) -> list[TrickResult]:
    """Return results by their answer, and within one by how much they gain."""
    return sorted(results, key=lambda one: (ANSWERS.index(one.answer), one.ratio or 1.0, one.case.name))


def size_crossings(results: Iterable[TrickResult]) -> list[tuple[TrickCase, TrickCase, float, bool]]:
    """Return between which cases a trick turns from "helps" to "hurts" or back, at which size.

    The last part is whether it helps above that size.
    """
    by_trick: dict[str, list[tuple[float, TrickResult]]] = {}
    for one in results:
        if one.answer in {"helps", "hurts"} and one.ratio:
            by_trick.setdefault(one.case.trick, []).append((one.ratio, one))
    found = []
    for decided in by_trick.values():
        ordered = sorted(decided, key=lambda pair: pair[1].case.size)
        for (first, low), (second, high) in itertools.pairwise(ordered):
            size = crossing((low.case.size, first), (high.case.size, second))
            if size is not None:
                found.append((low.case, high.case, size, high.answer == "helps"))
    return found
