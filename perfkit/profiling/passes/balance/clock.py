"""A clock that is always in one phase, or in none while no hook is active."""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from perfkit.model import Balance, PhaseSeconds
from perfkit.runner.agent.clock import Accelerator, accelerator_in_use

_Label = str | None
# The label of what belongs to no step; no phase has it.
_PAUSE = "(pause)"
# No thread has this for its identity.
_NO_THREAD = -1


class Moment(Protocol):
    """A point in time on the host's clock, or in a device's queue."""

    def seconds_until(self, later: Any) -> float:  # noqa: ANN401 (another moment of the same kind)
        """Return how much later another moment of the same clock is."""

    def wait(self) -> None:
        """Wait until it is reached."""


@dataclass(frozen=True, slots=True)
class HostMoment:
    """A point in time on the host's clock."""

    at_s: float

    def seconds_until(self, later: HostMoment) -> float:
        """Return how much later another moment is."""
        return later.at_s - self.at_s

    def wait(self) -> None:
        """Return at once, since it was reached when it was taken."""


@dataclass(frozen=True, slots=True)
class DeviceMoment:
    """A point in a device's queue: it is reached when the work before it is done."""

    event: Any

    def seconds_until(self, later: DeviceMoment) -> float:
        """Return how much later another moment is; the device must have reached both."""
        return float(self.event.elapsed_time(later.event)) / 1e3

    def wait(self) -> None:
        """Wait until the device has done the work before it."""
        self.event.synchronize()


class PhaseClock:
    """Sums up the time of each phase, step by step; every phase is measured, none is what others leave over.

    The outermost hook decides: a ``.to`` inside a forward pass is part of it, unless that steps ``aside``.
    Inside a phase that the user names, phases of hooks count as their own. Other threads than the one that
    began the clock are ignored. ``clock_of`` chooses, step by step, how moments are taken: on a device by
    events queued behind the work so far, so that no step waits for it. ``hook`` is the phase of the present
    hook, None outside of all. ``watch`` is called with the label of each phase that begins.
    """

    def __init__(
        self,
        clock_of: Callable[[], Callable[[], Moment]] = lambda: host_now,
        watch: Callable[[_Label], None] = lambda _: None,
    ) -> None:
        self._clock_of, self._watch = clock_of, watch
        self._now: Callable[[], Moment] = host_now
        self._thread = threading.get_ident()
        self.hook: _Label = None
        self._named: list[str] = []
        self._before_pause: _Label = None
        self._changes: list[tuple[Moment, _Label]] = []
        self._steps: list[list[tuple[Moment, _Label]]] = []

    def begin(self, phase: str) -> bool:
        """Enter a hook's phase; tell whether it is the outermost one, since only that must be ended."""
        if self.hook is not None or threading.get_ident() != self._thread:
            return False
        self.hook = phase
        self._change(phase)
        return True

    def end(self) -> None:
        """Leave the phase of the outermost hook; in a pause, for the time after it."""
        if self.hook == _PAUSE:
            self._before_pause = None
            return
        self.hook = None
        self._change(self._label)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Leave the present hook's phase for a while: what runs inside is of whatever phase it is itself."""
        hook = self.turn(None)
        try:
            yield
        finally:
            self.turn(hook)

    @contextmanager
    def instead(self, phase: str) -> Iterator[None]:
        """Be in a phase for a while, whatever the present hook's is; other threads change nothing."""
        if threading.get_ident() != self._thread:
            yield
            return
        hook = self.turn(phase)
        try:
            yield
        finally:
            self.turn(hook)

    def turn(self, phase: _Label) -> _Label:
        """Change the present hook's phase, and return what it was.

        Whoever calls this in another thread knows that the clock's own thread waits for that.
        """
        hook, self.hook = self.hook, phase
        self._change(self._label)
        return hook

    def pause(self) -> None:
        """Begin what belongs to no step and no phase, in whatever hook's phase it lies."""
        if threading.get_ident() == self._thread:
            self._before_pause, self.hook = self.hook, _PAUSE
            self._changes.append((self._now(), _PAUSE))

    def resume(self) -> None:
        """End a pause, and go on with the phase before it."""
        if self.hook == _PAUSE:
            self.hook = self._before_pause
            self._changes.append((self._now(), self._label))

    def enter(self, name: str) -> None:
        """Enter a phase that the user names."""
        if threading.get_ident() == self._thread:
            self._named.append(name)
            self._change_named()

    def leave(self, name: str) -> None:
        """Leave a phase that the user named."""
        if threading.get_ident() == self._thread and name in self._named:
            self._named.remove(name)
            self._change_named()

    def end_step(self) -> None:
        """Close the step; time until ``start_step`` belongs to no step."""
        self._change(None)
        self._steps.append(self._changes)
        self._changes = []

    def start_step(self) -> None:
        """Begin the first step, or the next one."""
        self._now = self._clock_of()
        self._changes = []
        self._change(self._label)

    def close(self) -> None:
        """Hear nothing more, so that a hook that is still set, as in a forked process, costs little."""
        self._thread = _NO_THREAD

    def wait(self) -> None:
        """Wait until a device has reached the last moment of the whole steps."""
        if self._steps:
            self._steps[-1][-1][0].wait()

    def balance(self) -> Balance:
        """Return the phases of all whole steps; a device must have reached its last moment."""
        steps = [_seconds(changes) for changes in self._steps]
        for step in steps:
            step.pop(_PAUSE, None)
        names = dict.fromkeys(name for step in steps for name in step if name is not None)
        return Balance(
            step_s=tuple(sum(step.values()) for step in steps),
            phases=tuple(
                PhaseSeconds(name=name, seconds=tuple(step.get(name, 0.0) for step in steps))
                for name in names
            ),
        )

    @property
    def _label(self) -> _Label:
        return self.hook or (self._named[-1] if self._named else None)

    def _change(self, label: _Label) -> None:
        self._changes.append((self._now(), label))
        self._watch(label)

    def _change_named(self) -> None:
        if self.hook is None:
            self._change(self._label)


def _seconds(changes: list[tuple[Moment, _Label]]) -> dict[_Label, float]:
    """Return the time of each phase in a step; None stands for no phase."""
    seconds: dict[_Label, float] = defaultdict(float)
    for (begin, label), (end, _) in itertools.pairwise(changes):
        seconds[label] += begin.seconds_until(end)
    return seconds


def host_now() -> HostMoment:
    """Read the host's clock."""
    return HostMoment(time.perf_counter())


def choose_clock(in_use: Callable[[], Accelerator | None] = accelerator_in_use) -> Callable[[], Moment]:
    """Return the device's clock where an accelerator with events is in use, else the host's."""
    device = in_use()
    if device is None or device.event() is None:
        return host_now
    return functools.partial(_device_now, device)


def _device_now(device: Accelerator) -> DeviceMoment:
    event = device.event()
    assert event is not None  # noqa: S101 (a device that had events has them)
    event.record()
    return DeviceMoment(event)
