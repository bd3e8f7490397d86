"""cProfile of one thread: since Python 3.12 it uses ``sys.monitoring``, which sees all threads."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable
from threading import get_ident


def profile_of_this_thread() -> cProfile.Profile:
    """Return a profiler, not yet enabled, that sees only the thread that made it.

    Since Python 3.12 the events of all threads go to one stack, where a call of one thread ends that of
    another. The profiler looks up its callbacks on itself when it is enabled, so they are replaced there.
    """
    profile = cProfile.Profile()
    if sys.version_info >= (3, 12):
        for name in monitoring_callbacks():
            setattr(profile, name, _only_in(get_ident(), getattr(profile, name)))
    return profile


def monitoring_callbacks() -> tuple[str, ...]:
    """Return the names of the profiler's methods that receive events, under which it looks them up."""
    return tuple(name for name in dir(cProfile.Profile) if name.endswith("_callback"))


def _only_in(thread: int, callback: Callable[..., object]) -> Callable[..., object]:
    def heard(*event: object) -> object:
        return callback(*event) if get_ident() == thread else None

    return heard
