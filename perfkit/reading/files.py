"""Reads a profile's file through a process of its own: a hostile one harms nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from perfkit.errors import UsageError
from perfkit.reading.child import Answer, Order
from perfkit.reading.names import CodeNames, printable
from perfkit.records.readings import Reading

_MEMORY_BYTES = 2_000_000_000
_CPU_S = 120
_OUT_OF_TIME = -int(getattr(signal, "SIGXCPU", 0)) or None


def read_profile(file: Path, code: CodeNames) -> Reading:
    """Return what a file says that cProfile, torch.profiler or `perfkit profile` wrote.

    Raises:
        UsageError: the file cannot be read, is damaged, or is none of these.
    """
    # Path.is_file raises where the name is too long or the folder may not be read.
    if not os.path.isfile(file):  # noqa: PTH113
        raise UsageError(f"there is no file {printable(str(file))}; give the path of a profile")
    order = Order(
        file=os.fsencode(file),
        name=printable(file.name),
        code=code,
        memory_bytes=_MEMORY_BYTES,
        cpu_s=_CPU_S,
    )
    # With -P no module of the current folder is imported in place of one of the harness.
    done = subprocess.run(
        [sys.executable, "-P", "-m", "perfkit.reading.child"],
        input=msgspec.json.encode(order),
        capture_output=True,
        check=False,
    )
    return _reading(done, file)


def _reading(done: subprocess.CompletedProcess[bytes], file: Path) -> Reading:
    try:
        answer = msgspec.msgpack.decode(done.stdout, type=Answer)
    except msgspec.DecodeError:
        if done.returncode == _OUT_OF_TIME:
            raise UsageError(
                f"{printable(file.name)} takes more than {_CPU_S} s to read; is it damaged, or too large?"
            ) from None
        # A damaged file can crash its reader, and a traceback would not help the person who has the file.
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = said[-1] if said else f"exit status {done.returncode}"
        raise UsageError(
            f"{printable(str(file))} cannot be read: its reader ended ({printable(why)});"
            " it is damaged, or no profile"
        ) from None
    if answer.reading is None:
        raise UsageError(answer.problem)
    return answer.reading
