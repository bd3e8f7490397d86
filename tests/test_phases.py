"""``perfkit.phase`` marks phases where a pass listens, and does nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perfkit
from perfkit.phases import listen_to_phases


class Listener:
    """Records what it is given."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def enter(self, name: str) -> None:
        """Record a beginning."""
        self.events.append(f"enter {name}")

    def leave(self, name: str) -> None:
        """Record an end."""
        self.events.append(f"leave {name}")


@pytest.fixture
def listener_() -> Iterator[Listener]:
    listener = Listener()
    end = listen_to_phases(listener)
    yield listener
    end()


def test_a_phase_is_reported(listener_: Listener) -> None:
    @perfkit.phase("decorated")
    def fail() -> None:
        raise RuntimeError

    with perfkit.phase("block"), pytest.raises(RuntimeError):
        fail()

    assert ["enter block", "enter decorated", "leave decorated", "leave block"] == listener_.events


def test_nobody_need_listen() -> None:
    with perfkit.phase("unused"):
        result = 1

    assert 1 == result
