"""These builders make synthetic ledger rows and gate results."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Literal

from perfkit.model import (
    Benchmark,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
    RowPolicy,
    Side,
    Source,
    Status,
)
from perfkit.model.comparisons import (
    Comparison,
    Estimate,
    ExactComparison,
    Explanation,
    GateReport,
    MovedCause,
    Need,
    Policy,
    Verdict,
    exit_code,
)

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MACHINE = Machine(
    machine_id="m1", facts={"cpu": "Test CPU", "logical_cpus": "2", "ram_gib": "16", "gpus": ""}
)
ENVIRONMENT = Environment(env_id="e1", facts={"python": "CPython 3.11.7", "torch": "2.13.0"})


def build_row(
    *values: float,
    name: str = "benchmarks/bench_a.py::test_a",
    sha: str = "a" * 40,
    run: str = "run-1",
    minute: int = 0,
    subject: str = "Change things",
    status: Status = "ok",
    message: str | None = None,
    launch: int = 0,
    block: int | None = None,
    version: str = "v1",
    dirty: bool = False,
    machine: Machine = MACHINE,
    environment: Environment = ENVIRONMENT,
    source: Source | None = None,
    side: Side | None = None,
    policy: RowPolicy | None = None,
    diff_hash: str | None = None,
) -> Row:
    """Return a synthetic ledger row, recorded ``minute`` minutes after a fixed start."""
    return Row(
        run_id=run,
        recorded_at=START + timedelta(minutes=minute),
        source=source or ("pytest" if block is None else "backfill"),
        commit=Commit(
            sha=sha,
            time=START,
            subject=subject,
            branch="main",
            dirty=dirty or diff_hash is not None,
            diff_hash=diff_hash,
        ),
        machine=machine,
        environment=environment,
        outcome=Outcome(
            benchmark=Benchmark(name=name, version=version),
            loops=1,
            values=values,
            status=status,
            message=message,
        ),
        placement=Placement(side=side, launch=launch, block=block),
        policy=policy or RowPolicy(),
    )


def build_comparison(
    test: str,
    verdict: Verdict,
    *interval: float,
    margin: float = 0.02,
    launches: int = 12,
    unit: Literal["launches", "preloaders"] = "launches",
    gating: bool = True,
    need: Need | None = None,
    message: str | None = None,
    accepted: str | None = None,
) -> Comparison:
    """Return a synthetic comparison; ``interval`` is (ratio, low, high), or empty where nothing was timed."""
    name = test if "::" in test else f"benchmarks/bench_a.py::{test}"
    estimate = None
    if interval:
        ratio, low, high = interval
        estimate = Estimate(
            ratio=ratio, low=low, high=high, confidence=0.998, launches=launches, launch_sd=0.01, unit=unit
        )
    return Comparison(
        benchmark=Benchmark(name=name, version="v1"),
        verdict=verdict,
        margin=margin,
        gating=gating,
        estimate=estimate,
        base_s=0.0123 if estimate else None,
        head_s=0.0123 * estimate.ratio if estimate else None,
        need=need,
        message=message,
        accepted=accepted,
    )


def build_count(
    test: str,
    metric: str,
    base: float | None,
    head: float | None,
    *causes: MovedCause,
    unit: str = "1",
    exact: bool = True,
    gating: bool = True,
    message: str | None = None,
    accepted: str | None = None,
) -> ExactComparison:
    """Return a synthetic comparison of a count, which may grow by 5 %."""
    grown = base is not None and head is not None and head > 1.05 * base
    fallen = base is not None and head is not None and head < 0.95 * base
    verdict: Verdict = "REGRESSED" if grown else "IMPROVED" if fallen else "UNCHANGED"
    return ExactComparison(
        benchmark=Benchmark(name=test if "::" in test else f"benchmarks/bench_a.py::{test}", version="v1"),
        metric=Metric(name=metric, unit=unit, exact=exact),
        verdict=verdict if exact and base is not None and head is not None else "INCONCLUSIVE",
        margin=0.05,
        gating=gating and exact,
        base=base,
        head=head,
        causes=causes,
        message=message,
        accepted=accepted,
    )


def build_report(
    *comparisons: Comparison,
    notes: tuple[str, ...] = (),
    explanations: tuple[Explanation, ...] = (),
    head_dirty: bool = False,
    from_ledger: bool = False,
) -> GateReport:
    """Return a synthetic gate of two commits at family-wise alpha 0.01."""
    timed = sum(found.estimate is not None for found in comparisons)
    return GateReport(
        run_id="01a1ff97-484e-71a6-b0a9-e1724e596ef1",
        recorded_at=START,
        base=Commit(sha="a" * 40, time=START, subject="Change things"),
        head=Commit(sha="b" * 40, time=START, subject="Change | more things", dirty=head_dirty),
        machine=MACHINE,
        environment=ENVIRONMENT,
        policy=Policy(alpha=0.01, family=timed, looks=(8, 12)),
        budget_s=120.0,
        wall_s=41.3,
        comparisons=comparisons,
        exit_code=exit_code(comparisons),
        notes=notes,
        explanations=explanations,
        from_ledger=from_ledger,
    )
