"""Computes the verdicts of a gate anew, from its kept launches alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS, LedgerError, RepositoryError
from perfkit.gating.accept import find_acceptances, mark
from perfkit.gating.counter_verdicts import explain_counts
from perfkit.gating.judge import slow_first_calls
from perfkit.gating.rows import comparison_of, exact_comparisons_of
from perfkit.ledger.store import Ledger
from perfkit.model import GATES, Commit, Row, Side
from perfkit.model.change_log import GateRatio
from perfkit.model.comparisons import Acceptance, Comparison, ExactComparison, GateReport, exit_code
from perfkit.model.counters import is_count
from perfkit.model.policies import gate_policy, judged_policy


def recompute_gate(run: str, *, ledger: Path, project: Project) -> GateReport:
    """Return the report of a gate whose id begins or ends with ``run``, judged anew."""
    kept = Ledger(ledger)
    rows = kept.rows_of(run)
    one = rows[0]
    if one.source not in GATES:
        raise LedgerError(f'run "{run}" is a {one.source}, not a gate; see "perfkit ledger list"')
    commits = _commits(rows, base=gate_policy(one).base)
    acceptances = _acceptances(commits, ledger, project)
    comparisons = mark(judge_anew(rows, kept), acceptances)
    exact = mark((*exact_comparisons_of(rows), *slow_first_calls(comparisons)), acceptances)
    return _report(rows, commits, comparisons, exact)


def judge_anew(rows: Sequence[Row], kept: Ledger) -> list[Comparison]:
    """Return the verdicts that follow from the rows of a gate and of the gates that it continued."""
    prior = [_by_benchmark(kept.rows_of(earlier)) for earlier in judged_policy(rows[0]).continues]
    return [
        comparison_of(own, [earlier[name] for earlier in prior if name in earlier])
        for name, own in _by_benchmark([row for row in rows if not is_count(row)]).items()
    ]


def gate_ratio(
    times_of: Callable[[str, str], Sequence[Row]], run_id: str, benchmark: str, base: str | None, head: str
) -> GateRatio | None:
    """Return what a gate found for one benchmark: the estimate that its verdict rests on.

    None if the gate compared other commits, a launch failed, the benchmark's own source differs between the
    sides, or the first look was not reached.
    """
    rows = times_of(run_id, benchmark)
    sides = {(row.placement.side, row.commit.sha) for row in rows}
    versions = {row.outcome.benchmark.version for row in rows}
    failed = any(row.outcome.status != "ok" for row in rows)
    if sides != {("base", base), ("head", head)} or len(versions) > 1 or failed:
        return None
    policy = judged_policy(rows[0])
    found = comparison_of(rows, [times_of(run, benchmark) for run in policy.continues]).estimate
    if found is None:
        return None
    return GateRatio(ratio=found.ratio, low=found.low, high=found.high, alpha=policy.rules.alpha)


def _commits(rows: Sequence[Row], *, base: str) -> Mapping[Side, Commit]:
    known = {row.placement.side: row.commit for row in rows if row.placement.side is not None}
    return {"base": Commit(sha=base), **known}


def _report(
    rows: Sequence[Row],
    commits: Mapping[Side, Commit],
    comparisons: Sequence[Comparison],
    exact: Sequence[ExactComparison],
) -> GateReport:
    first = rows[0]
    policy = gate_policy(first)
    environments = {row.placement.side: row.environment for row in rows}
    code = exit_code((*comparisons, *exact))
    until_cut_off_s = (max(row.recorded_at for row in rows) - first.recorded_at).total_seconds()
    return GateReport(
        run_id=first.run_id,
        recorded_at=first.recorded_at,
        base=commits["base"],
        head=commits["head"],
        machine=first.machine,
        environment=environments.get("head", first.environment),
        base_environment=environments.get("base") if first.source == "environments" else None,
        policy=policy.rules,
        budget_s=policy.budget_s,
        wall_s=until_cut_off_s if policy.wall_s is None else policy.wall_s,
        comparisons=tuple(comparisons),
        # Launches may be missing, so a gate that was cut off never passes.
        exit_code=EXIT_NOT_MEASURED if first.partial and code == EXIT_PASS else code,
        explanations=explain_counts(comparisons, exact),
        exact=tuple(exact),
        notes=("This gate was cut off: launches and counts of it may be missing.",) if first.partial else (),
        from_ledger=True,
        cut_off=first.partial,
    )


def _acceptances(commits: Mapping[Side, Commit], ledger: Path, project: Project) -> tuple[Acceptance, ...]:
    """Return what people have accepted, by now, of these commits; nothing where git does not know them."""
    try:
        acceptances, _ = find_acceptances(
            project.root,
            base=commits["base"],
            head=commits["head"],
            ledger=ledger,
            outputs=project.output_paths,
        )
    except RepositoryError:
        return ()
    return acceptances


def _by_benchmark(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.outcome.benchmark.name, []).append(row)
    return found
