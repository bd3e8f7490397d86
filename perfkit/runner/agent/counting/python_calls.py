"""Counts the Python functions that a call calls, and the memory that Python allocates in it."""

from __future__ import annotations

import cProfile
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from types import CodeType

from ..thread_profile import profile_of_this_thread
from .interventions import undone_in_forks, without_garbage_collection
from .model import Tally
from .places import Places, is_ours

PROFILER_IN_USE = "another profiler is active"
TRACING_IN_USE = "memory is being traced already"


def is_profiled() -> bool:
    """Tell whether a profiler is active in this process."""
    if sys.version_info >= (3, 12) and sys.monitoring.get_tool(sys.monitoring.PROFILER_ID) is not None:
        return True
    return sys.getprofile() is not None


def count_python_calls(call: Callable[[], object], places: Places) -> Tally | None:
    """Return the calls of Python functions that a call makes; None where it sets a profiler of its own."""
    profile = profile_of_this_thread()
    with without_garbage_collection(), undone_in_forks(profile.disable):
        profile.enable(subcalls=False, builtins=False)
        try:
            call()
            was_left_alone = _is_active(profile)
        except ValueError as error:
            if not _refuses_profiler(error):
                raise
            was_left_alone = False
        finally:
            profile.disable()
    return _tally(profile, places) if was_left_alone else None


def is_traced() -> bool:
    """Tell whether Python's memory is being traced already."""
    return tracemalloc.is_tracing()


def python_peak(call: Callable[[], object]) -> float | None:
    """Return the most bytes that Python objects took at once; None where the call traces memory itself."""
    with without_garbage_collection(), undone_in_forks(tracemalloc.stop):
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            call()
            was_left_alone = tracemalloc.is_tracing()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    return float(peak - before) if was_left_alone else None


def _is_active(profile: cProfile.Profile) -> bool:
    active: object = sys.getprofile()
    return sys.version_info >= (3, 12) or active is profile


def _refuses_profiler(error: ValueError) -> bool:
    """Tell whether an error is that of a second profiler (since Python 3.12), not the benchmark's own."""
    return sys.version_info >= (3, 12) and "profiling tool" in str(error)


def _tally(profile: cProfile.Profile, places: Places) -> Tally:
    made: Tally = Counter()
    for entry in profile.getstats():
        code = entry.code
        if isinstance(code, CodeType) and not is_ours(code):
            made[code.co_qualname, places.function_of(code)] += entry.callcount
    return made
