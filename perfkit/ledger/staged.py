"""The file that a run is staged in: a header, then a line for each batch of rows with a checksum before it.

The process that measures holds a lock on it as long as it lives, and so does whoever recovers it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from perfkit.bounded import DATA_BYTES, read_bytes
from perfkit.errors import LedgerError
from perfkit.ledger.schema import NO_ROW, SCHEMA, SCHEMA_VERSION, from_cells, from_table, to_cells, to_table
from perfkit.model import Row

# The version of the lines; what they hold of a row has that of the ledger's schema.
_FORMAT = 1
_CHECKSUM_DIGITS = 16
# Whole numbers of each column are below this.
_LIMITS = {one.name: 1 << (one.type.bit_width - 1) for one in SCHEMA if pa.types.is_integer(one.type)}


@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a staged file; that of a newer version may lack what this one has."""

    perfkit_staged: int
    schema: int
    perfkit: str = "?"
    source: str | None = None
    run_id: str | None = None
    recorded_at: datetime | None = None
    # Of all the rest; older perfkits wrote none.
    checksum: str = ""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a staged file holds: ``size`` bytes of it stand, ``damaged`` whole lines among them do not."""

    header: Header | None = None
    rows: tuple[Row, ...] = ()
    size: int = 0
    damaged: int = 0
    problem: str = ""


def header_line(*, source: str, run_id: str, recorded_at: datetime) -> bytes:
    """Return the first line of a run that this perfkit begins."""
    header = Header(
        perfkit_staged=_FORMAT,
        schema=SCHEMA_VERSION,
        perfkit=_version(),
        source=source,
        run_id=run_id,
        recorded_at=recorded_at,
    )
    return msgspec.json.encode(replace(header, checksum=_header_checksum(header))) + b"\n"


def _header_checksum(header: Header) -> str:
    return _checksum(msgspec.json.encode(replace(header, checksum=""))).decode()


def rows_line(rows: Sequence[Row]) -> bytes:
    """Return the line of a batch of rows.

    Raises:
        LedgerError: a number in them is larger than a file of the ledger can hold.
    """
    cells = [to_cells(row) for row in rows]
    for one in cells:
        for name, limit in _LIMITS.items():
            number = one.get(name)
            if number is not None and not -limit <= number < limit:
                raise LedgerError(f"{name} is {number}, and must be from {-limit} to {limit - 1}")
    try:
        text = _to_json(cells) if _are_numbers(rows) else _to_any_json(cells)
    except UnicodeEncodeError:
        text = _to_any_json(cells)
    return _checksum(text) + b" " + text + b"\n"


def _are_numbers(rows: Sequence[Row]) -> bool:
    """Tell whether all values are numbers: a loss of a run that diverged is none."""
    return all(math.isfinite(value) for row in rows for value in row.outcome.values)


def _to_json(cells: Sequence[Mapping[str, Any]]) -> bytes:
    """Return JSON in a tenth of the time, which counts where thousands of rounds are staged between tests.

    It has null for what is no number, and refuses bytes in a text that are no UTF-8.
    """
    return msgspec.json.encode(cells)


def _to_any_json(cells: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps(cells, separators=(",", ":")).encode()


def _version() -> str:
    try:
        return metadata.version("perfkit")
    except metadata.PackageNotFoundError:
        return "?"


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:_CHECKSUM_DIGITS].encode()


def read_staged(staged: Path) -> Content:
    """Return what a staged file holds; one without a whole first line holds nothing."""
    first, newline, rest = read_bytes(staged, most=DATA_BYTES).partition(b"\n")
    if not newline:
        return Content()
    header = _header_of(first)
    if header and (header.perfkit_staged > _FORMAT or header.schema > SCHEMA_VERSION):
        problem = f"was written by a newer perfkit ({header.perfkit}); upgrade perfkit to recover it"
        return Content(header=header, problem=problem)
    if header and _is_as_written(header, first):
        return _read_batches(header, rest, size=len(first) + 1)
    content = _read_batches(None, rest, size=len(first) + 1)
    if not content.rows:
        return Content(problem="is no staged run of perfkit; move it away")
    # Each line of rows has its own checksum, and says itself of which run it is.
    return replace(content, damaged=content.damaged + 1)


def _is_as_written(header: Header, line: bytes) -> bool:
    """Tell whether a first line has its checksum, or none and only keys that older perfkits wrote."""
    if header.checksum:
        return header.checksum == _header_checksum(header)
    return set(json.loads(line)) <= {one.name for one in fields(Header)} - {"checksum"}


def _header_of(line: bytes) -> Header | None:
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _read_batches(header: Header | None, text: bytes, *, size: int) -> Content:
    # What follows the last line was being written when the run was cut off: nobody was told that it stands.
    *lines, _ = text.split(b"\n")
    batches = [_read_batch(line) for line in lines]
    return Content(
        header=header,
        rows=tuple(row for batch in batches if batch is not None for row in batch),
        size=size + sum(len(line) + 1 for line in lines),
        damaged=batches.count(None),
    )


def _read_batch(line: bytes) -> tuple[Row, ...] | None:
    """Return the rows of a line, None where it is damaged."""
    checksum, _, text = line.partition(b" ")
    if checksum != _checksum(text):
        return None
    unknown = dict.fromkeys(SCHEMA.names)
    try:
        cells = msgspec.convert(json.loads(text), type=list[dict[str, Any]])
        rows = [from_cells({**unknown, **one}) for one in cells]
        # Anybody can write a checksum: these are rows if a table can be made of them.
        return tuple(from_table(to_table(rows)))
    except (*NO_ROW, pa.ArrowException, msgspec.ValidationError, LedgerError):
        return None


@contextmanager
def claimed(staged: Path) -> Iterator[int]:
    """Hold the lock of a staged file whose owner is dead.

    Raises:
        LedgerError: its owner lives.
        FileNotFoundError: it is gone.
    """
    descriptor = _open_to_lock(staged)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerError(
                f"another perfkit is measuring what is in {staged}; wait for it to end"
            ) from None
        if not os.fstat(descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(staged))
        yield descriptor
    finally:
        os.close(descriptor)


def _open_to_lock(staged: Path) -> int:
    try:
        return os.open(staged, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        # In a ledger that cannot be written a lock is still to be had.
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return os.open(staged, os.O_RDONLY | os.O_CLOEXEC)
