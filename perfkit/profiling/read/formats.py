"""Reads a profile of any known format, in a process with little memory and time that runs nothing."""

from __future__ import annotations

import gc
import os
import re
import signal
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.errors import UsageError
from perfkit.model.readings import MemorySnapshot, Reading
from perfkit.profiling.read.memory import read_snapshot
from perfkit.profiling.read.names import CodeNames, printable
from perfkit.profiling.read.pstats_file import read_pstats
from perfkit.profiling.read.summary_file import read_summary
from perfkit.profiling.read.trace_file import read_trace
from perfkit.runner.requests import Parent, ask, limit_process

# An unpacked file may have ten times the size of the largest trace that a viewer still opens.
LARGEST_BYTES = 1_000_000_000
_MEMORY_BYTES = 2_000_000_000
_CPU_S = 120
# A busy machine gives it less than a core.
_LIMIT_S = 10.0 * _CPU_S
_OUT_OF_TIME = -signal.SIGXCPU
_PICKLE, _GZIP = b"\x80", b"\x1f\x8b"
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
    """The file to read, as a profile or as a snapshot of ``memory``, and the name that messages give it."""

    file: bytes
    name: str
    code: CodeNames
    memory: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The reading or snapshot, or one line on why there is none."""

    reading: Reading | None = None
    snapshot: MemorySnapshot | None = None
    problem: str = ""


def main(request: Order, parent: Parent) -> None:
    """Read a file within limits, and send the answer."""
    limit_process(address_space=_MEMORY_BYTES, cpu_s=_CPU_S)
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
            problem=f"{order.name} takes more than {_MEMORY_BYTES // 10**9} GB to read; is it damaged?"
        )


def _content(order: Order) -> bytes:
    try:
        with Path(os.fsdecode(order.file)).open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            data = b"" if size > LARGEST_BYTES else stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{order.name} cannot be read ({error.strerror or error})") from None
    if max(size, len(data)) > LARGEST_BYTES:
        raise UsageError(f"{order.name} has more than {LARGEST_BYTES // 10**6} MB; profile fewer steps")
    return data


def read_profile(file: Path, code: CodeNames) -> Reading:
    """Return the reading of a file that cProfile, torch.profiler or `perfkit profile` wrote."""
    answer = _ask(file, code, memory=False)
    assert answer.reading is not None  # noqa: S101 (an answer without a problem has what was ordered)
    return answer.reading


def read_memory(file: Path) -> MemorySnapshot:
    """Return a snapshot of an accelerator's allocator."""
    answer = _ask(file, CodeNames(own=(), present=frozenset()), memory=True)
    assert answer.snapshot is not None  # noqa: S101 (likewise)
    return answer.snapshot


def is_pickle(file: Path) -> bool:
    """Return whether a file begins as the pickles of snapshots do."""
    # A pipe that nobody writes to would keep the opening waiting; Path.is_file raises for a long name.
    if not os.path.isfile(file):  # noqa: PTH113
        return False
    try:
        with file.open("rb") as stream:
            return stream.read(1) == _PICKLE
    except OSError:
        return False


def _ask(file: Path, code: CodeNames, *, memory: bool) -> Answer:
    # Path.is_file raises where the name is too long or the folder may not be read.
    if not os.path.isfile(file):  # noqa: PTH113
        raise UsageError(f"there is no file {printable(str(file))}; give the path of a profile")
    order = Order(file=os.fsencode(file), name=printable(file.name), code=code, memory=memory)
    reply = ask("perfkit.profiling.read.formats:main", order, Answer, limit_s=_LIMIT_S)
    if reply.messages:
        answer = reply.messages[0]
        if answer.problem:
            raise UsageError(answer.problem)
        return answer
    # A damaged file can crash its reader, and a traceback would not help the person who has the file.
    if reply.ending.status in (None, _OUT_OF_TIME):
        raise UsageError(f"{order.name} takes more than {_CPU_S} s to read; is it damaged, or too large?")
    raise UsageError(
        f"{printable(str(file))} cannot be read: its reader {printable(reply.ending.words)};"
        " it is damaged, or no profile"
    )
