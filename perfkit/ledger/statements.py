"""What people say beside the measurements: one small file per statement, written once, never changed.

Its name ends with a checksum of its bytes: a digit that flips in an acceptance could let a slowdown pass.
Names of older perfkits have none.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from perfkit.bounded import read_bytes
from perfkit.errors import LedgerError
from perfkit.identity import new_run_id
from perfkit.ledger.files import listed, open_locked, sync_folder
from perfkit.ledger.remote import put_published

Statement = TypeVar("Statement")
_DIGITS = 16
_CHECKED = re.compile(rf"[0-9a-f-]{{36}}-([0-9a-f]{{{_DIGITS}}})\.json")


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
        folder = ledger / self.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            content = msgspec.json.format(msgspec.json.encode(statement)) + b"\n"
            target = folder / f"{new_run_id()}-{_checksum(content)}.json"
            _write_at_once(target, content)
        except (OSError, UnicodeEncodeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise LedgerError(f"cannot keep the {self.noun} in {folder} ({reason})") from error
        put_published(target)
        return target

    def read(self, ledger: Path) -> list[Statement]:
        """Return all statements, in the order of their files' names, which is that of keeping.

        Raises:
            LedgerError: a file is damaged or cannot be read.
        """
        return [self.read_one(file) for file in self.files(ledger)]

    def files(self, ledger: Path) -> list[Path]:
        """Return the files of a ledger's statements, in the order of keeping.

        Raises:
            LedgerError: their folder cannot be read.
        """
        return listed(ledger / self.folder, "*.json")

    def read_one(self, file: Path) -> Statement:
        """Return the statement of a file.

        Raises:
            LedgerError: it is damaged or cannot be read.
        """
        try:
            return msgspec.json.decode(_unchanged_content(file), type=self.kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, _ChangedError) as error:
            raise LedgerError(f"{file} is not a readable {self.noun}; bring it back or delete it") from error


class _ChangedError(Exception):
    """The bytes of a statement are not those that were written."""

    def __str__(self) -> str:
        return "its bytes are not those that were written, as the checksum in its name shows"


def _unchanged_content(file: Path) -> bytes:
    content = read_bytes(file)
    checked = _CHECKED.fullmatch(file.name)
    if checked and checked[1] != _checksum(content):
        raise _ChangedError
    return content


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]


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
