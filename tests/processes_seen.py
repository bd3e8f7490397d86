"""These helpers report whether processes have ended, and read what they wrote about themselves."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from perfkit.agent.processes import read_process

_PATIENCE_S = 60.0
# Imported, it kills its process in the midst of a fork, as often as the flag's text is long.
DEADLY = """
import os, pathlib
flag = pathlib.Path({flag!r})
def die():
    lives = flag.read_text()
    if lives:
        flag.write_text(lives[1:])
        os.kill(os.getpid(), 9)
os.register_at_fork(before=die)
"""


def gone(pid: int) -> bool:
    """Return whether a process is over, waited for or not."""
    process = read_process(pid)
    return process is None or process.state in "ZX"


def read_pids(log: Path) -> list[int]:
    """Return the numbers that a process printed as its first whole line; none as long as there is no line."""
    line, end, _ = log.read_text().partition("\n") if log.exists() else ("", "", "")
    return [int(word) for word in line.split()] if end else []


def wait_until(condition: Callable[[], object]) -> bool:
    """Return whether something becomes so before a patient person would give up."""
    deadline = time.monotonic() + _PATIENCE_S
    while not (holds := bool(condition())) and time.monotonic() < deadline:
        time.sleep(0.002)
    return holds
