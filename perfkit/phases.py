"""``perfkit.phase``: names a part of a training step that no hook can see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Protocol


class PhaseListener(Protocol):
    """Hears where phases begin and end, in the thread that they are in."""

    def enter(self, name: str) -> None:
        """Hear that a phase begins."""

    def leave(self, name: str) -> None:
        """Hear that it ends."""


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
    """Have a listener hear of every phase from now on; return what ends that."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)
