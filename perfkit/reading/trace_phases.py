"""Divides the steps of a trace into phases, and finds what the profiled thread waited for."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from perfkit.explain.waits import DEVICE
from perfkit.reading.timeline import (
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
from perfkit.records.phases import (
    BACKWARD,
    DATA,
    FORWARD_AND_LOSS,
    OPTIMIZER,
    RANKS,
    RESIDUAL,
    TO_DEVICE,
    TRACED_PHASES,
)
from perfkit.records.readings import OperatorTime, PhaseTime, Reading, WaitTime

# A phase that the user names is marked in a trace by its name behind this word.
_OWN_PHASE = "phase: "
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
    where they are busy and the thread of the steps is not. The residual is what no event covers: Python
    between operators, and waits that leave no event.
    """
    if not window.steps:
        return ()
    covered: dict[str, list[tuple[float, float]]] = defaultdict(list)
    calls: Counter[str] = Counter()
    for event, begin_s, end_s, inside in _outermost(timeline, window):
        covered[_phase(event)].append((begin_s, end_s))
        calls[_phase(event)] += inside
    own = [interval for found in covered.values() for interval in found]
    seconds = {name: covered_s(found) for name, found in covered.items()}
    elsewhere_s, elsewhere_calls = _backward_elsewhere(timeline, window, own)
    seconds[BACKWARD] = seconds.get(BACKWARD, 0.0) + elsewhere_s
    calls[BACKWARD] += elsewhere_calls
    whole_s = window.end_s - window.begin_s
    # Rounding can make the sum of the phases a little larger than the whole.
    named = [PhaseTime(name=name, seconds=seconds[name], calls=calls[name]) for name in _in_order(seconds)]
    return (*named, PhaseTime(name=RESIDUAL, seconds=max(whole_s - sum(one.seconds for one in named), 0.0)))


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
    return event.category not in MARKS or _known_phase(event) is not None


def _phase(event: Event) -> str:
    return _known_phase(event) or FORWARD_AND_LOSS


def _known_phase(event: Event) -> str | None:
    if event.name.startswith(_OWN_PHASE):
        return event.name.removeprefix(_OWN_PHASE)
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
