"""Sorts the events of a trace into threads, on which they lie within one another."""

from __future__ import annotations

import itertools
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from perfkit.model.readings import OperatorTime, Place

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
