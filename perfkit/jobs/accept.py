"""``perfkit accept``: let one finding of a gate pass, with a reason that is kept and shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.compare.recompute import judge_anew
from perfkit.config import Project
from perfkit.errors import UsageError
from perfkit.ledger.acceptances import KeptAcceptance, keep_acceptance
from perfkit.ledger.store import Ledger
from perfkit.measure.clock import utc_now
from perfkit.records import Row
from perfkit.records.comparisons import Comparison, ExactComparison
from perfkit.records.policies import JudgedPolicy
from perfkit.records.results import meant_by
from perfkit.repo.author import author_name
from perfkit.repo.commits import open_repository, resolve
from perfkit.verdict.acceptance import BLOCKING, SHOWN_DIGITS
from perfkit.verdict.from_rows import exact_comparisons_of

_RUN_DIGITS = 12


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """What was accepted, and the file that says so."""

    acceptance: KeptAcceptance
    file: Path


def accept_finding(*, project: Project, ledger: Path, benchmark: str, reason: str, ref: str) -> Accepted:
    """Accept one blocking finding of the newest gate whose head is ``ref``, uncommitted changes or not.

    Raises:
        LedgerError: the ledger cannot be read or written.
        RepositoryError: the commit is not known.
        UsageError: the reason is empty, there is no such gate, or the benchmark is no blocking finding of it.
    """
    if not reason.strip():
        raise UsageError('an acceptance needs a reason; `perfkit accept BENCHMARK --reason "why"`')
    repository = open_repository(project.root)
    kept = Ledger(ledger)
    gate = _newest_gate(kept, resolve(repository, ref).sha)
    head = next(row for row in gate if _is_judged(row))
    exact = exact_comparisons_of(gate)
    finding = _finding([*judge_anew(gate, kept), *exact], benchmark, run=head.run_id[-_RUN_DIGITS:])
    blocking = [one for one in exact if one.benchmark.name == finding.benchmark.name and _blocks(one)]
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
    )
    return Accepted(acceptance=acceptance, file=keep_acceptance(ledger, acceptance))


def _newest_gate(kept: Ledger, sha: str) -> list[Row]:
    """Return the rows, of both sides, of the newest gate that came to verdicts on a commit."""
    rows = [row for row in kept.rows() if row.source == "gate"]
    judged = [row for row in rows if _is_judged(row) and row.commit.sha == sha]
    if not judged:
        raise UsageError(f"no gate of commit {sha[:SHOWN_DIGITS]} in {kept.path}; run `perfkit gate` first")
    newest = max(judged, key=lambda row: (row.recorded_at, row.run_id)).run_id
    return [row for row in rows if row.run_id == newest]


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
        if known is None or (_blocks(comparison) and not _blocks(known)):
            judged[comparison.benchmark.name] = comparison
    blocking = [f"{name} ({found.verdict})" for name, found in judged.items() if _blocks(found)]
    meant = meant_by(benchmark, judged)
    if len(meant) > 1:
        raise UsageError(f'"{benchmark}" could mean {" or ".join(meant)}; give more of it')
    listed = f"what blocks there: {', '.join(blocking) or 'nothing'}"
    if not meant:
        raise UsageError(f'no benchmark "{benchmark}" in the gate {run}; {listed}')
    found = judged[meant[0]]
    if not _blocks(found):
        raise UsageError(
            f"{meant[0]} is {_state(found)} in the gate {run}, so it needs no accepting; {listed}"
        )
    return found


def _blocks(comparison: Comparison | ExactComparison) -> bool:
    return comparison.verdict in BLOCKING and comparison.gating


def _state(comparison: Comparison | ExactComparison) -> str:
    return comparison.verdict + ("" if comparison.gating else ", not gating,")
