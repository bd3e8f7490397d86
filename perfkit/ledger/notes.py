"""What people say about commits: one small immutable file per note, beside the measurements."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from perfkit.errors import LedgerError
from perfkit.identity import new_run_id

_FOLDER = "notes"


@dataclass(frozen=True, kw_only=True)
class Note:
    """A change description for one commit, in the author's own words."""

    commit: str
    text: str
    recorded_at: datetime


def add_note(ledger: Path, note: Note) -> Path:
    """Keep a note and return its file; a later note on the same commit takes precedence.

    Raises:
        LedgerError: the folder cannot be written.
    """
    target = ledger / _FOLDER / f"{new_run_id()}.json"
    content = json.dumps({**asdict(note), "recorded_at": note.recorded_at.isoformat()}, ensure_ascii=False)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_suffix(".tmp")
        temporary.write_text(content + "\n", encoding="utf-8")
        temporary.rename(target)
    except OSError as error:
        raise LedgerError(f"cannot keep the note in {target.parent} ({error.strerror or error})") from error
    return target


def read_notes(ledger: Path) -> dict[str, Note]:
    """Return the newest note of each commit.

    Raises:
        LedgerError: a note's file is damaged.
    """
    notes = [_read(file) for file in sorted((ledger / _FOLDER).glob("*.json"))]
    return {note.commit: note for note in sorted(notes, key=lambda note: note.recorded_at)}


def _read(file: Path) -> Note:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return Note(
            commit=content["commit"],
            text=content["text"],
            recorded_at=datetime.fromisoformat(content["recorded_at"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LedgerError(f"{file} is not a readable note; bring it back or delete it") from error
