"""Reads a profile of any known format, in a process with little memory and time that runs nothing."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.errors import UsageError
from perfkit.model.memory import MemorySnapshot
from perfkit.model.readings import Reading
from perfkit.profiling.read.memory import read_snapshot
from perfkit.profiling.read.names import CodeNames
from perfkit.profiling.read.pstats_file import read_pstats
from perfkit.profiling.read.summary_file import read_summary
from perfkit.profiling.read.trace_file import read_trace
from perfkit.runner.requests import Parent

# An unpacked file may have ten times the size of the largest trace that a viewer still opens.
LARGEST_BYTES = 1_000_000_000
_GZIP = b"\x1f\x8b"
_KNOWN = "a .stat or .prof of cProfile, a .json or .json.gz of torch.profiler, or a .json of perfkit profile"
# What begins with a bracket and is no JSON: a file of settings with its "[section]", or a template.
_SECTION = re.compile(rb"[\[{\s]+(?!(?:true|false|null)\b)[A-Za-z_%]")
_ABSENT = msgspec.Raw()


class _TopLevel(msgspec.Struct):
    """The keys by which JSON files differ; their values are not decoded."""

    traceEvents: msgspec.Raw = _ABSENT  # noqa: N815 (the format's own word)
    passes: msgspec.Raw = _ABSENT
    machine_info: msgspec.Raw = _ABSENT


def read_bytes(data: bytes, name: str, code: CodeNames) -> Reading:
    """Return the reading of a profile of any format."""
    if not data:
        raise UsageError(f"{name} is empty; profile again to replace it")
    if data.startswith(_GZIP):
        data = _unpacked(data, name)
    try:
        return _reader(data, name)(data, name, code)
    except RecursionError:
        raise UsageError(f"{name} is nested too deeply for a profile; is it damaged?") from None


def _reader(data: bytes, name: str) -> Callable[[bytes, str, CodeNames], Reading]:
    if _is_table_of_marshal(data):
        return read_pstats
    start = data[:64].lstrip()
    if start.startswith((b"{", b"[")) and not _SECTION.match(start):
        return _json_reader(data, name)
    if data.startswith((b"\x80", b"PK")):
        raise UsageError(f"{name} is a pickle, and could run anything if it were opened; expected {_KNOWN}")
    raise UsageError(f"{name} is no profile that perfkit knows; expected {_KNOWN}")


def _is_table_of_marshal(data: bytes) -> bool:
    key = data[1:2]
    return data[:1] in (b"{", b"\xfb") and (key == b"0" or (key != b"" and key[0] & 0x7F in b"()"))


def _json_reader(data: bytes, name: str) -> Callable[[bytes, str, CodeNames], Reading]:
    head = data[:2_000]
    if b'"traceEvents"' in head or b'"deviceProperties"' in head:
        return lambda data, name, _: read_trace(data, name)
    try:
        found = msgspec.json.decode(data, type=_TopLevel)
    except msgspec.ValidationError:
        raise UsageError(f"{name} is JSON, but no profile; expected {_KNOWN}") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{name} is damaged or cut short ({error}); profile again to replace it") from None
    if found.traceEvents:
        return lambda data, name, _: read_trace(data, name)
    if found.passes:
        return lambda data, name, _: read_summary(data, name)
    hint = "; it is pytest-benchmark's, see `perfkit ledger`" if found.machine_info else ""
    raise UsageError(f"{name} is JSON, but no profile{hint}; expected {_KNOWN}")


def _unpacked(data: bytes, name: str) -> bytes:
    unpacked = b""
    # Tools that pack in parallel write several gzip files in a row, which are read as one. Other bytes behind
    # them are padding.
    while data.startswith(_GZIP):
        unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            unpacked += unpacker.decompress(data, LARGEST_BYTES + 1 - len(unpacked))
        except zlib.error as error:
            raise UsageError(f"{name} is a damaged gzip file ({error}); export it again") from None
        if len(unpacked) > LARGEST_BYTES:
            raise UsageError(f"{name} unpacks to more than {LARGEST_BYTES // 10**6} MB; trace fewer steps")
        if not unpacker.eof:
            raise UsageError(f"{name} is cut short: the gzip file has no end; export it again")
        data = unpacker.unused_data
    return unpacked


@dataclass(frozen=True, kw_only=True)
class Order:
    """The file to read, the name that messages give it, and the limits of memory and CPU time."""

    file: bytes
    name: str
    code: CodeNames
    memory_bytes: int
    cpu_s: int
    memory: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The reading or snapshot, or one line on why there is none."""

    reading: Reading | None = None
    snapshot: MemorySnapshot | None = None
    problem: str = ""


def main(request: Order, parent: Parent) -> None:
    """Read a file within limits, and send the answer."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (request.memory_bytes, request.memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (request.cpu_s, request.cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Readings hold no reference cycles, and the search for some would take a third of the time.
    gc.disable()
    parent.send(_answer(request))


def _answer(order: Order) -> Answer:
    try:
        content = _content(order)
        if order.memory:
            return Answer(snapshot=read_snapshot(content, order.name))
        return Answer(reading=read_bytes(content, order.name, order.code))
    except UsageError as error:
        return Answer(problem=str(error))
    except MemoryError:
        return Answer(
            problem=f"{order.name} takes more than {order.memory_bytes // 10**9} GB to read; is it damaged?"
        )


def _content(order: Order) -> bytes:
    try:
        with Path(os.fsdecode(order.file)).open("rb") as stream:
            data = stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{order.name} cannot be read ({error.strerror or error})") from None
    if len(data) > LARGEST_BYTES:
        raise UsageError(f"{order.name} has more than {LARGEST_BYTES // 10**6} MB; profile fewer steps")
    return data
