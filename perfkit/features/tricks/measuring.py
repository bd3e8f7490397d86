"""Tricks against the same work without them: measured in lockstep until decided, counted, and made rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from perfkit.errors import LedgerError
from perfkit.features.tricks.policy import TrickPolicy, TricksRun
from perfkit.features.tricks.records import Equivalence, Loop, TrickCase
from perfkit.features.tricks.suite import SUITE, instruction_files, node_of, step_script
from perfkit.features.tricks.verdict import TrickResult, TricksReport
from perfkit.gating.counter_verdicts import CounterPolicy
from perfkit.gating.counters import CountResult, count_compared, count_target, joined
from perfkit.gating.rows import (
    RunContext,
    comparison_of,
    count_rows,
    exact_comparisons_of,
    finding_row,
    finished_row,
    launch_rows,
)
from perfkit.gating.rules import ComparedBenchmark, finding_on_failure
from perfkit.gating.run import BenchmarkState, LockstepLaunches, MeasuredLaunch, SequentialComparison
from perfkit.gating.sides import staged_launcher
from perfkit.model import SIDES, Benchmark, Row
from perfkit.model.comparisons import Comparison, Policy, Verdict
from perfkit.model.counters import is_count
from perfkit.model.policies import JudgedPolicy
from perfkit.model.progress import ComparisonProgress
from perfkit.runner.lockstep.collection import list_benchmarks
from perfkit.runner.lockstep.launch import SideReport, schedule
from perfkit.runner.lockstep.launcher import Launcher

# The limit is long, since some tricks take seconds to set up, and a user's loop may take longer.
_LIMIT_S = 120.0
# Each launch has a fork server of its own, so that no two launches share its bias. That is affordable, since
# many tricks share the time that it takes to start one.
_LAUNCHES_PER_FORK_SERVER = 1

# Records what each launch measured, before the next one is made; the report is that of a side when its
# benchmarks were listed.
Keep = Callable[[SideReport, Mapping[str, ComparedBenchmark], Sequence[MeasuredLaunch]], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The cases and the loop of some, whether their sides are equivalent, and how they are judged."""

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


def measure(
    plan: Plan, folder: Path, *, keep: Keep, progress: ComparisonProgress, deadline: float
) -> TrickMeasurements:
    """Measure a plan in a folder of its own; ``deadline`` is on the monotonic clock."""
    folder.mkdir()
    with staged_launcher(
        SUITE,
        folder,
        environment=os.environ,
        seed=plan.seed,
        beside=instruction_files(plan.cases, plan.loop),
        launches_per_fork_server=_LAUNCHES_PER_FORK_SERVER,
    ) as launcher:
        return _measured(plan, launcher, keep, progress, deadline)


def _measured(
    plan: Plan, launcher: Launcher, keep: Keep, progress: ComparisonProgress, deadline: float
) -> TrickMeasurements:
    progress.info("setting up")
    found = list_benchmarks(launcher.start("head", nodes=None))
    launcher.warm_up(found.report.libraries)
    compared = {
        node_of(case): ComparedBenchmark(
            benchmark=found.found[node_of(case)].benchmark, margin=plan.margin, gating=True, limit_s=_LIMIT_S
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
    comparison.keep = lambda measured: keep(found.report, compared, measured)
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
    by_themselves = [compared[node_of(case)] for case in measured if not case.loop]
    results = [count_compared(by_themselves, launcher, log=lambda _: None, decide=False)]
    for case in measured:
        if case.loop:
            places = {side: str(launcher.root(side) / step_script(case)) for side in SIDES}
            results.append(count_target(compared[node_of(case)], places, launcher))
    return joined(results)


def _judged(state: BenchmarkState, policy: Policy) -> Comparison:
    if state.failure is None:
        return state.judge(policy)
    return finding_on_failure(state.compared, state.failure)


def settled_trick(row: Row, verdicts: Mapping[str, Verdict], run: TricksRun, *, wall_s: float) -> Row:
    """Return a row with its verdict and the facts of the run, which are known only at the end."""
    row = finished_row(row, verdicts, wall_s=wall_s)
    return replace(row, policy=replace(_policy(row), run=run))


def timed_rows(
    plan: Plan,
    compared: Mapping[str, ComparedBenchmark],
    measured: Sequence[MeasuredLaunch],
    context: RunContext,
) -> Iterator[Row]:
    """Yield a row for each launch of a plan's benchmarks."""
    for row in launch_rows(measured, compared, context):
        yield _labelled(row, plan)


def other_rows(measurements: TrickMeasurements, timed: Iterable[Row], context: RunContext) -> Iterator[Row]:
    """Yield a row for each count, and for each case that has no time; ``timed`` are the other rows."""
    judged = measurements.judged
    measured = {row.outcome.benchmark.name for row in timed}
    findings = [
        finding_row(one, context)
        for one in (*judged, *_unequal(measurements.plan))
        if one.estimate is None or one.benchmark.name not in measured
    ]
    # Counters are compared as in a gate, but none of them gates.
    compared = measurements.result.compared(CounterPolicy(gating=(), tolerance=0.05))
    for row in (*findings, *count_rows(measurements.result.pairs, compared, context)):
        yield _labelled(row, measurements.plan)


def report_of(rows: Sequence[Row]) -> TricksReport:
    """Return the report that the rows of one run hold."""
    by_case: dict[TrickCase, list[Row]] = {}
    for row in rows:
        by_case.setdefault(_policy(row).case, []).append(row)
    first, policy = rows[0], _policy(rows[0])
    run = policy.run or TricksRun(arguments={}, left_out={})
    return TricksReport(
        run_id=first.run_id,
        recorded_at=first.recorded_at,
        commit=first.commit,
        machine=first.machine,
        environment=first.environment,
        policy=policy.rules,
        wall_s=policy.wall_s or 0.0,
        results=tuple(_result(found) for found in by_case.values()),
        arguments=run.arguments,
        left_out=run.left_out,
        claims=run.claims,
    )


def _unequal(plan: Plan) -> Iterator[Comparison]:
    """Yield a finding for each case that was not measured."""
    for case in plan.cases:
        found = plan.equivalences[case.name]
        if not found.equal:
            yield Comparison(
                benchmark=Benchmark(name=node_of(case), version=""),
                verdict="FAILED",
                margin=plan.margin,
                message=found.problem or "its two sides do not give the same",
            )


def _labelled(row: Row, plan: Plan) -> Row:
    case = next(case for case in plan.cases if node_of(case) == row.outcome.benchmark.name)
    judged = {each.name: getattr(row.policy, each.name) for each in fields(JudgedPolicy)}
    policy = TrickPolicy(**judged, case=case, equivalence=plan.equivalences[case.name])
    return replace(row, policy=policy)


def _result(rows: Sequence[Row]) -> TrickResult:
    policy = _policy(rows[0])
    return TrickResult(
        case=policy.case,
        comparison=comparison_of([row for row in rows if not is_count(row)]),
        equivalence=policy.equivalence,
        exact=tuple(exact_comparisons_of(rows)),
    )


def _policy(row: Row) -> TrickPolicy:
    if isinstance(row.policy, TrickPolicy):
        return row.policy
    raise LedgerError(f"a row of the run {row.run_id} names no trick")
