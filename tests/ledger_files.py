"""Ledgers of a few small runs, spread over months, for the tests of their upkeep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from synthetic import build_row

from perfkit.ledger.files import read_consistently
from perfkit.ledger.maintenance import without_runs
from perfkit.ledger.queries import read_table
from perfkit.ledger.schema import from_table
from perfkit.ledger.store import Ledger

MONTH_MINUTES = 31 * 24 * 60


def run_id(number: int) -> str:
    """Return the id of a run, as those of real ones are built."""
    return f"0199{number:04x}-0000-7000-8000-{number:012x}"


def add_run(ledger: Path, number: int, *, month: int = 0, launches: int = 2) -> Path:
    """Record a run; month 0 is January 2026."""
    rows = [
        build_row(0.1 + number, 0.3, run=run_id(number), minute=month * MONTH_MINUTES + number, launch=launch)
        for launch in range(launches)
    ]
    return Ledger(ledger).append(rows)


def add_runs(ledger: Path, numbers: Iterable[int], *, month: int = 0) -> list[Path]:
    """Record several runs in one month."""
    return [add_run(ledger, number, month=month) for number in numbers]


def seen(ledger: Path) -> Counter[str]:
    """Return how many rows a reader sees of each run, also while others change the ledger."""

    def read(files: object) -> Counter[str]:
        assert isinstance(files, dict)
        tables = (without_runs(read_table(file), ends) for file, ends in files.items())
        return Counter(row.run_id for table in tables for row in from_table(table))

    return read_consistently(ledger, read)


def whole(numbers: Iterable[int]) -> Counter[str]:
    """Return what a reader should see of runs that ``add_run`` recorded."""
    return Counter({run_id(number): 2 for number in numbers})


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
