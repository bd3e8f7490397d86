"""An index of many small files: the columns of theirs that are asked for again and again, in one file.

Opening a file takes DuckDB a quarter of a millisecond, which for years of runs adds up to seconds a question.
The index holds nothing that the files do not. It lies in a hidden folder that git ignores, and may be removed
at any time. The first question makes that folder only, so that a fresh clone, which is asked once, does not
pay for an index; later ones that meet many files which it lacks add some of them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq

from perfkit.ledger.files import TEMPORARY, UNREADABLE, begin_hidden_folder, is_compacted, is_locked
from perfkit.ledger.schema import SCHEMA, SCHEMA_VERSION

INDEX_FOLDER = ".index"
# With fewer files that it lacks, making it longer is not worth the time.
FEWEST_FILES = 200
# Nobody should wait much longer for one question than for another.
_MOST_AT_ONCE = 2500
# More parts than these are put into one.
_MOST_PARTS = 8
# Another set of columns has another version, and so has another form of the names of parts.
_VERSION = 2
_BYTES_AT_ONCE = 1 << 20
_COVERED = b"perfkit_indexed"
_LEFT_OUT = ("values", "params", "machine", "env", "policy", "causes")
COLUMNS = tuple(name for name in SCHEMA.names if name not in _LEFT_OUT)
# What follows from columns that are left out.
DERIVED = ("counted", "lowest")
_ASKS_FOR_MORE = re.compile(rf"\b({'|'.join(_LEFT_OUT)})\b|SELECT \*")


@dataclass(frozen=True, kw_only=True)
class Index:
    """The parts of an index, each with the names and sizes in bytes of the files that it covers."""

    folder: Path
    parts: Mapping[Path, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Path) -> Index:
        """Return the index of a ledger as it is; what is damaged, or repeats another part, is none of it."""
        folder = ledger / INDEX_FOLDER
        parts: dict[Path, Mapping[str, int]] = {}
        known: set[str] = set()
        for file in sorted(folder.glob(f"{_prefix()}*.parquet")):
            covered = _covered(file)
            if covered and known.isdisjoint(covered):
                parts[file] = covered
                known.update(covered)
        return cls(folder=folder, parts=parts)

    def held(self, files: Iterable[Path]) -> frozenset[str]:
        """Return the names of those files that it covers as they are now."""
        known = {name: size for covered in self.parts.values() for name, size in covered.items()}
        return frozenset(
            file.name for file in files if file.name in known and _size(file) == known[file.name]
        )

    def outdated(self, held: Collection[str]) -> tuple[str, ...]:
        """Return the names that it covers and that are not to be read from it."""
        return tuple(name for covered in self.parts.values() for name in covered if name not in held)


def is_begun(ledger: Path) -> bool:
    """Tell whether a ledger has an index, or may begin one; it is begun where not.

    Raises:
        OSError: the ledger cannot be written.
    """
    folder = ledger / INDEX_FOLDER
    if folder.is_dir():
        return True
    begin_hidden_folder(folder)
    return False


def is_answerable(question: str) -> bool:
    """Tell whether a question asks for nothing that the index leaves out."""
    return _ASKS_FOR_MORE.search(question) is None


def to_index(files: Iterable[Path], held: Collection[str]) -> tuple[Path, ...]:
    """Return files to index: the oldest ones of single runs that are not, where they are many."""
    missing = tuple(file for file in files if file.name not in held and not is_compacted(file.name))
    return missing[:_MOST_AT_ONCE] if len(missing) >= FEWEST_FILES else ()


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part to write into ``folder``: the files that it covers, with their sizes; what it replaces goes.

    Its name tells what it covers, and ends with a checksum of its bytes: what is read from it is believed.
    """

    folder: Path
    covered: Mapping[str, int]
    replaces: tuple[Path, ...] = ()

    @classmethod
    def of(cls, index: Index, held: Collection[str], new: Iterable[Path]) -> Part:
        """Return the part that adds files to an index; too many parts become one."""
        covered = {file.name: _size(file) for file in new}
        replaces: tuple[Path, ...] = ()
        if len(index.parts) >= _MOST_PARTS or len(index.outdated(held)) > len(held):
            replaces = tuple(index.parts)
            for names in index.parts.values():
                covered |= {name: size for name, size in names.items() if name in held}
        return cls(folder=index.folder, covered=covered, replaces=replaces)

    @property
    def metadata(self) -> str:
        """What the part says of the files that it covers, as a value in a file's metadata."""
        return json.dumps(self.covered)

    @property
    def key(self) -> str:
        """The name of that value."""
        return _COVERED.decode()

    @property
    def temporary(self) -> Path:
        """Where it is written at first."""
        return self.folder / f".{self._stem}.{os.getpid()}{TEMPORARY}"

    @property
    def _stem(self) -> str:
        digits = hashlib.sha256(json.dumps(sorted(self.covered)).encode()).hexdigest()[:16]
        return f"{_prefix()}{digits}"

    def publish(self) -> None:
        """Give it its name once it is written, and remove the parts that it replaces."""
        target = self.folder / f"{self._stem}-{_checksum(self.temporary)}.parquet"
        self.temporary.rename(target)
        for part in self.replaces:
            if part != target:
                part.unlink(missing_ok=True)


def damaged_parts(ledger: Path) -> tuple[Path, ...]:
    """Return the parts whose bytes are not those that were written; questions pass over them."""
    parts = sorted((ledger / INDEX_FOLDER).glob(f"{_prefix()}*.parquet"))
    return tuple(part for part in parts if part.is_file() and not _is_intact(part))


def abandoned_parts(ledger: Path) -> tuple[Path, ...]:
    """Return the parts that killed processes left half written."""
    folder = ledger / INDEX_FOLDER
    left = tuple(sorted(folder.glob(f".*{TEMPORARY}")))
    return left if left and not is_locked(folder) else ()


def _prefix() -> str:
    return f"{_VERSION}-{SCHEMA_VERSION}-"


def _covered(file: Path) -> Mapping[str, int]:
    with contextlib.suppress(OSError):
        found = file.stat()
        return _covered_in(file, found.st_size, found.st_mtime_ns)
    return {}


@functools.lru_cache(maxsize=64)
def _covered_in(file: Path, _size: int, _changed_ns: int) -> Mapping[str, int]:
    """Return what a part covers as it is now, nothing where its checksum is wrong."""
    if not _is_intact(file):
        return {}
    with contextlib.suppress(*UNREADABLE), pq.ParquetFile(file) as parquet:
        found = json.loads((parquet.metadata.metadata or {}).get(_COVERED, b"{}"))
        if isinstance(found, dict):
            return found
    return {}


def _is_intact(part: Path) -> bool:
    try:
        return part.stem.rpartition("-")[2] == _checksum(part)
    except OSError:
        return False


def _checksum(file: Path) -> str:
    """Return the digits of a file's CRC-32, which takes a tenth of the time of a hash."""
    found = 0
    with file.open("rb") as stream:
        while piece := stream.read(_BYTES_AT_ONCE):
            found = zlib.crc32(piece, found)
    return f"{found:08x}"


def _size(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.stat().st_size
    return -1
