"""Divides the steps of a trace into phases, and finds what the profiled thread waited for."""

from __future__ import annotations

import bisect
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from perfkit.model.phases import (
    BACKWARD,
    DATA,
    FORWARD_AND_LOSS,
    MARK,
    OPTIMIZER,
    RANKS,
    RESIDUAL,
    TO_DEVICE,
    TRACED_PHASES,
)
from perfkit.model.readings import OperatorTime, PhaseTime, Reading, WaitTime
from perfkit.profiling.diff.waits import DEVICE
from perfkit.profiling.read.timeline import (
    MARKS,
    OPERATORS,
    OPTIMIZER_STEP,
    RUNTIME,
    Event,
    Timeline,
    Window,
    covered_s,
    is_step,
)

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


def phases_of(timeline: Timeline, window: Window) -> tuple[PhaseTime, ...]:
    """Return the time of each phase over all steps, the residual last; they add up to the window.

    The thread of the steps is told by its outermost events. A backward pass on threads of its own counts
    where they are busy and the thread of the steps is not. A phase that the user names has what lies in it
    and is of no other known one. The residual is what no event covers: Python between operators, and waits
    that leave no event.
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


def outermost_phases(timeline: Timeline, window: Window) -> Iterator[tuple[str, float, float]]:
    """Yield when the thread of the steps was in which phase, in order of time; gaps are of no phase."""
    for phase, begin_s, end_s, _ in _phase_by_phase(timeline, window, _Named.of(timeline, window)):
        yield phase, begin_s, end_s


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
        """Return the user's phases in a trace's window, which lie within one another."""
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
        """Return the innermost of the user's phases at a moment, None where there is none."""
        place = bisect.bisect_right(self.parts, moment_s, key=lambda part: part[0])
        if not place or moment_s >= self.parts[place - 1][1]:
            return None
        return self.parts[place - 1][2]

    def beside(self, covered: Sequence[tuple[float, float]]) -> dict[str, float]:
        """Return the seconds of each of the user's phases in which none of the intervals lies."""
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
    return (WaitTime(whom=DEVICE, seconds=seconds, calls=len(found), through=tuple(names)),)


def _in_order(seconds: dict[str, float]) -> list[str]:
    """Return the phases that took time: the known ones in a step's order, then those that the user named."""
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
    """Return the seconds in which only other threads had operators, and the number of these operators."""
    elsewhere = [
        (max(event.begin_s, window.begin_s), min(event.end_s, window.end_s))
        for thread, events in timeline.events.items()
        if thread != window.thread
        for event in events
        if event.category in OPERATORS and event.begin_s < window.end_s and event.end_s > window.begin_s
    ]
    return covered_s([*own, *elsewhere]) - covered_s(own), len(elsewhere)
