"""Reads a trace of torch.profiler (Kineto), of the old schema or the new: phases, waits and devices."""

from __future__ import annotations

import bisect
import itertools
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec

from perfkit.errors import UsageError
from perfkit.model.readings import (
    BACKWARD,
    DATA,
    FORWARD_AND_LOSS,
    MARK,
    OPTIMIZER,
    RANKS,
    RESIDUAL,
    TO_DEVICE,
    TRACED_PHASES,
    DeviceTime,
    IdleCause,
    OperatorTime,
    PhaseTime,
    Place,
    Reading,
    StepTimes,
    WaitTime,
)
from perfkit.profiling.diff.attribution import DEVICE as WAIT_FOR_DEVICE
from perfkit.profiling.read.names import printable

# Each set has the categories of the old schema and of the new one.
OPERATORS = frozenset({"Operator", "cpu_op"})
RUNTIME = frozenset({"Runtime", "cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime"})
MARKS = frozenset({"user_annotation"})
DEVICE = frozenset({"Kernel", "kernel", "Memcpy", "gpu_memcpy", "Memset", "gpu_memset"})
_ON_HOST = OPERATORS | RUNTIME | MARKS
_STEP = re.compile(r"ProfilerStep#\d+")
OPTIMIZER_STEP = "Optimizer.step#"


class Event(NamedTuple):
    """One timed event, in seconds on the trace's own clock.

    A ``correlation`` is the number that a launch and what it launched have in common, None where unknown.
    """

    name: str
    category: str
    thread: str
    begin_s: float
    end_s: float
    correlation: int | None = None


class Window(NamedTuple):
    """The part of a trace that is read: its steps, and the sign by which they were recognised."""

    begin_s: float
    end_s: float
    thread: str
    steps: tuple[Event, ...]
    seconds: tuple[float, ...]
    sign: str


class Nested(NamedTuple):
    """An event, the number of events around it, and the intervals in which no event within it ran."""

    event: Event
    depth: int
    own: Sequence[tuple[float, float]]


@dataclass
class _Open:
    """An event that has not ended yet; ``end_s`` is its own end or the window's, whichever is earlier."""

    event: Event
    end_s: float
    own: list[tuple[float, float]] = field(default_factory=list)

    def run(self, since_s: float, until_s: float) -> float:
        if until_s > since_s:
            self.own.append((since_s, until_s))
        return max(since_s, until_s)


@dataclass
class _Sum:
    """All events of one name; ``own`` has begin and end of each of their own intervals, one after another."""

    calls: int = 0
    own_s: float = 0.0
    cumulative_s: float = 0.0
    lanes: set[str] = field(default_factory=set)
    own: array[float] = field(default_factory=lambda: array("d"))

    def busy_s(self) -> float:
        begins, ends = self.own[::2], self.own[1::2]
        return covered_s(zip(begins, ends, strict=True))


