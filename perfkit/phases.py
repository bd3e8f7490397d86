"""``perfkit.phase`` names a part of a training step that no hook can see; ``step`` ends a step."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Protocol


class PhaseListener(Protocol):
    """Is called where phases begin and end, in the thread that they are in."""

    def enter(self, name: str) -> None:
        """Begin a phase."""

    def leave(self, name: str) -> None:
        """End a phase."""


_listeners: list[PhaseListener] = []


class phase(ContextDecorator):  # noqa: N801 (used like a keyword: ``with perfkit.phase("loss"):``)
    """Marks what runs inside as a phase of the training step; costs next to nothing where nobody profiles.

    For ``with perfkit.phase("loss"):`` and as a decorator, ``@perfkit.phase("loss")``. What the hooks see
    inside, such as a forward pass, still counts as what it is.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        for listener in _listeners:
            listener.enter(self._name)

    def __exit__(self, *_: object) -> None:
        for listener in reversed(_listeners):
            listener.leave(self._name)


def listen_to_phases(listener: PhaseListener) -> Callable[[], None]:
    """Call a listener for every phase from now on; return what ends that."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


class _MarkedSteps:
    """Who counts the steps that a program marks, and whether it marks any."""

    count: Callable[[], None] | None = None
    announced = False


def announce_steps() -> None:
    """Note that the program marks where its steps end: then nothing else ends one."""
    _MarkedSteps.announced = True


def step() -> None:
    """End a step of a training that is being profiled; elsewhere it does nothing."""
    announce_steps()
    if _MarkedSteps.count is not None:
        _MarkedSteps.count()


def count_marked_steps(count: Callable[[], None]) -> None:
    """Have ``count`` called at the end of each marked step in this process, and not in its forks."""
    _MarkedSteps.count = count
    os.register_at_fork(after_in_child=_stop_counting)


def steps_are_announced() -> bool:
    """Return whether the program marks where its steps end."""
    return _MarkedSteps.announced


def steps_are_counted() -> bool:
    """Return whether somebody counts marked steps, as ``perfkit profile`` does."""
    return _MarkedSteps.count is not None


def _stop_counting() -> None:
    _MarkedSteps.count = None
