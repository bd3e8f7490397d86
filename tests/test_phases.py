"""``perfkit.phase`` marks phases where a pass listens, and does nothing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import perfkit
from perfkit.phases import listen_to_phases


class Ear:
    """Records what it is given."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def enter(self, name: str) -> None:
        """Hear a beginning."""
        self.heard.append(f"enter {name}")

    def leave(self, name: str) -> None:
        """Hear an end."""
        self.heard.append(f"leave {name}")


@pytest.fixture
def ear() -> Iterator[Ear]:
    listener = Ear()
    end = listen_to_phases(listener)
    yield listener
    end()


def test_a_phase_is_reported(ear: Ear) -> None:
    @perfkit.phase("decorated")
    def fail() -> None:
        raise RuntimeError

    with perfkit.phase("block"), pytest.raises(RuntimeError):
        fail()

    assert ["enter block", "enter decorated", "leave decorated", "leave block"] == ear.heard


def test_nobody_need_listen() -> None:
    with perfkit.phase("unheard"):
        result = 1

    assert 1 == result
