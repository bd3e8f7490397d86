"""``perfkit accept``: let one finding of a gate pass, with a reason that is kept and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.config import Project
from perfkit.errors import RepositoryError, UsageError
from perfkit.gating.accept import MOST_COMMITS
from perfkit.gating.judge import slow_first_calls
from perfkit.gating.rows import exact_comparisons_of, judge_anew
from perfkit.identity import shown_run_id, utc_now
from perfkit.ledger.annotations import KeptAcceptance, keep_acceptance
from perfkit.ledger.store import Ledger
from perfkit.model import Commit, Row
from perfkit.model.comparisons import (
    MEASURING,
    SHOWN_DIGITS,
    Comparison,
    ExactComparison,
    blocks,
    is_placeholder,
)
from perfkit.model.policies import GatePolicy, JudgedPolicy
from perfkit.model.results import meant_by
from perfkit.repo.commits import open_repository, resolve
from perfkit.repo.git import author_name, reading_only
from perfkit.repo.trailers import commits_in, patches_of, whole_patch
from perfkit.repo.working_tree import code_of, describe_working_tree


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """What was accepted, and the file that keeps it."""

    acceptance: KeptAcceptance
    file: Path


@reading_only()
def accept_finding(*, project: Project, ledger: Path, benchmark: str, reason: str, ref: str) -> Accepted:
    """Accept one blocking finding of the newest gate of ``ref`` against any base."""
    if not reason.strip() or is_placeholder(reason):
        raise UsageError('an acceptance needs a reason; `perfkit accept BENCHMARK --reason "why"`')
    repository = open_repository(project.root)
    kept = Ledger(ledger)
    gates: list[tuple[list[Row], list[Comparison | ExactComparison]]] = [
        (rows, [*(timed := judge_anew(rows, kept)), *exact_comparisons_of(rows), *slow_first_calls(timed)])
        for rows in _newest_gates(kept, resolve(repository, ref).sha)
    ]
    rows, compared = next((one for one in gates if _is_blocked_by(benchmark, one[1])), gates[0])
    head = next(row for row in rows if _is_judged(row))
    outputs = (*project.output_paths, ledger)
    finding = _finding(compared, benchmark, run=shown_run_id(head.run_id))
    exact = [one for one in compared if isinstance(one, ExactComparison)]
    blocking = [one for one in exact if one.benchmark.name == finding.benchmark.name and blocks(one)]
    change, parts = _committed_change(rows, head.commit, repository, outputs)
    acceptance = KeptAcceptance(
        benchmark=finding.benchmark.name,
        reason=" ".join(reason.split()),
        commit=head.commit.sha,
        author=author_name(repository),
        verdict=finding.verdict,
        ratio=finding.estimate.ratio if isinstance(finding, Comparison) and finding.estimate else None,
        counts={one.metric.name: one.head for one in blocking if one.head is not None},
        uncounted=tuple(one.metric.name for one in blocking if one.head is None),
        run_id=head.run_id,
        recorded_at=utc_now(),
        diff_hash=head.commit.diff_hash,
        code=_uncommitted_code(head.commit, repository, outputs),
        change=change,
        parts=parts,
        version=finding.benchmark.version if finding.benchmark.name == MEASURING else None,
    )
    return Accepted(acceptance=acceptance, file=keep_acceptance(ledger, acceptance))


def _uncommitted_code(measured: Commit, top: Path, outputs: Sequence[Path]) -> str | None:
    if measured.diff_hash is None:
        return None
    now = describe_working_tree(top, ignored=outputs)
    is_here = (now.sha, now.diff_hash) == (measured.sha, measured.diff_hash)
    return code_of(top, ignored=outputs) if is_here else None


def _committed_change(
    rows: Sequence[Row], head: Commit, top: Path, outputs: Sequence[Path]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the content of base..head as a whole and of each commit; nothing where git lacks the base."""
    base = next((row.commit.sha for row in rows if row.placement.side == "base"), None)
    if head.diff_hash is not None or base is None:
        return None, ()
    try:
        shas = commits_in(open_repository(top), base, head.sha)
    except RepositoryError:
        return None, ()
    if len(shas) > MOST_COMMITS:
        return None, ()
    whole = whole_patch(top, base, head.sha, ignored=outputs)
    return whole, patches_of(top, shas, ignored=outputs)


def _is_blocked_by(benchmark: str, found: Sequence[Comparison | ExactComparison]) -> bool:
    """Return whether the benchmark that this ending of a name means is a blocking finding of a gate."""
    meant = meant_by(benchmark, dict.fromkeys(one.benchmark.name for one in found))
    return len(meant) == 1 and any(blocks(one) for one in found if one.benchmark.name == meant[0])


def _newest_gates(kept: Ledger, sha: str) -> list[list[Row]]:
    """Return the rows of the newest gate on a commit against each base, the very newest first."""
    rows = kept.rows_from("gate")
    judged = [row for row in rows if _is_judged(row) and row.commit.sha == sha]
    if not judged:
        raise UsageError(f"no gate of commit {sha[:SHOWN_DIGITS]} in {kept.path}; run `perfkit gate` first")
    ordered = sorted(judged, key=lambda row: (row.recorded_at, row.run_id), reverse=True)
    newest: dict[str | None, str] = {}
    for row in ordered:
        newest.setdefault(row.policy.base if isinstance(row.policy, GatePolicy) else None, row.run_id)
    return [[row for row in rows if row.run_id == run] for run in newest.values()]


def _is_judged(row: Row) -> bool:
    policy = row.policy
    judged = isinstance(policy, JudgedPolicy) and policy.verdict is not None
    return judged and row.placement.side == "head" and not row.partial


def _finding(
    comparisons: Sequence[Comparison | ExactComparison], benchmark: str, *, run: str
) -> Comparison | ExactComparison:
    """Return the blocking finding that ``benchmark`` names: on its times, or else on its counts."""
    judged: dict[str, Comparison | ExactComparison] = {}
    for comparison in comparisons:
        known = judged.get(comparison.benchmark.name)
        if known is None or (blocks(comparison) and not blocks(known)):
            judged[comparison.benchmark.name] = comparison
    blocking = [f"{name} ({found.verdict})" for name, found in judged.items() if blocks(found)]
    meant = meant_by(benchmark, judged)
    if len(meant) > 1:
        raise UsageError(f'"{benchmark}" could mean {" or ".join(meant)}; give more of it')
    listed = f"what blocks there: {', '.join(blocking) or 'nothing'}"
    if not meant:
        raise UsageError(f'no benchmark "{benchmark}" in the gate {run}; {listed}')
    found = judged[meant[0]]
    if not blocks(found):
        state = found.verdict + ("" if found.gating else ", not gating,")
        raise UsageError(f"{meant[0]} is {state} in the gate {run}, so it needs no accepting; {listed}")
    return found
