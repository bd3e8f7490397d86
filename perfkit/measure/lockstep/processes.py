"""Process trees as the kernel shows them: who belongs to a child, whether it runs, what it has used."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_STOPPED = frozenset("Tt")
_ENDED = frozenset("ZX")
_STOP_LIMIT_S = 1.0
_STOP_POLL_S = 5e-5
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Process:
    """One process: its parent, its group, its state's letter, and its CPU time in seconds (10 ms steps).

    ``core`` is where its main thread ran last.
    """

    pid: int
    parent: int
    group: int
    state: str
    cpu_s: float
    core: int

    @property
    def rests(self) -> bool:
        """Whether it is stopped or over."""
        return self.state in _STOPPED | _ENDED


def tree(leader: int) -> tuple[Process, ...]:
    """Return the living processes of a child: its descendants and its group; none without /proc."""
    everyone = {process.pid: process for process in _everyone()}

    def belongs(process: Process) -> bool:
        seen: Process | None = process
        while seen is not None:
            if leader in (seen.pid, seen.group):
                return True
            seen = everyone.get(seen.parent)
        return False

    living = (process for process in everyone.values() if process.state not in _ENDED)
    return tuple(process for process in living if belongs(process))


def read_process(pid: int) -> Process | None:
    """Return one process, None where it is gone or cannot be seen."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name stands in parentheses and may hold anything; the fields after it are plain (proc(5)).
    fields = text[text.rindex(")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        state=fields[0],
        cpu_s=(int(fields[11]) + int(fields[12])) * _TICK_S,
        core=int(fields[36]),
    )


def stop(leader: int, strays: tuple[int, ...] = ()) -> None:
    """Stop a child's group, and processes of its tree that left the group; return once its leader rests."""
    _signal(leader, strays, signal.SIGSTOP)
    deadline = time.monotonic() + _STOP_LIMIT_S
    while (process := read_process(leader)) is not None and not process.rests:
        if time.monotonic() > deadline:
            break
        # The leader may need this very core to take the signal.
        time.sleep(_STOP_POLL_S)


def resume(leader: int, strays: tuple[int, ...] = ()) -> None:
    """Let a child's tree go on."""
    _signal(leader, strays, signal.SIGCONT)


def kill(leader: int, strays: tuple[int, ...] = ()) -> None:
    """End a child's whole tree, whatever state it is in; ``strays`` are those known to have been of it."""
    found = tuple(process.pid for process in tree(leader) if process.group != leader)
    _signal(leader, (*strays, *found), signal.SIGKILL)


def _signal(leader: int, strays: tuple[int, ...], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)
    for pid in strays:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _everyone() -> Iterator[Process]:
    if not _PROC.is_dir():
        return
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (process := read_process(int(entry.name))) is not None:
            yield process
