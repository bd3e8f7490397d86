"""Tricks against the same work without them: both sides in lockstep until decided, then counted."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from perfkit.features.tricks.records import Equivalence, Loop, TrickCase
from perfkit.features.tricks.suite import SUITE, instruction_files, node_of, step_script
from perfkit.gating.counters import CountResult, count_compared, count_target, joined
from perfkit.gating.rules import ComparedBenchmark, finding_on_failure
from perfkit.gating.run import BenchmarkState, LockstepLaunches, MeasuredLaunch, SequentialComparison
from perfkit.gating.sides import staged_launcher
from perfkit.model import SIDES
from perfkit.model.comparisons import Comparison, Policy
from perfkit.model.progress import ComparisonProgress
from perfkit.runner.lockstep.launch import SideReport
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.schedule import schedule
from perfkit.runner.lockstep.scout import scout

# The limit is long, since some tricks take seconds to set up, and a user's loop may take longer.
_LIMIT_S = 120.0
# Each launch has a preloader of its own, so that no two launches share its bias. That is affordable, since
# many tricks share the time that it takes to start one.
_LAUNCHES_PER_PRELOADER = 1


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
    """What was measured of a plan; ``compared`` are the benchmarks whose sides do the same, by name."""

    plan: Plan
    compared: Mapping[str, ComparedBenchmark]
    comparison: SequentialComparison
    result: CountResult
    report: SideReport

    @property
    def judged(self) -> list[Comparison]:
        """The verdict on each benchmark."""
        return [_judged(state, self.plan.policy) for state in self.comparison.states.values()]

    @property
    def by_case(self) -> list[tuple[TrickCase, Comparison]]:
        """The verdict on each case whose sides do the same."""
        verdicts = {one.benchmark.name: one for one in self.judged}
        return [(case, verdicts[node_of(case)]) for case in self.plan.cases if node_of(case) in verdicts]


class Keep(Protocol):
    """Records what each launch measured, before the next one is made."""

    def __call__(
        self,
        plan: Plan,
        report: SideReport,
        compared: Mapping[str, ComparedBenchmark],
        measured: Sequence[MeasuredLaunch],
    ) -> None:
        """Record launches of a plan's benchmarks; the report is what a side said when they were listed."""


def measure(
    plan: Plan, folder: Path, *, keep: Keep, progress: ComparisonProgress, deadline: float
) -> TrickMeasurements:
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
        return _measured(plan, launcher, keep, progress, deadline)


def _measured(
    plan: Plan, launcher: Launcher, keep: Keep, progress: ComparisonProgress, deadline: float
) -> TrickMeasurements:
    progress.info("setting up")
    found = scout(launcher.start("head", nodes=None))
    launcher.warm_up(found.report.libraries)
    compared = {
        node_of(case): ComparedBenchmark(
            benchmark=found.found[node_of(case)].benchmark,
            margin=plan.margin,
            gating=True,
            limit_s=_LIMIT_S,
        )
        for case in plan.cases
        # Times of sides that do not do the same cannot be compared.
        if plan.equivalences[case.name].equal
    }
    comparison = SequentialComparison.of(
        compared.values(),
        launches=LockstepLaunches(launcher, limit_s=lambda _: _LIMIT_S),
        policy=plan.policy,
        deadline=deadline,
    )
    comparison.keep = lambda measured: keep(plan, found.report, compared, measured)
    progress.info("measuring")
    comparison.run(schedule(seed=plan.seed), progress)
    return TrickMeasurements(
        plan=plan,
        compared=compared,
        comparison=comparison,
        result=_counted(plan, compared, launcher, progress),
        report=found.report,
    )


def _counted(
    plan: Plan, compared: Mapping[str, ComparedBenchmark], launcher: Launcher, progress: ComparisonProgress
) -> CountResult:
    """Count a call of each case that is measured; of a loop, a step."""
    progress.info("counting")
    measured = [case for case in plan.cases if node_of(case) in compared]
    apart = [compared[node_of(case)] for case in measured if not case.loop]
    results = [count_compared(apart, launcher, log=lambda _: None, decide=False)]
    for case in measured:
        if case.loop:
            places = {side: str(launcher.root(side) / step_script(case)) for side in SIDES}
            results.append(count_target(compared[node_of(case)], places, launcher))
    return joined(results)


def _judged(state: BenchmarkState, policy: Policy) -> Comparison:
    if state.failure is None:
        return state.judge(policy)
    return finding_on_failure(state.compared, state.failure)
