"""What every command does before it measures: wait for the machine, and tidy up after killed perfkits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perfkit.measure.lock import machine_lock
from perfkit.repo.leftovers import sweep


@contextmanager
def measuring(say: Callable[[str], None], *, wait_s: float | None) -> Iterator[float]:
    """Hold the machine, and yield the seconds that another perfkit kept this one waiting.

    ``say`` hears for whom this one waits, and what was tidied up. It gives up after ``wait_s`` seconds, with
    None never.

    Raises:
        NotMeasuredError: the machine was not let go in time.
        UsageError: the machine's lock cannot be opened, or the time to wait is none.
    """
    with machine_lock(say=say, wait_s=wait_s) as waited_s:
        sweep(say)
        yield waited_s
