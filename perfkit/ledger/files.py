"""How the ledger's files are named and written: whole or not at all, also where a process is killed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit.identity import short_run_id

STAGED_FOLDER = ".staged"
_IGNORED = ".gitignore"
# Is told each step of writing once it is done: tests end a process there.
OnStep = Callable[[str], None]

_COMPACTED = "-and-"
COMPACTED_FILES = f"*{_COMPACTED}*.parquet"
_MEASURED = frozenset({"values", "mean", "sd", "median"})
_REPLACES = b"perfkit_replaces"
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
_NO_LOCKS = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EBADF})
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS})


def say_nothing(step: str) -> None:
    """Let a step pass."""


def run_stem(recorded_at: datetime, source: str, run_id: str) -> str:
    """Return the name of a run's file without its ending; names sort by time.

    A colon, as in the source of what was imported, is not in it: some systems allow none in a file's name.
    """
    return f"{recorded_at:%Y%m%dT%H%M%SZ}-{source.replace(':', '-')}-{short_run_id(run_id)}"


def write_table(table: pa.Table, target: Path, *, on_step: OnStep = say_nothing) -> None:
    """Write to a temporary name, fsync, then give the final name: a reader never sees half a file.

    Raises:
        FileExistsError: there is a file of that name.
        OSError: the folder cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with temporary.open("wb") as stream:
            pq.write_table(table, stream, **_encoding(table))
            stream.flush()
            os.fsync(stream.fileno())
        on_step("temporary file written")
        _give_name(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)
    on_step("file published")


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
    """Remove what killed processes left of writing files whose names match; nobody may be writing one now."""
    for temporary in ledger.glob(f".{names}.*.tmp"):
        temporary.unlink(missing_ok=True)


def begin_hidden_folder(folder: Path) -> None:
    """Make a folder whose files git ignores."""
    folder.mkdir(parents=True, exist_ok=True)
    note = folder / _IGNORED
    if not note.exists():
        note.write_text("*\n", encoding="utf-8")


def end_hidden_folder(folder: Path) -> None:
    """Remove such a folder where nothing else is in it; it is left where it cannot be removed."""
    if not folder.is_dir() or any(file.name != _IGNORED for file in folder.glob("*")):
        return
    with contextlib.suppress(OSError):
        (folder / _IGNORED).unlink(missing_ok=True)
        try:
            folder.rmdir()
        except OSError:
            # Another run has just begun in it.
            begin_hidden_folder(folder)


def hold_lock(descriptor: int) -> None:
    """Lock an open file until it is closed, waiting for whoever holds it; some file systems have no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; wait for whoever holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        hold_lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def compacted_name(files: Sequence[Path]) -> str:
    """Return the name of the file that takes the place of others; it sorts after the newest of them."""
    newest = files[-1].stem.partition(_COMPACTED)[0]
    return f"{newest}{_COMPACTED}{len(files) - 1}-files-before.parquet"


def with_replaced(table: pa.Table, names: Iterable[str]) -> pa.Table:
    """Return a table that says which files it takes the place of."""
    return table.replace_schema_metadata({_REPLACES: json.dumps(sorted(names)).encode()})


def replaced_names(ledger: Path) -> frozenset[str]:
    """Return the names of all files that others have taken the place of, whether they are still there or not.

    A file that cannot be read takes no place: whoever reads it next says that it is damaged.
    """
    return frozenset().union(*_replacements(ledger).values())


def present_files(ledger: Path) -> Mapping[Path, frozenset[str]]:
    """Return the files that no other one replaces, oldest first, each with the runs that it holds twice.

    These are named by the ends of their ids: an earlier file holds their rows, too. Two branches that each
    compacted the same files have such after a merge.
    """
    replacements = _replacements(ledger)
    replaced = frozenset[str]().union(*replacements.values())
    found: dict[Path, frozenset[str]] = {}
    held = frozenset[str]()
    for file in sorted(ledger.glob("*.parquet")):
        if file.name not in replaced:
            names = replacements.get(file.name, frozenset())
            found[file] = frozenset(name.removesuffix(".parquet").rpartition("-")[2] for name in names & held)
            held |= names
    return found


def recorded_ends(ledger: Path) -> frozenset[str]:
    """Return the ends of the ids of all runs that have a file, or had one that compacting has replaced."""
    names = replaced_names(ledger).union(file.name for file in ledger.glob("*.parquet"))
    return frozenset(name.removesuffix(".parquet").rpartition("-")[2] for name in names)


def _replacements(ledger: Path) -> Mapping[str, frozenset[str]]:
    """Return the names of the files that each compacted file replaces."""
    return {file.name: _replaced_by(file) for file in ledger.glob(COMPACTED_FILES)}


def _replaced_by(file: Path) -> frozenset[str]:
    with contextlib.suppress(pa.ArrowException, OSError), pq.ParquetFile(file) as parquet:
        return frozenset(json.loads((parquet.schema_arrow.metadata or {}).get(_REPLACES, b"[]")))
    return frozenset()


def _encoding(table: pa.Table) -> dict[str, Any]:
    """Return how columns are packed: measured times hardly repeat, and all else does."""
    empty = io.BytesIO()
    # An empty table from the schema would import pandas.
    pq.write_table(table.slice(0, 0), empty)
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
    compacting by a lock of its own. So nobody comes between the look at the name and the rename.
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
