"""Says what a device did in a trace's window, why it was idle, and whether the trace has all of its work."""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfkit.model.readings import DeviceTime, IdleCause, PhaseTime
from perfkit.profiling.read.timeline import RUNTIME, Event, Timeline, Window, covered_s
from perfkit.profiling.read.trace_phases import outermost_phases

_COPIES = frozenset({"Memcpy", "gpu_memcpy", "Memset", "gpu_memset"})
_COLLECTIVES = re.compile(r"nccl|rccl|oneccl", re.IGNORECASE)
_SYNCHRONISES = re.compile(r"(cuda|hip|xpu|cu)\w*Synchronize|(cuda|hip)Memcpy$")
_LAUNCHES = re.compile(r"Launch\w*Kernel|\wLaunchKernel|GraphLaunch|hipModuleLaunch")
SHORT_KERNEL_S = 5e-6


def devices_of(timeline: Timeline, window: Window) -> tuple[DeviceTime, ...]:
    """Return what each device of a trace did in its window, in the order of their names.

    Where several streams have work at once, computing counts before communication, and that before copies.
    """
    by_device: dict[str, list[Event]] = defaultdict(list)
    for event in timeline.device:
        by_device[event.thread.partition("/")[0]].append(event)
    calls = _Calls.of(timeline)
    return tuple(_device(name, by_device[name], calls, timeline, window) for name in sorted(by_device))