@dataclass(frozen=True)
class Timeline:
    """The timed events of the host by thread, and those of the device; both are in order of their begin."""

    events: dict[str, list[Event]]
    device: list[Event]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Timeline:
        """Sort events into threads, and leave out those that are neither the host's nor the device's."""
        threads: dict[str, list[Event]] = defaultdict(list)
        device: list[Event] = []
        for event in events:
            if event.category in DEVICE:
                device.append(event)
            elif event.category in _ON_HOST:
                threads[event.thread].append(event)
        for found in threads.values():
            found.sort(key=lambda event: (event.begin_s, -event.end_s))
        return cls(events=dict(threads), device=sorted(device, key=lambda event: event.begin_s))

    @property
    def has_device(self) -> bool:
        """Whether anything ran on a device."""
        return bool(self.device)

    def nested(self, thread: str, begin_s: float, end_s: float) -> Iterator[Nested]:
        """Yield a thread's events that begin within the window, each with its own time in the window.

        Each moment belongs to one event at most, even where events overlap that should not.
        """
        stack: list[_Open] = []
        given_s = begin_s
        for event in self.events.get(thread, []):
            if not begin_s <= event.begin_s < end_s:
                continue
            while stack and stack[-1].event.end_s <= event.begin_s:
                given_s = stack[-1].run(given_s, stack[-1].end_s)
                yield _closed(stack)
            given_s = stack[-1].run(given_s, event.begin_s) if stack else max(given_s, event.begin_s)
            stack.append(_Open(event, min(event.end_s, end_s)))
        while stack:
            given_s = stack[-1].run(given_s, stack[-1].end_s)
            yield _closed(stack)

    def operators(self, begin_s: float, end_s: float) -> tuple[OperatorTime, ...]:
        """Return operators, runtime calls and kernels by name, costliest first by their own time."""
        sums: dict[tuple[str, Place], _Sum] = defaultdict(_Sum)
        for event, place, own in self._counted(begin_s, end_s):
            found = sums[event.name, place]
            found.calls += 1
            found.own_s += sum(end - begin for begin, end in own)
            found.cumulative_s += min(event.end_s, end_s) - event.begin_s
            found.lanes.add(event.thread)
            found.own.extend(itertools.chain.from_iterable(own))
        operators = (
            OperatorTime(
                name=name,
                place=place,
                calls=found.calls,
                own_s=found.own_s,
                cumulative_s=found.cumulative_s,
                # On one thread of the host no two events run at the same time.
                busy_s=found.busy_s() if place == "device" or len(found.lanes) > 1 else None,
            )
            for (name, place), found in sums.items()
        )
        return tuple(sorted(operators, key=lambda one: -one.own_s))

    def _counted(
        self, begin_s: float, end_s: float
    ) -> Iterator[tuple[Event, Place, Sequence[tuple[float, float]]]]:
        for thread in self.events:
            for event, _, own in self.nested(thread, begin_s, end_s):
                if not is_step(event):
                    yield event, "cpu", own
        for event in self.device:
            if begin_s <= event.begin_s < end_s:
                yield event, "device", [(event.begin_s, min(event.end_s, end_s))]

    def device_busy_s(self, begin_s: float, end_s: float) -> float:
        """Return for how long the device had something to do within the window."""
        return covered_s((max(one.begin_s, begin_s), min(one.end_s, end_s)) for one in self.device)


def window_of(timeline: Timeline) -> Window:
    """Return the steps of a trace, by the profiler's marks or else by the ends of optimizer steps."""
    marked = sorted(
        (event for found in timeline.events.values() for event in found if is_step(event)),
        key=lambda event: event.begin_s,
    )
    if marked:
        seconds = tuple(event.end_s - event.begin_s for event in marked)
        end_s = max(event.end_s for event in marked)
        return Window(marked[0].begin_s, end_s, marked[0].thread, tuple(marked), seconds, "ProfilerStep")
    return _between_optimizer_steps(timeline) or _whole(timeline)


