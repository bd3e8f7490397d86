"""The pytest session of a trace: each benchmark runs in a process of its own, and nothing is timed."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from .trace import Trace

if TYPE_CHECKING:
    from .benchmark_fixture import Work

# A benchmark is called again for so long, so that code of rare calls may show.
_CALLS_S, _MOST_CALLS = 0.01, 20
# A call that takes longer is made once, and counts as the first one and as a later one.
_LONG_CALL_S = 0.5


class TracePlugin:
    """Has each benchmark run in a process of its own, and report what it ran when it is over."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Separate imports from what benchmarks run, before anything else looks at them."""
        self._trace.end_imports()
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """Fork a process that runs a test, and run nothing here."""
        if self._trace.is_forked:
            if self._trace.goes_on(item.nodeid):
                return None
            self._trace.finish()
        return self._trace.fork(item.nodeid) or None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logfinish(self) -> None:
        """Send what a test has run that is over."""
        self._trace.send()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """End a process whose test has ended the session."""
        if self._trace.is_forked:
            self._trace.finish()


class TracingLoop:
    """A timing loop that calls each benchmark some times and times nothing."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def time(self, work: Work) -> None:
        """Make the first call, and some later ones where the benchmark allows them."""
        try:
            self._call(work)
        finally:
            # What runs afterwards is no call of the benchmark.
            self._trace.switch("setup")

    def _call(self, work: Work) -> None:
        loops = work.loops or 1
        # Where each process makes one call, that is the one that is timed.
        single = work.rounds is not None and work.rounds * loops < 2  # noqa: PLR2004
        begun = time.perf_counter()
        self._trace.switch("later" if single else "first")
        _call(work, loops)
        self._trace.switch("later")
        until, made = time.perf_counter() + _CALLS_S, 1
        if not single and until - begun > _LONG_CALL_S:
            self._trace.repeat("first")
            return
        most = _MOST_CALLS if work.rounds is None else min(work.rounds, _MOST_CALLS)
        while made < most and (made == 1 or time.perf_counter() < until):
            _call(work, loops)
            made += 1


def _call(work: Work, loops: int) -> None:
    if work.number is not None:
        work.number()
    else:
        work.block(loops)
