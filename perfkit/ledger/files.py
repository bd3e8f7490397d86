"""Name, write and list the ledger's files: whole or not at all, also where a process is killed.

Each file has a checksum inside, over all of its bytes: 64 digits in the key-value metadata at its end, those
of the SHA-256 of the whole file with zeros in their place. A single bit that flips anywhere makes the two
differ; parquet's own page checksums cover neither the metadata nor the statistics.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import fcntl
import fnmatch
import functools
import hashlib
import io
import json
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit.bounded import is_special
from perfkit.errors import LedgerError
from perfkit.identity import short_run_id
from perfkit.temporary import hold_lock

STAGED_FOLDER = ".staged"
QUARANTINE_FOLDER = ".quarantine"
_IGNORED = ".gitignore"
# Called after each step of writing: tests kill a process there.
OnStep = Callable[[str], None]
Result = TypeVar("Result")

_ENDING = ".parquet"
TEMPORARY = ".tmp"
_COMPACTED = "-and-"
COMPACTED_FILES = f"*{_COMPACTED}*.parquet"
_MEASURED = frozenset({"values", "mean", "sd", "median"})
_REPLACES = b"perfkit_replaces"
_NAMES_DIGITS = 8
# This many compactings may get in the way of one reader; each takes longer than listing what it left.
_MOST_TRIES = 20
# Reading may take longer than a compacting, as on a busy machine: this many may be over in a moment.
_TRIED_FOR_S = 10.0
UNREADABLE = (pa.ArrowException, OSError, ValueError, RecursionError)
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
# These errors are permanent and reported by the next reader; others may be transient.
_LASTING = frozenset({errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP, errno.EISDIR, errno.ENXIO})
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})


def ignore_log(step: str) -> None:
    """Let a step pass."""


def run_stem(recorded_at: datetime, source: str, run_id: str) -> str:
    """Return the name of a run's file without its ending; names sort by time."""
    return f"{recorded_at:%Y%m%dT%H%M%SZ}-{source.replace(':', '-')}-{short_run_id(run_id)}"


def run_end(name: str) -> str:
    """Return the end of a run's id, as the name of its file has it."""
    return name.removesuffix(_ENDING).rpartition("-")[2]


def write_table(
    table: pa.Table, target: Path, *, replaces: Collection[str] = (), on_step: OnStep = ignore_log
) -> None:
    """Write a table as a new file, whole or not at all, with the names of the files whose place it takes."""
    with new_file(target, table.schema, replaces=replaces, on_step=on_step) as writer:
        writer.write_table(table)


@contextmanager
def new_file(
    target: Path, schema: pa.Schema, *, replaces: Collection[str] = (), on_step: OnStep = ignore_log
) -> Iterator[pq.ParquetWriter]:
    """Write a file by a block, with its checksum and the names of the files it takes the place of.

    It has a temporary name and a lock until the end of the block, and is durable before it gets the final
    name: a reader never sees half a file. Where the block raises, nothing is left.
    """
    names = {_REPLACES: json.dumps(sorted(replaces)).encode()} if replaces else {}
    with _new_name(target, on_step) as stream:
        with pq.ParquetWriter(
            stream,
            schema.with_metadata({**names, **PLACE_OF_CHECKSUM}),
            **_encoding(schema.remove_metadata()),
        ) as writer:
            yield writer
        seal(stream)


def copy_bytes(content: bytes, target: Path, *, on_step: OnStep = ignore_log) -> None:
    """Write the bytes of another ledger's file as a new file, whole or not at all."""
    with _new_name(target, on_step) as stream:
        stream.write(content)


@contextmanager
def _new_name(target: Path, on_step: OnStep) -> Iterator[BinaryIO]:
    temporary = target.with_name(f".{target.name}.{os.getpid()}{TEMPORARY}")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open_locked(temporary) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            on_step("temporary file written")
            _give_name(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)
    on_step("file published")


