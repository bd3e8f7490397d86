"""Keeps the garbage collector from running at moments that differ from call to call."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from .forks import undone_in_forks


@contextlib.contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Collect the garbage now and not again until the end: when it happens must not decide a count."""
    was_enabled = gc.isenabled()
    if was_enabled:
        gc.collect()
    else:
        collect_recent()
    gc.disable()
    resume = gc.enable if was_enabled else gc.disable
    try:
        with undone_in_forks(resume):
            yield
    finally:
        resume()


def collect_recent() -> None:
    """Collect only garbage made since collecting was stopped; a full collection takes a tenth of a second."""
    gc.collect(0)
