"""Tricks against the same work without them: both sides in lockstep until decided, then counted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfkit.compare.counts import Tally, count_contenders, count_target, joined
from perfkit.compare.sequential import Contender, SequentialComparison, Trial
from perfkit.compare.staging import staged_launcher
from perfkit.compare.survey import finding_on_failure
from perfkit.measure.lockstep.launch import SideReport
from perfkit.measure.lockstep.launcher import Launcher
from perfkit.measure.lockstep.schedule import schedule
from perfkit.measure.lockstep.scout import scout
from perfkit.records import SIDES
from perfkit.records.comparisons import Comparison, Policy
from perfkit.records.tricks import Equivalence, Loop, TrickCase
from perfkit.tricks.suite import SUITE, instruction_files, node_of, step_script

# Setting up a few of them takes seconds, and loops are the user's.
_LIMIT_S = 120.0
# So many tricks share a preloader's start that each launch can have its own: no bias of one is ever shared.
_LAUNCHES_PER_PRELOADER = 1


class Listener(Protocol):
    """Is told what happens, and how the tricks stand."""

    def begin(self, title: str) -> None:
        """Say what is compared."""

    def say(self, text: str) -> None:
        """Say which stage begins."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Say how they stand."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cases and the loop that some are on, how alike their sides are, and how they are judged."""

    cases: tuple[TrickCase, ...]
    loop: Loop | None
    equivalences: Mapping[str, Equivalence]
    policy: Policy
    margin: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class TrickMeasurements:
    """What was measured of a plan; ``contenders`` by benchmark are those whose sides do the same."""

    plan: Plan
    contenders: Mapping[str, Contender]
    comparison: SequentialComparison
    tally: Tally
    report: SideReport

    @property
    def judged(self) -> list[Comparison]:
        """The verdict on each contender."""
        return [_judged(trial, self.plan.policy) for trial in self.comparison.trials.values()]

    @property
    def by_case(self) -> list[tuple[TrickCase, Comparison]]:
        """The verdict on each case whose sides do the same."""
        verdicts = {one.benchmark.name: one for one in self.judged}
        return [(case, verdicts[node_of(case)]) for case in self.plan.cases if node_of(case) in verdicts]


def measure(plan: Plan, folder: Path, *, listener: Listener, deadline: float) -> TrickMeasurements:
    """Measure what a plan says in a folder of its own; ``deadline`` is on the monotonic clock."""
    folder.mkdir()
    sides = instruction_files(plan.cases, plan.loop)
    with staged_launcher(
        SUITE,
        folder,
        environment=os.environ,
        seed=plan.seed,
        beside=sides,
        launches_per_preloader=_LAUNCHES_PER_PRELOADER,
    ) as launcher:
        return _measured(plan, launcher, listener, deadline)


def _measured(plan: Plan, launcher: Launcher, listener: Listener, deadline: float) -> TrickMeasurements:
    listener.say("setting up")
    found = scout(launcher.start("head", nodes=None))
    launcher.warm_up(found.report.libraries)
    contenders = {
        node_of(case): Contender(
            benchmark=found.found[node_of(case)].benchmark,
            margin=plan.margin,
            gating=True,
            limit_s=_LIMIT_S,
        )
        for case in plan.cases
        # Of sides that do not do the same no time means anything.
        if plan.equivalences[case.name].equal
    }
    comparison = SequentialComparison(
        launcher=launcher,
        trials={node: Trial(contender) for node, contender in contenders.items()},
        policy=plan.policy,
        deadline=deadline,
    )
    listener.say("measuring")
    comparison.run(schedule(seed=plan.seed), listener)
    return TrickMeasurements(
        plan=plan,
        contenders=contenders,
        comparison=comparison,
        tally=_counted(plan, contenders, launcher, listener),
        report=found.report,
    )


def _counted(
    plan: Plan, contenders: Mapping[str, Contender], launcher: Launcher, listener: Listener
) -> Tally:
    """Count a call of each case that is measured; of a loop, a step."""
    listener.say("counting")
    measured = [case for case in plan.cases if node_of(case) in contenders]
    apart = [contenders[node_of(case)] for case in measured if not case.loop]
    tallies = [count_contenders(apart, launcher, say=lambda _: None, decide=False)]
    for case in measured:
        if case.loop:
            places = {side: str(launcher.root(side) / step_script(case)) for side in SIDES}
            tallies.append(count_target(contenders[node_of(case)], places, launcher))
    return joined(tallies)


def _judged(trial: Trial, policy: Policy) -> Comparison:
    if trial.failure is None:
        return trial.judge(policy)
    return finding_on_failure(trial.contender, trial.failure)