def open_locked(temporary: Path) -> BinaryIO:
    """Open a new temporary file with a lock: one without a lock is of a process that was killed."""
    while True:
        stream = temporary.open("w+b")
        try:
            hold_lock(stream.fileno())
            # Another perfkit may have found it before it was locked, and removed it.
            if os.fstat(stream.fileno()).st_nlink:
                return stream
        except BaseException:
            stream.close()
            raise
        stream.close()


def sync_folder(folder: Path) -> None:
    """Make the names of a folder's files durable, where its file system can."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(handle)


def remove_temporary(ledger: Path, names: str) -> None:
    """Remove temporary files of matching names; no process may be writing one now."""
    for temporary in files_in(ledger, f".{names}.*{TEMPORARY}"):
        temporary.unlink(missing_ok=True)


def files_in(folder: Path, pattern: str) -> list[Path]:
    """Return what in a folder has a name that matches, by name; nothing where the folder is not there."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(folder / name for name in fnmatch.filter(names, pattern))


def listed(folder: Path, pattern: str) -> list[Path]:
    """Return what in a folder has a name that matches, as ``files_in`` does."""
    try:
        return files_in(folder, pattern)
    except OSError as error:
        raise LedgerError(f"cannot read {folder} ({reason_of(error)})") from error


def listed_if_readable(folder: Path, pattern: str) -> list[Path]:
    """Return what in a folder has a name that matches, nothing where the folder cannot be read."""
    with contextlib.suppress(OSError):
        return files_in(folder, pattern)
    return []


def is_abandoned(temporary: Path) -> bool:
    """Whether the process that wrote a temporary file is dead: it would hold its lock."""
    with contextlib.suppress(OSError):
        return _can_lock(temporary, os.O_RDWR)
    return False


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder, as far as the file system has locks."""
    return not _can_lock(folder, os.O_RDONLY)


def _can_lock(place: Path, mode: int) -> bool:
    descriptor = os.open(place, mode | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def begin_hidden_folder(folder: Path) -> None:
    """Make a folder whose files git ignores; the end of another run may remove it in between."""
    note = folder / _IGNORED
    for left in reversed(range(_MOST_TRIES)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not note.exists():
                note.write_text("*\n", encoding="utf-8")
        except (FileNotFoundError, FileExistsError):
            if not left:
                raise
        else:
            return


def end_hidden_folder(folder: Path) -> None:
    """Remove such a folder where nothing else is in it; it is left where it cannot be removed."""
    with contextlib.suppress(OSError):
        if not folder.is_dir() or any(file.name != _IGNORED for file in files_in(folder, "*")):
            return
        (folder / _IGNORED).unlink(missing_ok=True)
        try:
            folder.rmdir()
        except OSError:
            # Another run has just begun in it.
            begin_hidden_folder(folder)


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; wait until it is free."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        hold_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def compacted_name(newest: str, replaces: Collection[str]) -> str:
    """Return the name of the file that takes the place of others; it sorts after the ``newest`` of them."""
    stem = newest.removesuffix(_ENDING).partition(_COMPACTED)[0]
    digits = hashlib.sha256(b"\n".join(map(os.fsencode, sorted(replaces)))).hexdigest()[:_NAMES_DIGITS]
    before = sum(not is_compacted(name) for name in replaces) - 1
    return f"{stem}{_COMPACTED}{before}-files-before-{digits}{_ENDING}"


def names_in_turn(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the names that the file of one run can have, each with the earlier ones whose place it takes."""
    first = name.partition(_COMPACTED)[0].removesuffix(_ENDING) + _ENDING
    before: tuple[str, ...] = ()
    for _ in range(_MOST_TRIES):
        now = compacted_name(first, before) if before else first
        yield now, before
        before = (*before, now)


