"""What every command does before it measures: wait for the machine, and tidy up after killed perfkits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from perfkit.repo.leftovers import sweep
from perfkit.runner.lock import machine_lock
from perfkit.runner.machine.facts import check_proc

_holds_machine = ContextVar("holds_machine", default=False)


@contextmanager
def measuring(log: Callable[[str], None], *, wait_s: float | None) -> Iterator[float]:
    """Hold the machine for this and inner commands, and yield the seconds of waiting for another perfkit."""
    if _holds_machine.get():
        yield 0.0
        return
    check_proc()
    with machine_lock(log=log, wait_s=wait_s) as waited_s:
        sweep(log)
        held = _holds_machine.set(True)
        try:
            yield waited_s
        finally:
            _holds_machine.reset(held)
