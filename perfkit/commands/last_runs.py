"""What a pytest session tells at its end: how its times differ from those of the last runs here."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.errors import LedgerError
from perfkit.ledger.history.last_runs import moved_since_last
from perfkit.ledger.store import Here, Ledger, Wanted
from perfkit.model import Row
from perfkit.report.last_runs import last_runs_lines

# Enough occasions to say what they differ by, and few enough to be read at once from any ledger.
_RUNS = 30


def told_against_last(rows: Sequence[Row], ledger: Ledger) -> tuple[str, ...]:
    """Return lines for a person, none where the ledger has nothing to compare a session's rows with."""
    first = rows[0]
    here = Here(
        benchmarks={row.outcome.benchmark.name for row in rows},
        machine_id=first.machine.machine_id,
        env_id=first.environment.env_id,
        runs=_RUNS,
    )
    try:
        found = ledger.trends(Wanted(here=here))
    except LedgerError as error:
        return (f"not compared with earlier runs: {error}",)
    measured = None if first.commit.dirty else first.commit.sha
    return tuple(last_runs_lines(moved_since_last(rows, found.trends), measured=measured))