def is_compacted(name: str) -> bool:
    """Return whether a file of that name may take the place of others."""
    return _COMPACTED in name


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of a ledger at one moment."""

    folder: Path
    names: frozenset[str]
    replaces: Mapping[str, frozenset[str]]

    @functools.cached_property
    def replaced(self) -> frozenset[str]:
        """The names of all files that others have taken the place of, whether they are still there or not."""
        return frozenset[str]().union(*self.replaces.values())

    @functools.cached_property
    def leftovers(self) -> tuple[str, ...]:
        """The files that are still there although others have taken their place."""
        return tuple(sorted(self.names - {file.name for file in self.present}))

    def runs_of(self, name: str) -> frozenset[str]:
        """Return the names of the runs' files that are in a file: its own, if it is no compacted one."""
        return frozenset(one for one in self.replaces.get(name, ()) if not is_compacted(one)) or frozenset(
            {name}
        )

    def holders(self, name: str) -> tuple[Path, ...]:
        """Return the present files that list a run of this file as theirs."""
        mine = self.runs_of(name)
        return tuple(file for file in self.present if mine & self.runs_of(file.name))

    def is_held(self, name: str, by: Collection[Path]) -> bool:
        """Return whether such files hold all runs of this file."""
        return self.runs_of(name) <= frozenset[str]().union(*(self.runs_of(file.name) for file in by))

    @functools.cached_property
    def present(self) -> Mapping[Path, frozenset[str]]:
        """The files to read, oldest first, each with the ends of ids of runs that an earlier file holds.

        Two branches that each compacted the same files have such after a merge.
        """
        found: dict[Path, frozenset[str]] = {}
        held: set[str] = set()
        for name in sorted(self.names - self.replaced):
            runs = self.runs_of(name)
            if not runs <= held:
                found[self.folder / name] = frozenset(map(run_end, runs & held))
                held |= runs
        return found


def list_files(ledger: Path) -> Listing:
    """Return the files of a ledger as they are at one moment, also while another process compacts it.

    A file goes only after the one that takes its place has come, so the folder is read until nothing went and
    no compacted file came.
    """
    known: dict[str, frozenset[str]] = {}
    names = _names(ledger)
    for _ in range(_MOST_TRIES):
        compacted = set(filter(is_compacted, names))
        known |= {name: _replaced_by(ledger / name) for name in compacted - known.keys()}
        now = _names(ledger)
        if names <= now and compacted == set(filter(is_compacted, now)):
            return _listing(ledger, now, frozenset((name, known[name]) for name in compacted))
        names = now
    raise LedgerError(f"{ledger} is being compacted again and again; wait until that is over")


@functools.lru_cache(maxsize=1)
def _listing(ledger: Path, names: frozenset[str], replaces: frozenset[tuple[str, frozenset[str]]]) -> Listing:
    # One question follows the other while nothing comes or goes.
    return Listing(folder=ledger, names=names, replaces=dict(replaces))


def read_consistently(ledger: Path, read: Callable[[Mapping[Path, frozenset[str]]], Result]) -> Result:
    """Return what ``read`` makes of the present files; it is called again if one of them went meanwhile.

    It must read all that it needs before it returns, and keep nothing of a call that raises. Its own
    exceptions come through where all files are still there.
    """
    tries, until_s = 0, time.monotonic() + _TRIED_FOR_S
    while tries < _MOST_TRIES or time.monotonic() < until_s:
        tries += 1
        files = list_files(ledger).present
        for file in files:
            # Reading a device or a pipe could wait, or go on, for ever.
            if is_special(file):
                raise LedgerError(f"{file} is a device or a pipe; move it out of the ledger")
        try:
            return read(files)
        except Exception:
            if all(file.exists() for file in files):
                raise
    raise LedgerError(f"{ledger} is being compacted again and again; wait until that is over")


def recorded_ends(ledger: Path) -> frozenset[str]:
    """Return the ends of the ids of all runs that have a file, or had one that compacting has replaced."""
    listing = list_files(ledger)
    return frozenset(map(run_end, listing.names | listing.replaced))


def _names(ledger: Path) -> frozenset[str]:
    try:
        with os.scandir(ledger) as entries:
            return frozenset(entry.name for entry in entries if entry.name.endswith(_ENDING))
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()
    except OSError as error:
        raise LedgerError(f"cannot read the ledger {ledger} ({error.strerror or error})") from error


