"""The process in which a profile's file is read: it has little memory and little time, and runs nothing.

``python -m perfkit.profiling.read.child ORDER ANSWER``: an order as JSON, and where a reading is written,
or why there is none.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.errors import UsageError
from perfkit.model.memory import MemorySnapshot
from perfkit.model.readings import Reading
from perfkit.profiling.read.formats import LARGEST_BYTES, read_bytes
from perfkit.profiling.read.names import CodeNames
from perfkit.profiling.read.snapshot_file import read_snapshot


@dataclass(frozen=True, kw_only=True)
class Order:
    """The file to read, the name that messages give it, and the limits of memory and CPU time.

    It is read as a profile, or with ``memory`` as a snapshot of an allocator.
    """

    file: bytes
    name: str
    code: CodeNames
    memory_bytes: int
    cpu_s: int
    memory: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The reading or snapshot, or one line that says why there is none."""

    reading: Reading | None = None
    snapshot: MemorySnapshot | None = None
    problem: str = ""


def main(order_file: str, answer_file: str) -> None:
    """Read what a file orders, and leave the answer in another."""
    order = msgspec.json.decode(Path(order_file).read_bytes(), type=Order)
    _limit(order)
    # Readings hold no reference cycles, and the search for some would take a third of the time.
    gc.disable()
    Path(answer_file).write_bytes(msgspec.msgpack.encode(_answer(order)))


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


def _limit(order: Order) -> None:
    """Limit this process's memory and CPU time, where the system has such limits."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (order.memory_bytes, order.memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (order.cpu_s, order.cpu_s + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
