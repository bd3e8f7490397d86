"""A sequential comparison: launches until every benchmark is decided, or the budget will not decide more."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from perfkit.compare.budget import Candidate, share_out
from perfkit.measure.clock import utc_now
from perfkit.measure.lockstep.launch import (
    Failure,
    LaunchRecord,
    LaunchRules,
    SideReport,
    run_launch,
    shared_libraries,
)
from perfkit.measure.lockstep.launcher import Launcher
from perfkit.measure.lockstep.pace import Pace
from perfkit.measure.lockstep.schedule import Slot
from perfkit.measure.lockstep.turns import Timing
from perfkit.records import SIDES, Benchmark, Side
from perfkit.records.comparisons import Comparison, LaunchPair, Policy
from perfkit.verdict.from_rows import joined_pairs
from perfkit.verdict.judge import compare

# The least that one launch spends on a benchmark, both sides together.
LAUNCH_S = 0.06


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A benchmark that both sides have, and how it is judged; ``limit_s`` is how long it may stay silent.

    ``prior`` are its launches from earlier gates on the same pair, whose test this run continues.
    """

    benchmark: Benchmark
    margin: float
    gating: bool
    limit_s: float
    prior: tuple[LaunchPair, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One launch of one benchmark on both sides, and where it stood."""

    node: str
    slot: Slot
    preloader: int
    timing: Timing
    at: datetime


@dataclass
class Trial:
    """What is known of one benchmark so far."""

    contender: Contender
    own: list[LaunchPair] = field(default_factory=list)
    failure: Failure | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def pairs(self) -> tuple[LaunchPair, ...]:
        """All launches of the test: those of earlier gates, then this run's own."""
        return joined_pairs([self.contender.prior, self.own])

    @property
    def launch_s(self) -> float | None:
        """Seconds that a launch of it takes, None before the first."""
        return statistics.fmean(self.seconds[1:] or self.seconds) if self.seconds else None

    def judge(self, policy: Policy) -> Comparison:
        """Return the verdict as far as it is known."""
        return compare(
            self.contender.benchmark,
            self.pairs,
            policy,
            margin=self.contender.margin,
            gating=self.contender.gating,
            launch_s=self.launch_s,
        )


class Listener(Protocol):
    """Is told how a comparison stands, between launches only."""

    def update(self, comparisons: Sequence[Comparison], elapsed_s: float, left_s: float) -> None:
        """Show the state."""


@dataclass
class SequentialComparison:
    """Measures contenders until they are decided; what it has measured survives an interruption."""

    launcher: Launcher
    trials: Mapping[str, Trial]
    policy: Policy
    deadline: float
    measured: list[Measured] = field(default_factory=list)
    reports: dict[Side, SideReport] = field(default_factory=dict)
    _paces: dict[str, Pace] = field(default_factory=dict)
    _judged: dict[str, tuple[int, Comparison]] = field(default_factory=dict)
    _overhead_s: float = 0.0

    def run(self, slots: Iterable[Slot], listener: Listener) -> None:
        """Run launches in the order of ``slots``; ``deadline`` is on the monotonic clock."""
        begun = time.monotonic()
        for number, slot in enumerate(slots):
            listener.update(self.comparisons(), time.monotonic() - begun, self._left_s())
            nodes = self._next_nodes()
            if not nodes:
                return
            self.launcher.renew_when_due(number)
            self._launch(slot, nodes, first=number == 0)

    def comparisons(self) -> tuple[Comparison, ...]:
        """Return how every contender that has not failed stands."""
        return tuple(self._judge(node) for node, trial in self.trials.items() if trial.failure is None)

    def _launch(self, slot: Slot, nodes: Sequence[str], *, first: bool) -> None:
        begun = time.monotonic()
        children = self.launcher.start_both(slot, nodes=nodes)
        rules = LaunchRules(launch_s=LAUNCH_S, limit_s=lambda node: self.trials[node].contender.limit_s)
        record = run_launch(children, nodes, paces=self._paces, rules=rules)
        self._keep(slot, nodes, record)
        if not first:
            self._overhead_s = time.monotonic() - begun - sum(record.seconds.values())

    def _keep(self, slot: Slot, nodes: Sequence[str], record: LaunchRecord) -> None:
        self.reports.update(record.reports)
        self._learn(record)
        for failure in record.failures:
            self.trials[failure.node].failure = failure
        for node in nodes:
            if node in record.timings:
                self._keep_timing(node, slot, record.timings[node], record.seconds[node])

    def _learn(self, record: LaunchRecord) -> None:
        """Let later launches start with what both sides of this one imported: some is only seen in use."""
        if len(record.reports) == len(SIDES):
            self.launcher.warm_up(shared_libraries(record.reports["base"], record.reports["head"]))

    def _keep_timing(self, node: str, slot: Slot, timing: Timing, seconds: float) -> None:
        trial, preloader = self.trials[node], self.launcher.preloader
        self.measured.append(Measured(node=node, slot=slot, preloader=preloader, timing=timing, at=utc_now()))
        trial.own.append(launch_pair(timing, slot, preloader))
        # The first also learns its pace, and imports what later ones find in their preloader.
        trial.seconds.append(seconds if trial.seconds else _timed_s(timing))

    def _next_nodes(self) -> list[str]:
        """Return the undecided benchmarks that get a share of the time that is left."""
        undecided = {
            node: found
            for node, trial in self.trials.items()
            if trial.failure is None and (found := self._judge(node)).verdict == "INCONCLUSIVE"
        }
        overhead_s = self._overhead_s / max(len(undecided), 1)
        candidates = [self._candidate(node, found, overhead_s) for node, found in undecided.items()]
        chosen = share_out(filter(None, candidates), self._left_s())
        return [node for node in undecided if node in chosen]

    def _candidate(self, node: str, found: Comparison, overhead_s: float) -> Candidate | None:
        """Return what a benchmark asks for, None where it has had its last look."""
        trial = self.trials[node]
        look = min((look for look in self.policy.looks if look > len(trial.pairs)), default=None)
        if look is None:
            return None
        launch_s = (trial.launch_s or 0.0) + overhead_s
        return Candidate(
            node=node,
            next_look_s=(look - len(trial.pairs)) * launch_s,
            decision_s=found.need.launches * launch_s if found.need else None,
            suspect=found.estimate is not None and found.estimate.ratio > 1 + found.margin,
        )

    def _judge(self, node: str) -> Comparison:
        """Judge a benchmark, anew only where launches were added."""
        trial = self.trials[node]
        known = self._judged.get(node)
        if known is None or known[0] != len(trial.own):
            known = self._judged[node] = (len(trial.own), trial.judge(self.policy))
        return known[1]

    def _left_s(self) -> float:
        return max(self.deadline - time.monotonic(), 0.0)


def launch_pair(timing: Timing, slot: Slot, preloader: int) -> LaunchPair:
    """Return a launch as it is judged."""
    return LaunchPair(
        launch=slot.launch,
        preloader=preloader,
        base_s=timing.base_s,
        head_s=timing.head_s,
        base_typical_s=timing.base_typical_s,
        head_typical_s=timing.head_typical_s,
    )


def _timed_s(timing: Timing) -> float:
    return timing.pace.loops * (sum(timing.base_s) + sum(timing.head_s))