def _device(name: str, events: list[Event], calls: _Calls, timeline: Timeline, window: Window) -> DeviceTime:
    inside = [one for one in events if one.begin_s < window.end_s and one.end_s > window.begin_s]
    kernels = [one for one in inside if one.category not in _COPIES]
    collectives = [one for one in kernels if _COLLECTIVES.search(one.name)]
    compute_s = _covered_s((one for one in kernels if not _COLLECTIVES.search(one.name)), window)
    kernels_s, all_s = _covered_s(kernels, window), _covered_s(inside, window)
    idle: dict[IdleCause, float] = dict.fromkeys(("host", "sync", "queue"), 0.0)
    waited: list[tuple[float, float]] = []
    for gap in gaps(inside, calls.begins, begin_s=window.begin_s, end_s=window.end_s):
        late = gap.launched_late
        cause: IdleCause = "queue"
        if late:
            cause = "sync" if calls.synchronises_at(gap.begin_s) else "host"
        idle[cause] += gap.end_s - gap.begin_s
        if late:
            waited.append((gap.begin_s, gap.end_s))
    lost, unlaunched, launches = calls.audit(events, window)
    return DeviceTime(
        name=name,
        compute_s=compute_s,
        communication_s=kernels_s - compute_s,
        copy_s=all_s - kernels_s,
        idle_s=idle,
        waited_for=_phases_during(waited, timeline, window),
        launches=launches,
        kernels=len(kernels),
        short_kernels=sum(one.end_s - one.begin_s < SHORT_KERNEL_S for one in kernels),
        collectives_s=_covered_s(collectives, window),
        launches_without_kernel=lost,
        kernels_without_launch=unlaunched,
    )


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A time in which nothing ran; ``launched_late`` where what ended it was not launched at its begin."""

    begin_s: float
    end_s: float
    launched_late: bool


def gaps(
    events: Iterable[Event],
    launched_s: Mapping[int, float],
    *,
    begin_s: float | None = None,
    end_s: float | None = None,
) -> Iterator[Gap]:
    """Yield the times between two moments in which none of the events ran.

    A whole gap is the host's doing where the work that ends it was launched after the gap had begun, as
    HolisticTraceAnalysis has it: launched in time, it would have left no gap. So is a gap that nothing ends.
    Work whose launch is not in the trace counts as launched in time. Without ``begin_s`` gaps begin after
    the first event, without ``end_s`` the last event ends them.
    """
    reached_s = begin_s
    for event in sorted(events, key=lambda one: one.begin_s):
        if reached_s is not None and event.begin_s > reached_s:
            launch_s = launched_s.get(event.correlation) if event.correlation else None
            late = launch_s is not None and launch_s > reached_s
            yield Gap(begin_s=reached_s, end_s=event.begin_s, launched_late=late)
        reached_s = event.end_s if reached_s is None else max(reached_s, event.end_s)
    if reached_s is not None and end_s is not None and end_s > reached_s:
        yield Gap(begin_s=reached_s, end_s=end_s, launched_late=True)


@dataclass(frozen=True, kw_only=True)
class _Calls:
    """The runtime's calls of a trace: when each correlation was launched, and when hosts synchronised.

    ``done`` are the correlations of what ran on any device: a process may launch work on several.
    """

    begins: Mapping[int, float]
    done: frozenset[int]
    kernel_launches: Sequence[Event]
    synchronisations: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, timeline: Timeline) -> _Calls:
        """Find them on all threads of the host."""
        begins: dict[int, float] = {}
        launches: list[Event] = []
        synchronisations: list[tuple[float, float]] = []
        for events in timeline.events.values():
            for event in events:
                if event.category not in RUNTIME:
                    continue
                if event.correlation:
                    begins[event.correlation] = event.begin_s
                    if _LAUNCHES.search(event.name):
                        launches.append(event)
                if _SYNCHRONISES.match(event.name):
                    synchronisations.append((event.begin_s, event.end_s))
        return cls(
            begins=begins,
            done=frozenset(one.correlation for one in timeline.device if one.correlation),
            kernel_launches=launches,
            synchronisations=_merged(synchronisations),
        )

    def synchronises_at(self, moment_s: float) -> bool:
        """Tell whether a thread of the host stood in a synchronisation at a moment."""
        place = bisect.bisect_right(self.synchronisations, moment_s, key=lambda one: one[0])
        return place > 0 and moment_s <= self.synchronisations[place - 1][1]

    def audit(self, events: Sequence[Event], window: Window) -> tuple[int, int, int]:
        """Return launches without a kernel, kernels without a launch, and launches, all of the window.

        The events are those of one device. A launch whose kernel is on no device may be any device's, and
        counts for each. Kernels that were launched before the trace began are none of those without a launch.
        """
        here = {one.correlation for one in events if one.correlation}
        launches = [one for one in self.kernel_launches if window.begin_s <= one.begin_s < window.end_s]
        lost = sum(one.correlation not in self.done for one in launches)
        first_s = min((one.begin_s for one in events if one.correlation in self.begins), default=None)
        unlaunched = sum(
            one.category not in _COPIES
            and bool(one.correlation)
            and one.correlation not in self.begins
            and first_s is not None
            and max(first_s, window.begin_s) < one.begin_s < window.end_s
            for one in events
        )
        return lost, unlaunched, lost + sum(one.correlation in here for one in launches)


def _merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for begin_s, end_s in sorted(intervals):
        if merged and begin_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
        else:
            merged.append((begin_s, end_s))
    return merged


def _covered_s(events: Iterable[Event], window: Window) -> float:
    return covered_s((max(one.begin_s, window.begin_s), min(one.end_s, window.end_s)) for one in events)


def _phases_during(
    waited: Sequence[tuple[float, float]], timeline: Timeline, window: Window
) -> tuple[PhaseTime, ...]:
    """Return the phases that the host was in while the device waited for it, longest first."""
    seconds: dict[str, float] = defaultdict(float)
    first = 0
    for phase, begin_s, end_s in outermost_phases(timeline, window):
        while first < len(waited) and waited[first][1] <= begin_s:
            first += 1
        # A copy of all that are left would make a long trace take the square of its length.
        for place in range(first, len(waited)):
            wait_begin_s, wait_end_s = waited[place]
            if wait_begin_s >= end_s:
                break
            seconds[phase] += min(end_s, wait_end_s) - max(begin_s, wait_begin_s)
    found = [PhaseTime(name=name, seconds=found_s) for name, found_s in seconds.items() if found_s > 0]
    return tuple(sorted(found, key=lambda one: -one.seconds))
