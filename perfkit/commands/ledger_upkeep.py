"""``perfkit ledger compact | verify | repair | merge``: keeps a ledger small and sound."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from perfkit.ledger import merging, soundness, upkeep
from perfkit.ledger.remote import settle_compacted
from perfkit.model.progress import Progress
from perfkit.model.upkeep import Compaction, Merge, Repair, Verification
from perfkit.repo.commands import try_git

Result = TypeVar("Result")


def compact_ledger(ledger: Path, *, also_current: bool, dry_run: bool, progress: Progress) -> Compaction:
    """Put the files of each month that is over into few, with ``also_current`` those of this month too.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    progress.info(f"compacting {ledger}")
    before = None if also_current else f"{datetime.now(UTC):%Y-%m}"
    in_git = _is_in_git(ledger)
    done = upkeep.compact(ledger, before=before, dry_run=dry_run, tell=progress.tell)
    _settle(ledger, dry_run=dry_run)
    return _printable(dataclasses.replace(done, in_git=in_git))


def verify_ledger(ledger: Path, *, progress: Progress) -> Verification:
    """Look at every file of a ledger, and change nothing.

    Raises:
        LedgerError: the folder cannot be read.
    """
    found, _ = soundness.verify(ledger, log=progress.info, tell=progress.tell)
    return _printable(found)


def repair_ledger(ledger: Path, *, dry_run: bool, progress: Progress) -> Repair:
    """Do what can be done about a ledger's problems without losing a row.

    Raises:
        LedgerError: the ledger cannot be read or written.
    """
    in_git = _is_in_git(ledger)
    done = upkeep.repair(ledger, dry_run=dry_run, log=progress.info, tell=progress.tell)
    _settle(ledger, dry_run=dry_run)
    return _printable(dataclasses.replace(done, in_git=in_git))


def merge_ledgers(ledger: Path, other: Path, *, dry_run: bool, progress: Progress) -> Merge:
    """Copy what another ledger has and this one lacks.

    Raises:
        UsageError: the other one is no folder, or the same.
        LedgerError: a ledger cannot be read or written.
    """
    progress.info(f"looking at the files of {other}")
    done = merging.merge(ledger, other, dry_run=dry_run, tell=progress.tell)
    _settle(ledger, dry_run=dry_run)
    return _printable(done)


def _settle(ledger: Path, *, dry_run: bool) -> None:
    """Bring what was changed into the store that a folder mirrors, if it does.

    Raises:
        RecordingError: the store has not all of it.
        LedgerError: the store cannot be read.
    """
    if not dry_run:
        settle_compacted(ledger)


def _is_in_git(ledger: Path) -> bool:
    """Tell whether git keeps a file of the ledger, and so what is removed of it."""
    return bool(try_git(ledger, "ls-files", "-z", "--", "."))


def _printable(value: Result) -> Result:
    """Return a record whose texts can be printed: a file's name may hold bytes that are no text."""
    return _escaped(value)  # type: ignore[no-any-return]


def _escaped(value: Any) -> Any:  # noqa: ANN401 (whatever a record holds)
    if isinstance(value, str):
        return "".join(
            char if char.isprintable() else char.encode("unicode_escape").decode() for char in value
        )
    if isinstance(value, tuple):
        return tuple(map(_escaped, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = (field.name for field in dataclasses.fields(value))
        return dataclasses.replace(value, **{name: _escaped(getattr(value, name)) for name in members})
    return value
