"""What people say beside the measurements: one small file per statement, written once, never changed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from perfkit.errors import LedgerError
from perfkit.identity import new_run_id
from perfkit.ledger.files import open_locked, sync_folder
from perfkit.ledger.remote import put_published

Statement = TypeVar("Statement")


@dataclass(frozen=True, kw_only=True)
class Statements(Generic[Statement]):
    """The statements of one kind, kept in a folder of the ledger; ``noun`` is what a person calls one."""

    kind: type[Statement]
    noun: str
    folder: str

    def keep(self, ledger: Path, statement: Statement) -> Path:
        """Write a statement into a new file and return it.

        Raises:
            LedgerError: the folder cannot be written, or the statement is no text.
            RecordingError: it is in the copy of a ledger in a store, and not in the store yet.
        """
        target = ledger / self.folder / f"{new_run_id()}.json"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_at_once(target, msgspec.json.format(msgspec.json.encode(statement)) + b"\n")
        except (OSError, UnicodeEncodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise LedgerError(f"cannot keep the {self.noun} in {target.parent} ({reason})") from error
        put_published(target)
        return target

    def read(self, ledger: Path) -> list[Statement]:
        """Return all statements, in the order of their files' names, which is that of keeping.

        Raises:
            LedgerError: a file is damaged or cannot be read.
        """
        return [self.read_one(file) for file in sorted((ledger / self.folder).glob("*.json"))]

    def read_one(self, file: Path) -> Statement:
        """Return the statement of a file.

        Raises:
            LedgerError: it is damaged or cannot be read.
        """
        try:
            return msgspec.json.decode(file.read_bytes(), type=self.kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise LedgerError(f"{file} is not a readable {self.noun}; bring it back or delete it") from error


def _write_at_once(target: Path, content: bytes) -> None:
    """Write to a temporary name, then give the final one: a reader never sees half a file."""
    temporary = target.with_suffix(".tmp")
    try:
        with open_locked(temporary) as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
            temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)
