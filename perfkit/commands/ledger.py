"""``perfkit ledger``: which runs there are, and what one of them measured."""

from __future__ import annotations

from pathlib import Path

from perfkit.ledger.store import Ledger
from perfkit.model import Row, RunSummary


def list_runs(ledger: Path) -> list[RunSummary]:
    """Return the ledger's runs, newest last.

    Raises:
        LedgerError: a ledger file cannot be read.
    """
    return Ledger(ledger).runs()


def show_run(ledger: Path, run: str) -> list[Row]:
    """Return the rows of one run, named by the beginning or the end of its id.

    Raises:
        LedgerError: no run, or more than one, is meant, or a ledger file cannot be read.
    """
    return Ledger(ledger).rows_of(run)