def is_step(event: Event) -> bool:
    """Return whether an event is the mark of a whole step."""
    return bool(_STEP.fullmatch(event.name))


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals; an interval that ends before it begins is ignored."""
    total = 0.0
    reached = float("-inf")
    for begin, end in sorted(intervals):
        if end > max(begin, reached):
            total += end - max(begin, reached)
            reached = end
    return total


def _between_optimizer_steps(timeline: Timeline) -> Window | None:
    ends = [
        event
        for found in timeline.events.values()
        for event in found
        if event.name.startswith(OPTIMIZER_STEP)
    ]
    ends.sort(key=lambda event: event.end_s)
    if len(ends) < 2:  # noqa: PLR2004 (a step lies between two)
        return None
    seconds = tuple(after.end_s - before.end_s for before, after in itertools.pairwise(ends))
    return Window(ends[0].end_s, ends[-1].end_s, ends[0].thread, tuple(ends[1:]), seconds, "optimizer.step")


def _whole(timeline: Timeline) -> Window:
    everything = [event for found in timeline.events.values() for event in found] or timeline.device
    busiest = max(timeline.events, key=lambda thread: _busy_s(timeline.events[thread]), default="")
    begin_s = min(event.begin_s for event in everything)
    return Window(begin_s, max(event.end_s for event in everything), busiest, (), (), "")


def _busy_s(events: Sequence[Event]) -> float:
    return covered_s((event.begin_s, event.end_s) for event in events)


def _closed(stack: list[_Open]) -> Nested:
    innermost = stack.pop()
    return Nested(innermost.event, len(stack), innermost.own)


_OF_NAMES = (
    (DATA, re.compile(r"enumerate\(DataLoader\)|DataLoader.*__next__|dataloader", re.IGNORECASE)),
    (OPTIMIZER, re.compile(rf"{OPTIMIZER_STEP}|Optimizer\.zero_grad#")),
    (RANKS, re.compile(r"nccl:|gloo:|mpi:|c10d::|record_param_comms|DistributedDataParallel\.sync")),
    (BACKWARD, re.compile(r"autograd::engine::|backward\b", re.IGNORECASE)),
    (TO_DEVICE, re.compile(r"aten::to$|aten::_to_copy$|aten::copy_$|aten::pin_memory|cudaMemcpy")),
)
# The autograd engine marks each node of the graph with this prefix.
_NODE = "autograd::engine::evaluate_function: "
_STANDING_STILL = re.compile(r"(cuda|hip)(Stream|Device|Event)Synchronize|(cuda|hip)Memcpy(Async)?$")
_COPIES = frozenset({"Memcpy", "gpu_memcpy", "Memset", "gpu_memset"})
_COLLECTIVES = re.compile(r"nccl|rccl|oneccl", re.IGNORECASE)
_SYNCHRONISES = re.compile(r"(cuda|hip|xpu|cu)\w*Synchronize|(cuda|hip)Memcpy$")
_LAUNCHES = re.compile(r"Launch\w*Kernel|\wLaunchKernel|GraphLaunch|hipModuleLaunch")
SHORT_KERNEL_S = 5e-6
_MICROSECOND = 1e-6
# Kineto writes such numbers, which JSON does not allow.
_NO_NUMBER = re.compile(rb"([:,\[]\s*)-?(?:nan|inf|NaN|Infinity)\b")
# A number of microseconds beyond the year 3000 is no time stamp.
_LARGEST_TIME = 1e17
_NOTHING = msgspec.Raw(b"")
# What is launched, and what launches it.
_CORRELATED = DEVICE | RUNTIME


def phases_of(timeline: Timeline, window: Window) -> tuple[PhaseTime, ...]:
    """Return the time of each phase over all steps, the residual last; they add up to the window.

    The thread of the steps is divided by its outermost events. A backward pass on threads of its own counts
    where they are busy and that thread is not. The residual is what no event covers.
    """
    if not window.steps:
        return ()
    covered: dict[str, list[tuple[float, float]]] = defaultdict(list)
    calls: Counter[str] = Counter()
    named = _Named.of(timeline, window)
    for phase, begin_s, end_s, inside in _phase_by_phase(timeline, window, named):
        covered[phase].append((begin_s, end_s))
        calls[phase] += inside
    own = [interval for found in covered.values() for interval in found]
    seconds = {name: covered_s(found) for name, found in covered.items()}
    for name, uncovered_s in named.beside(own).items():
        seconds[name] = seconds.get(name, 0.0) + uncovered_s
    own += [(begin_s, end_s) for begin_s, end_s, _ in named.parts]
    elsewhere_s, elsewhere_calls = _backward_elsewhere(timeline, window, own)
    seconds[BACKWARD] = seconds.get(BACKWARD, 0.0) + elsewhere_s
    calls[BACKWARD] += elsewhere_calls
    whole_s = window.end_s - window.begin_s
    # Rounding can make the sum of the phases a little larger than the whole.
    found = [PhaseTime(name=name, seconds=seconds[name], calls=calls[name]) for name in _in_order(seconds)]
    return (*found, PhaseTime(name=RESIDUAL, seconds=max(whole_s - sum(one.seconds for one in found), 0.0)))


def _phase_by_phase(
    timeline: Timeline, window: Window, named: _Named
) -> Iterator[tuple[str, float, float, int]]:
    for event, begin_s, end_s, inside in _outermost(timeline, window):
        phase = _known_phase(event) or named.at(event.begin_s) or FORWARD_AND_LOSS
        yield phase, begin_s, end_s, inside


@dataclass(frozen=True)
class _Named:
    """From when to when which of the user's phases was the innermost, in order of time."""

    parts: Sequence[tuple[float, float, str]]

    @classmethod
    def of(cls, timeline: Timeline, window: Window) -> _Named:
        parts: list[tuple[float, float, str]] = []
        around: list[Event] = []
        reached = window.begin_s

        def go_on(until_s: float) -> None:
            nonlocal reached
            if around and min(until_s, window.end_s) > reached:
                parts.append((reached, min(until_s, window.end_s), around[-1].name.removeprefix(MARK)))
            reached = max(reached, until_s)

        marks = [event for event in timeline.events.get(window.thread, []) if event.name.startswith(MARK)]
        for mark in marks:
            while around and around[-1].end_s <= mark.begin_s:
                go_on(around[-1].end_s)
                around.pop()
            go_on(mark.begin_s)
            around.append(mark)
        while around:
            go_on(around[-1].end_s)
            around.pop()
        return cls(parts)

    def at(self, moment_s: float) -> str | None:
        place = bisect.bisect_right(self.parts, moment_s, key=lambda part: part[0])
        if not place or moment_s >= self.parts[place - 1][1]:
            return None
        return self.parts[place - 1][2]

    def beside(self, covered: Sequence[tuple[float, float]]) -> dict[str, float]:
        intervals = sorted(covered)
        begins = [begin_s for begin_s, _ in intervals]
        seconds: dict[str, float] = defaultdict(float)
        for begin_s, end_s, name in self.parts:
            first = max(bisect.bisect_right(begins, begin_s) - 1, 0)
            last = bisect.bisect_left(begins, end_s)
            inside = ((max(one, begin_s), min(other, end_s)) for one, other in intervals[first:last])
            seconds[name] += end_s - begin_s - covered_s(inside)
        return dict(seconds)


