"""What people add to measurements: notes on commits, acceptances of findings, states of change points."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from perfkit.bounded import read_bytes
from perfkit.errors import LedgerError
from perfkit.identity import new_run_id
from perfkit.ledger.files import copy_bytes, listed
from perfkit.ledger.remote import put_published
from perfkit.model.comparisons import Acceptance, Verdict
from perfkit.model.history import State

Annotation = TypeVar("Annotation")
_DIGITS = 16
_CHANGED = "its bytes are not those that were written, as the checksum in its name shows"
_CHECKED = re.compile(rf"[0-9a-f-]{{36}}-([0-9a-f]{{{_DIGITS}}})\.json")


@dataclass(frozen=True, kw_only=True)
class Annotations(Generic[Annotation]):
    """One kind of annotations, kept in a folder of the ledger; ``noun`` names one in messages."""

    kind: type[Annotation]
    noun: str
    folder: str

    def keep(self, ledger: Path, annotation: Annotation) -> Path:
        """Write an annotation into a new file and return it."""
        folder = ledger / self.folder
        try:
            content = msgspec.json.format(msgspec.json.encode(annotation)) + b"\n"
            target = folder / f"{new_run_id()}-{_checksum(content)}.json"
            copy_bytes(content, target)
        except (OSError, UnicodeEncodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise LedgerError(f"cannot keep the {self.noun} in {folder} ({reason})") from error
        put_published(target)
        return target

    def read(self, ledger: Path) -> list[Annotation]:
        """Return all annotations, oldest first."""
        return [self.read_one(file) for file in self.files(ledger)]

    def files(self, ledger: Path) -> list[Path]:
        """Return the files of a ledger's annotations, oldest first."""
        return listed(ledger / self.folder, "*.json")

    def read_one(self, file: Path) -> Annotation:
        """Return the annotation in a file."""
        try:
            return msgspec.json.decode(_unchanged_content(file), type=self.kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise LedgerError(f"{file} is not a readable {self.noun}; bring it back or delete it") from error


def _unchanged_content(file: Path) -> bytes:
    content = read_bytes(file)
    checked = _CHECKED.fullmatch(file.name)
    if checked and checked[1] != _checksum(content):
        raise msgspec.DecodeError(_CHANGED)
    return content


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


@dataclass(frozen=True, kw_only=True)
class Note:
    """A change description for one commit, in the author's own words."""

    commit: str
    text: str
    recorded_at: datetime


NOTES = Annotations(kind=Note, noun="note", folder="notes")
add_note = NOTES.keep


def read_notes(ledger: Path) -> dict[str, Note]:
    """Return the newest note of each commit."""
    return {note.commit: note for note in sorted(NOTES.read(ledger), key=lambda note: note.recorded_at)}


@dataclass(frozen=True, kw_only=True)
class KeptState:
    """The state that a person gave a change point, named by its id, or a silent benchmark, and why."""

    subject: str
    state: State
    reason: str
    author: str | None
    recorded_at: datetime


STATES = Annotations(kind=KeptState, noun="state of a change point", folder="states")
keep_state = STATES.keep


def read_states(ledger: Path) -> Mapping[str, KeptState]:
    """Return the newest state of each subject."""
    return {kept.subject: kept for kept in sorted(STATES.read(ledger), key=lambda kept: kept.recorded_at)}


@dataclass(frozen=True, kw_only=True)
class KeptAcceptance(Acceptance):
    """An acceptance of what one gate found at ``commit``, with the uncommitted ``diff_hash``.

    ``code`` hashes all code with uncommitted changes: a commit of that code is covered. ``change`` and
    ``parts`` hash base..head and each of its commits, so that the change is covered after a rebase or a
    squash.
    """

    verdict: Verdict
    counts: Mapping[str, float] = field(default_factory=dict)
    run_id: str
    recorded_at: datetime
    diff_hash: str | None = None
    code: str | None = None
    change: str | None = None
    parts: tuple[str, ...] = ()


ACCEPTANCES = Annotations(kind=KeptAcceptance, noun="acceptance", folder="acceptances")
keep_acceptance = ACCEPTANCES.keep


def acceptances_for(
    ledger: Path,
    shas_in_range: Collection[str],
    diff_hash: str | None,
    is_here: Callable[[KeptAcceptance], bool] = lambda _: False,
) -> tuple[KeptAcceptance, ...]:
    """Return the acceptances that apply to a gate, newest first."""
    applying = (
        kept
        for kept in ACCEPTANCES.read(ledger)
        if (kept.commit in shas_in_range and kept.diff_hash in (None, diff_hash)) or is_here(kept)
    )
    return tuple(sorted(applying, key=lambda kept: kept.recorded_at, reverse=True))
