"""The times and counts of a profile as ledger rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfkit.commands.profiles.settle import SettledProfile
from perfkit.identity import new_run_id
from perfkit.ledger.store import Ledger
from perfkit.model import STEP_TIME, Benchmark, Commit, Environment, Metric, Outcome, PassSummary, Row
from perfkit.model.counters import count_outcomes
from perfkit.model.policies import ProfilePolicy
from perfkit.profiling.passes.exchange import PassResult

TOTAL_TIME = Metric(name="total_time", unit="s")
UNKNOWN_ENVIRONMENT = Environment(env_id="unknown", facts={})


@contextmanager
def recording(run: SettledProfile) -> Iterator[Callable[[PassResult], None]]:
    """Yield what keeps the times or counts of a pass at once; all passes are one run of the ledger.

    A failed target is recorded too; a mistake in the request is not.

    Raises:
        LedgerError: the ledger cannot be written.
    """
    ledger, commit = run.request.ledger, run.commit
    if ledger is None or commit is None:
        yield lambda _: None
        return
    with Ledger(ledger).run(source="profile", run_id=new_run_id(), recorded_at=run.recorded_at) as kept:
        yield lambda result: kept.add(_rows(run, commit, result, kept.run_id))


def _rows(run: SettledProfile, commit: Commit, result: PassResult, run_id: str) -> list[Row]:
    if result.problem is not None and result.problem.kind == "usage":
        return []
    return [
        Row(
            run_id=run_id,
            recorded_at=run.recorded_at,
            source="profile",
            commit=commit,
            machine=run.machine,
            environment=result.environment or UNKNOWN_ENVIRONMENT,
            outcome=outcome,
            policy=ProfilePolicy(steps=run.request.steps),
        )
        for outcome in _outcomes(run, result)
    ]


def _outcomes(run: SettledProfile, result: PassResult) -> list[Outcome]:
    params = {"arguments": " ".join(run.request.arguments)} if run.request.arguments else {}
    if run.request.ranks is not None:
        params["ranks"] = str(run.request.ranks)
    if run.request.steps is not None:
        params["steps"] = str(run.request.steps)
    if run.step_at is not None:
        # The line's number changes with every other edit, and with it the history would end.
        params["step_at"] = f"{Path(run.step_at.file).name}: {run.step_at.text}"
    benchmark = Benchmark(name=f"profile:{run.target.name}", version=result.version, params=params)
    problem, summary = result.problem, result.summary
    if problem is not None:
        failed = Outcome(
            benchmark=benchmark, metric=TOTAL_TIME, status=problem.status, message=problem.message
        )
        return [failed]
    if result.counts is not None:
        return list(count_outcomes(benchmark, result.counts))
    return _times(benchmark, summary) if summary is not None else []


def _times(benchmark: Benchmark, summary: PassSummary) -> list[Outcome]:
    """Return the time of every step, where there was one, and that of the whole."""
    times = {STEP_TIME: summary.step_s, TOTAL_TIME: (summary.total_s,)}
    return [
        Outcome(benchmark=benchmark, metric=metric, loops=1, values=values)
        for metric, values in times.items()
        if values
    ]