def backward_nodes(trace: Reading) -> tuple[OperatorTime, ...]:
    """Return the nodes of the backward pass by what they differentiate, costliest first by all they call."""
    nodes = [
        replace(one, name=one.name.removeprefix(_NODE).strip())
        for one in trace.operators
        if one.name.startswith(_NODE)
    ]
    return tuple(sorted(nodes, key=lambda one: -one.cumulative_s))


def waits_of(timeline: Timeline, window: Window) -> tuple[WaitTime, ...]:
    """Return how long the thread of the steps stood still for the device."""
    found = [
        one.event
        for one in timeline.nested(window.thread, window.begin_s, window.end_s)
        if one.event.category in RUNTIME and _STANDING_STILL.match(one.event.name)
    ]
    if not found:
        return ()
    names = sorted({event.name for event in found})
    seconds = covered_s((event.begin_s, min(event.end_s, window.end_s)) for event in found)
    return (WaitTime(whom=WAIT_FOR_DEVICE, seconds=seconds, calls=len(found), through=tuple(names)),)


def _in_order(seconds: dict[str, float]) -> list[str]:
    known = [name for name in TRACED_PHASES if seconds.get(name, 0.0) > 0]
    return known + sorted(name for name in seconds if name not in TRACED_PHASES)


def _outermost(timeline: Timeline, window: Window) -> Iterator[tuple[Event, float, float, int]]:
    """Yield the thread's events that lie in no other event, each from the end of the one before to its own.

    With each comes how many operators it holds, itself included. Marks of unknown meaning are looked through.
    Rounded times let neighbours overlap by a hair.
    """
    reached = window.begin_s
    outermost: tuple[Event, float, float] | None = None
    inside = 0
    for event in timeline.events.get(window.thread, []):
        begin_s, end_s = max(event.begin_s, reached), min(event.end_s, window.end_s)
        if not is_step(event) and end_s > begin_s and _is_phase(event):
            if outermost is not None:
                yield (*outermost, inside)
            outermost, inside, reached = (event, begin_s, end_s), 0, end_s
        inside += event.category in OPERATORS and event.begin_s < reached
    if outermost is not None:
        yield (*outermost, inside)


def _is_phase(event: Event) -> bool:
    marked = event.category in MARKS or event.name.startswith(MARK)
    return not marked or _known_phase(event) is not None


def _known_phase(event: Event) -> str | None:
    if event.name.startswith(MARK):
        return None
    return next((phase for phase, pattern in _OF_NAMES if pattern.search(event.name)), None)


def _backward_elsewhere(
    timeline: Timeline, window: Window, own: list[tuple[float, float]]
) -> tuple[float, int]:
    elsewhere = [
        (max(event.begin_s, window.begin_s), min(event.end_s, window.end_s))
        for thread, events in timeline.events.items()
        if thread != window.thread
        for event in events
        if event.category in OPERATORS and event.begin_s < window.end_s and event.end_s > window.begin_s
    ]
    return covered_s([*own, *elsewhere]) - covered_s(own), len(elsewhere)


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
        cause: IdleCause = "queue"
        if gap.launched_late:
            cause = "sync" if calls.synchronises_at(gap.begin_s) else "host"
            waited.append((gap.begin_s, gap.end_s))
        idle[cause] += gap.end_s - gap.begin_s
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

    As HolisticTraceAnalysis has it, a gap is the host's doing if the work that ends it was launched after it
    had begun, or if nothing ends it; work without a known launch counts as launched in time.
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
    """The runtime's calls of a trace: when each correlation was launched, and when hosts synchronised."""

    begins: Mapping[int, float]
    done: frozenset[int]
    kernel_launches: Sequence[Event]
    synchronisations: Sequence[tuple[float, float]]

    @classmethod
    def of(cls, timeline: Timeline) -> _Calls:
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
    seconds: dict[str, float] = defaultdict(float)
    first = 0
    for phase, begin_s, end_s, _ in _phase_by_phase(timeline, window, _Named.of(timeline, window)):
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


