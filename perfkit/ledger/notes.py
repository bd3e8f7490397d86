"""What people say about commits: one small immutable file per note, beside the measurements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perfkit.ledger.statements import Statements


@dataclass(frozen=True, kw_only=True)
class Note:
    """A change description for one commit, in the author's own words."""

    commit: str
    text: str
    recorded_at: datetime


NOTES = Statements(kind=Note, noun="note", folder="notes")


def add_note(ledger: Path, note: Note) -> Path:
    """Keep a note and return its file; a later note on the same commit takes precedence.

    Raises:
        LedgerError: the folder cannot be written.
    """
    return NOTES.keep(ledger, note)


def read_notes(ledger: Path) -> dict[str, Note]:
    """Return the newest note of each commit.

    Raises:
        LedgerError: a note's file is damaged.
    """
    return {note.commit: note for note in sorted(NOTES.read(ledger), key=lambda note: note.recorded_at)}
