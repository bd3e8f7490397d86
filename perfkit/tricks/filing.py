"""What was measured of tricks as rows of the ledger, and a report from rows: they are all that there is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from perfkit.compare.filing import RunContext, count_rows, finding_row, launch_rows
from perfkit.compare.sequential import ComparedBenchmark, MeasuredLaunch
from perfkit.records import Benchmark, Row
from perfkit.records.comparisons import Comparison
from perfkit.records.experiments import Level
from perfkit.records.tricks import CheckedClaim, Equivalence, TrickCase
from perfkit.tricks.measuring import Plan, TrickMeasurements
from perfkit.tricks.suite import node_of
from perfkit.verdict.exact import ExactPolicy
from perfkit.verdict.from_rows import comparison_of, exact_comparisons_of, is_count, policy_of
from perfkit.verdict.tricks import TrickResult, TricksReport

# Entries of a row's policy.
_CASE = "case"
_EQUIVALENCE = "equivalence"
_LEFT_OUT = "left_out"
_CLAIMS = "claims"
_WALL = "wall_s"
_ARGUMENTS = "arguments"


def run_entries(
    *,
    arguments: Mapping[str, Level],
    left_out: Mapping[str, str],
    claims: Sequence[CheckedClaim],
    wall_s: float,
) -> dict[str, str]:
    """Return what all rows of a run say of it."""
    return {
        _ARGUMENTS: json.dumps(dict(arguments)),
        _LEFT_OUT: json.dumps(dict(left_out)),
        _CLAIMS: msgspec.json.encode(claims).decode(),
        _WALL: f"{wall_s:.1f}",
    }


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
    # Both the tolerance and what decides are a gate's: here nothing gates, it is told.
    compared = measurements.tally.compared(ExactPolicy(gating=(), tolerance=0.05))
    for row in (*findings, *count_rows(measurements.tally.pairs, compared, context)):
        yield _labelled(row, measurements.plan)


def report_of(rows: Sequence[Row]) -> TricksReport:
    """Return what the rows of one run say."""
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row.policy[_CASE], []).append(row)
    first = rows[0]
    return TricksReport(
        run_id=first.run_id,
        recorded_at=first.recorded_at,
        commit=first.commit,
        machine=first.machine,
        environment=first.environment,
        policy=policy_of(rows),
        wall_s=float(first.policy[_WALL]),
        results=tuple(_result(found) for found in by_case.values()),
        arguments=json.loads(first.policy[_ARGUMENTS]),
        left_out=json.loads(first.policy[_LEFT_OUT]),
        claims=msgspec.json.decode(first.policy[_CLAIMS], type=tuple[CheckedClaim, ...]),
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
    label = {
        _CASE: msgspec.json.encode(case).decode(),
        _EQUIVALENCE: msgspec.json.encode(plan.equivalences[case.name]).decode(),
    }
    return replace(row, policy={**row.policy, **label})


def _result(rows: Sequence[Row]) -> TrickResult:
    said = rows[0].policy
    return TrickResult(
        case=msgspec.json.decode(said[_CASE], type=TrickCase),
        comparison=comparison_of([row for row in rows if not is_count(row)]),
        equivalence=msgspec.json.decode(said[_EQUIVALENCE], type=Equivalence),
        exact=tuple(exact_comparisons_of(rows)),
    )
