"""A profile of one thread has no calls of other threads, on every version of Python."""

from __future__ import annotations

import cProfile
import pstats
import sys
import threading
import time
from types import FunctionType
from typing import Any

import pytest

from perfkit.agent.counters import calls as thread_profile
from perfkit.agent.counters.calls import monitoring_callbacks, profile_of_this_thread


class Scene:
    """One thread enters a function while another is in its own, and leaves it last."""

    def __init__(self) -> None:
        self._turns = {name: threading.Event() for name in ("watched is in", "other is in", "watched is out")}
        self.elapsed_s = 0.0

    def watched(self) -> None:
        """Be in this function while the other thread enters its own."""
        begun = time.perf_counter()
        self._turns["watched is in"].set()
        self._turns["other is in"].wait()
        self.elapsed_s = time.perf_counter() - begun

    def other(self) -> None:
        """Stay in this function until the watched one is left."""
        self._turns["other is in"].set()
        self._turns["watched is out"].wait()

    def play(self, profile: cProfile.Profile) -> dict[str, Any]:
        """Return the functions of this file by name, each as ``pstats`` has it."""
        thread = threading.Thread(target=self._be_other)
        thread.start()
        profile.enable()
        self.watched()
        profile.disable()
        self._turns["watched is out"].set()
        thread.join()
        stats = vars(pstats.Stats(profile))["stats"]
        return {name: timing for (file, _, name), timing in stats.items() if file == __file__}

    def _be_other(self) -> None:
        self._turns["watched is in"].wait()
        self.other()


def test_another_thread_leaves_no_trace() -> None:
    scene = Scene()

    stats = scene.play(profile_of_this_thread())

    assert ["watched"] == list(stats)
    calls, _, _, cumulative_s, callers = stats["watched"]
    assert (1, {}) == (calls, callers)
    assert scene.elapsed_s <= cumulative_s


@pytest.mark.skipif(sys.version_info < (3, 12), reason="cProfile follows only one thread here")
def test_no_event_goes_past_the_check() -> None:
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 (types for Python 3.11 have none)
    profile = profile_of_this_thread()
    profile.enable()
    logged = monitoring.get_events(monitoring.PROFILER_ID)
    # C_RETURN and C_RAISE come with CALL, and are not reported.
    events = {*(1 << bit for bit in range(32) if logged >> bit & 1)}
    events |= {monitoring.events.C_RETURN, monitoring.events.C_RAISE}
    callbacks = {
        event: monitoring.register_callback(monitoring.PROFILER_ID, event, None) for event in sorted(events)
    }
    profile.disable()

    assert {"_ccall_callback", "_creturn_callback", "_pyreturn_callback", "_pystart_callback"} <= set(
        monitoring_callbacks()
    )
    assert monitoring.events.PY_START in callbacks
    for callback in callbacks.values():
        assert isinstance(callback, FunctionType)
        assert thread_profile.__file__ == callback.__code__.co_filename