class _Event(msgspec.Struct, gc=False):
    """An event as it stands in the file; times in microseconds, ids as numbers or words."""

    ph: str = ""
    name: str | None = ""
    cat: str | None = None
    ts: float | None = 0.0
    dur: float | None = 0.0
    pid: int | str | None = None
    tid: int | str | None = None
    args: msgspec.Raw = _NOTHING


class _Arguments(msgspec.Struct, gc=False):
    """The arguments of an event that are read; others may be anything."""

    correlation: int | None = None


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 (the format's own word)
    distributedInfo: _Distributed | None = None  # noqa: N815 (likewise)


def read_trace(data: bytes, name: str) -> Reading:
    """Return the reading of a trace's steps, or of its whole length where it has no steps."""
    trace = _decoded(data, name)
    timed = [
        (one, one.ts or 0.0, max(one.dur or 0.0, 0.0))
        for one in trace.traceEvents
        if one.ph == "X" and _is_time(one.ts) and _is_time(one.dur)
    ]
    # A float that counts from 1970 has no digits left for parts of a microsecond.
    origin = min((begin for _, begin, _ in timed), default=0.0)
    timeline = Timeline.of(
        Event(
            name=printable(one.name or ""),
            category=one.cat or "",
            thread=f"{one.pid}/{one.tid}",
            begin_s=(begin - origin) * _MICROSECOND,
            end_s=(begin - origin + lasting) * _MICROSECOND,
            correlation=_correlation(one) if one.cat in _CORRELATED else None,
        )
        for one, begin, lasting in timed
    )
    if not timeline.events and not timeline.device:
        raise UsageError(f"{name} is a trace without a single timed event; profile again, with active steps")
    return _reading(timeline, trace, name)


def _correlation(one: _Event) -> int | None:
    try:
        return msgspec.json.decode(one.args, type=_Arguments, strict=False).correlation
    except msgspec.DecodeError:
        return None


def _is_time(microseconds: float | None) -> bool:
    return microseconds is None or abs(microseconds) <= _LARGEST_TIME


def _reading(timeline: Timeline, trace: _Trace, name: str) -> Reading:
    window = window_of(timeline)
    begin_s, end_s = window.begin_s, window.end_s
    operators = timeline.operators(begin_s, end_s)
    device_s = timeline.device_busy_s(begin_s, end_s)
    devices = devices_of(timeline, window)
    return Reading(
        name=name,
        origin="torch trace",
        total_s=end_s - begin_s,
        calls=sum(one.calls for one in operators if one.place == "cpu"),
        steps=StepTimes(count=len(window.steps), sign=window.sign, seconds=window.seconds)
        if window.steps
        else None,
        operators=operators,
        phases=phases_of(timeline, window),
        waits=waits_of(timeline, window),
        device_busy_s=device_s if timeline.has_device else None,
        devices=devices,
        rank=trace.distributedInfo.rank if trace.distributedInfo else None,
        world_size=trace.distributedInfo.world_size if trace.distributedInfo else None,
        warnings=tuple(_warnings(window.steps, devices)),
    )


def _warnings(steps: Sequence[Event], devices: Sequence[DeviceTime]) -> Iterator[str]:
    if not steps:
        yield (
            "the trace has no steps: call profiler.step() after each, or step an optimizer; times are totals"
        )
    for one in devices:
        if one.launches_without_kernel or one.kernels_without_launch:
            yield (
                f"INCOMPLETE: {one.launches_without_kernel} of {one.launches} launches have no kernel in the"
                f" trace, {one.kernels_without_launch} of {one.kernels} kernels no launch: the profiler lost"
                " events, and times on the device are wrong; profile fewer steps at once"
            )


def _decoded(data: bytes, name: str) -> _Trace:
    try:
        try:
            return msgspec.json.decode(data, type=_Trace, strict=False)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            # A name that was cut at a number of bytes may end in a part of a letter.
            readable = data.decode(errors="replace").encode()
            return msgspec.json.decode(_NO_NUMBER.sub(rb"\1null", readable), type=_Trace, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} is JSON, but no trace of torch.profiler ({error})") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{name} is damaged or cut short ({error}); export the trace again") from None
