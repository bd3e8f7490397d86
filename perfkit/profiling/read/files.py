"""Reads a profile's file through a process of its own: a hostile one harms nothing else."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.model.memory import MemorySnapshot
from perfkit.model.readings import Reading
from perfkit.profiling.read.formats import Answer, Order
from perfkit.profiling.read.names import CodeNames, printable
from perfkit.runner.requests import ask

_MEMORY_BYTES = 2_000_000_000
_CPU_S = 120
# A busy machine gives it less than a core.
_LIMIT_S = 10.0 * _CPU_S
_OUT_OF_TIME = -signal.SIGXCPU
_PICKLE = b"\x80"


def read_profile(file: Path, code: CodeNames) -> Reading:
    """Return the reading of a file that cProfile, torch.profiler or `perfkit profile` wrote."""
    answer = _answer(file, code, memory=False)
    assert answer.reading is not None  # noqa: S101 (an answer without a problem has what was ordered)
    return answer.reading


def read_memory(file: Path) -> MemorySnapshot:
    """Return a snapshot of an accelerator's allocator."""
    answer = _answer(file, CodeNames(own=(), present=frozenset()), memory=True)
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


def _answer(file: Path, code: CodeNames, *, memory: bool) -> Answer:
    # Path.is_file raises where the name is too long or the folder may not be read.
    if not os.path.isfile(file):  # noqa: PTH113
        raise UsageError(f"there is no file {printable(str(file))}; give the path of a profile")
    order = Order(
        file=os.fsencode(file),
        name=printable(file.name),
        code=code,
        memory_bytes=_MEMORY_BYTES,
        cpu_s=_CPU_S,
        memory=memory,
    )
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
