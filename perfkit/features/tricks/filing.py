"""Measurements of tricks as rows of the ledger, and a report that is made from those rows alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace

from perfkit.errors import LedgerError
from perfkit.features.tricks.measuring import Plan, TrickMeasurements
from perfkit.features.tricks.policy import TrickPolicy, TricksRun
from perfkit.features.tricks.records import TrickCase
from perfkit.features.tricks.suite import node_of
from perfkit.features.tricks.verdict import TrickResult, TricksReport
from perfkit.gating.counter_verdicts import CounterPolicy
from perfkit.gating.rows import (
    RunContext,
    comparison_of,
    count_rows,
    exact_comparisons_of,
    finding_row,
    finished_row,
    launch_rows,
)
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.run import MeasuredLaunch
from perfkit.model import Benchmark, Row
from perfkit.model.comparisons import Comparison, Verdict
from perfkit.model.policies import JudgedPolicy
from perfkit.model.counters import is_count
from perfkit.model.policies import JudgedPolicy, TrickPolicy, TricksRun


def settled_trick(row: Row, verdicts: Mapping[str, Verdict], run: TricksRun, *, wall_s: float) -> Row:
    """Return a row with what is known only when the trial is over: its verdict, and what all rows say."""
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
    # A gate's counts and tolerance are used, but they only tell: nothing gates here.
    compared = measurements.result.compared(CounterPolicy(gating=(), tolerance=0.05))
    for row in (*findings, *count_rows(measurements.result.pairs, compared, context)):
        yield _labelled(row, measurements.plan)


def report_of(rows: Sequence[Row]) -> TricksReport:
    """Return what the rows of one run say."""
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
    raise LedgerError(f"a row of the run {row.run_id} does not say which trick it is of")
