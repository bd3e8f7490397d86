"""What every command does before it measures: wait for the machine, and tidy up after perfkits that were killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from perfkit.measure.lock import machine_lock
from perfkit.repo.leftovers import sweep
from perfkit.units import human_seconds


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


def waited_text(waited_s: float) -> str:
    """Return how long a command waited, "" where it did not have to."""
    return f"waited {human_seconds(waited_s)} for another perfkit" if waited_s else ""
