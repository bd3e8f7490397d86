"""A builder of synthetic ledger rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from perfkit.records import Benchmark, Commit, Environment, Machine, Outcome, Placement, Row, Status

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
) -> Row:
    """Return a synthetic ledger row, recorded ``minute`` minutes after a fixed start."""
    return Row(
        run_id=run,
        recorded_at=START + timedelta(minutes=minute),
        source="pytest" if block is None else "backfill",
        commit=Commit(sha=sha, time=START, subject=subject, branch="main", dirty=dirty),
        machine=machine,
        environment=environment,
        outcome=Outcome(
            benchmark=Benchmark(name=name, version=version),
            loops=1,
            values=values,
            status=status,
            message=message,
        ),
        placement=Placement(launch=launch, block=block),
    )