def _replaced_by(file: Path) -> frozenset[str]:
    try:
        found = file.stat()
        # Opening a pipe would wait for a writer.
        if stat.S_ISREG(found.st_mode):
            return _names_in(file, found.st_size, found.st_mtime_ns)
    except OSError as error:
        if error.errno not in _LASTING:
            raise LedgerError(f"cannot read {file} ({reason_of(error)}); try again") from error
    return frozenset()


def reason_of(error: Exception) -> str:
    """Return an error of the system or of a library in a few words."""
    number = getattr(error, "errno", None)
    return os.strerror(number) if number else str(error).partition("\n")[0].strip() or type(error).__name__


@functools.lru_cache(maxsize=1024)
def _names_in(file: Path, _size: int, _changed_ns: int) -> frozenset[str]:
    try:
        with pq.ParquetFile(file) as parquet:
            names = json.loads((parquet.schema_arrow.metadata or {}).get(_REPLACES, b"[]"))
    except UNREADABLE as error:
        # Arrow gives no number to its own findings, which are of damaged files.
        if getattr(error, "errno", None):
            raise
        return frozenset()
    if not isinstance(names, list):
        return frozenset()
    # No file takes the place of itself.
    return frozenset(name for name in names if isinstance(name, str)) - {file.name}


@functools.lru_cache(maxsize=16)
def _encoding(schema: pa.Schema) -> dict[str, Any]:
    empty = io.BytesIO()
    # An empty table to write would import pandas.
    pq.ParquetWriter(empty, schema).close()
    leaves = pq.ParquetFile(empty).schema
    paths = [leaves.column(number).path for number in range(len(leaves))]
    measured = [path for path in paths if path.partition(".")[0] in _MEASURED]
    return {
        "compression": "zstd",
        "compression_level": 9,
        "use_dictionary": [path for path in paths if path not in measured],
        "use_byte_stream_split": measured,
    }


def _give_name(temporary: Path, target: Path) -> None:
    """Link the final name, which fails where it is taken; a file system without links gets a rename.

    No two processes write a file of one name: a run's is guarded by the lock on its staged file, and that of
    compacting by a lock of its own. So the name cannot be taken between the check and the rename.
    """
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        temporary.rename(target)


_KEY = b"perfkit_sha256"
_DIGITS = 64
_BLANK = b"0" * _DIGITS
# Before the digits: Thrift's compact protocol writes a text as its field, its length and its bytes.
_MARK = b"\x18" + bytes([len(_KEY)]) + _KEY + b"\x18" + bytes([_DIGITS])

# What a file's metadata have from the beginning; the digits are filled in once it is whole.
PLACE_OF_CHECKSUM = {_KEY: _BLANK}


def seal(stream: BinaryIO) -> None:
    """Fill in the checksum of a file that was written with ``PLACE_OF_CHECKSUM``, open to read and write."""
    stream.seek(0)
    content = stream.read()
    place = content.rindex(_MARK + _BLANK) + len(_MARK)
    stream.seek(place)
    stream.write(_digest(content, place))


def is_intact(content: bytes) -> bool | None:
    """Return whether the bytes of a file are those that were written, None if it has no checksum."""
    found = content.rfind(_MARK)
    if found < 0:
        # The copy of the schema that Arrow keeps names the checksum too: a file that lost its own is damaged.
        return False if any(promise in content for promise in _promises()) else None
    place = found + len(_MARK)
    return _digest(content, place) == content[place : place + _DIGITS]


def _digest(content: bytes, place: int) -> bytes:
    digest = hashlib.sha256(memoryview(content)[:place])
    digest.update(_BLANK)
    digest.update(memoryview(content)[place + _DIGITS :])
    return digest.hexdigest().encode()


def _promises() -> list[bytes]:
    found = []
    for shift in range(3):
        begin, end = -(-8 * shift // 6), 8 * (shift + len(_KEY)) // 6
        found.append(base64.b64encode(bytes(shift) + _KEY)[begin:end])
    return found
