"""``perfkit ledger``: which runs there are, and what one of them measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfkit.ledger.store import Ledger
from perfkit.records import Row, RunSummary
from perfkit.verdict.from_rows import is_count


def list_runs(ledger: Path) -> list[RunSummary]:
    """Return the ledger's runs, newest last.

    Raises:
        LedgerError: a ledger file cannot be read.
    """
    runs: dict[str, list[Row]] = {}
    for row in Ledger(ledger).rows():
        runs.setdefault(row.run_id, []).append(row)
    return sorted(map(_summarise, runs.values()), key=lambda run: run.recorded_at)


def show_run(ledger: Path, run: str) -> list[Row]:
    """Return the rows of one run, named by the beginning or the end of its id.

    Raises:
        LedgerError: no run, or more than one, is meant, or a ledger file cannot be read.
    """
    return Ledger(ledger).rows_of(run)


def _summarise(rows: Sequence[Row]) -> RunSummary:
    first = min(rows, key=lambda row: row.recorded_at)
    return RunSummary(
        run_id=first.run_id,
        recorded_at=first.recorded_at,
        source=first.source,
        commits=tuple(dict.fromkeys(row.commit.sha for row in rows)),
        subject=first.commit.subject,
        dirty=any(row.commit.dirty for row in rows),
        benchmarks=len({row.outcome.benchmark.name for row in rows}),
        launches=len({(row.commit.sha, row.placement.launch) for row in rows}),
        rows=len(rows),
        failed=sum(row.outcome.status != "ok" and not is_count(row) for row in rows),
        machine_id=first.machine.machine_id,
    )
