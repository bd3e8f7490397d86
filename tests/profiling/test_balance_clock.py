"""The clock of the balance pass gives each moment to one phase, also where phases are nested."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perfkit.model import Balance
from perfkit.profiling.passes.balance import Moment, PhaseClock


class HandClock:
    """A clock that goes on by a second each time it is read."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def choose(self) -> Callable[[], Moment]:
        """Return how it is read."""
        return self.read

    def read(self) -> Moment:
        """Return the present second."""
        self._now_s += 1.0
        return Moment(self._now_s)


@pytest.fixture
def clock() -> PhaseClock:
    """Return a clock in its first step, on which each change takes a second."""
    started = PhaseClock(HandClock().choose)
    started.start_step()
    return started


def _phases(balance: Balance) -> dict[str, tuple[float, ...]]:
    return {phase.name: phase.seconds for phase in balance.phases}


def test_the_outermost_hook_counts(clock: PhaseClock) -> None:
    assert clock.begin("forward")
    assert not clock.begin("host to device")
    clock.end()
    clock.end_step()

    assert {"forward": (1.0,)} == _phases(clock.balance())
    assert (3.0,) == clock.balance().step_s
    assert (2.0,) == clock.balance().residual_s


def test_what_a_hook_steps_aside_for_has_its_own_phase(clock: PhaseClock) -> None:
    clock.begin("optimizer")
    with clock.instead(None):
        assert clock.begin("forward")
        assert not clock.begin("host to device")
        clock.end()
    assert not clock.begin("device to host")
    clock.end()
    clock.end_step()

    assert {"optimizer": (2.0,), "forward": (1.0,)} == _phases(clock.balance())
    assert (3.0 + 1.0,) == clock.balance().residual_s


def test_what_watches_takes_time_from_no_step() -> None:
    by_hand = HandClock()

    def watch(_: object) -> None:
        for _ in range(100):
            by_hand.read()

    clock = PhaseClock(by_hand.choose, watch=watch)
    clock.start_step()
    clock.begin("forward")
    clock.end("loss")
    clock.end_step()

    assert {"loss": (1.0,)} == _phases(clock.balance())
    assert (3.0,) == clock.balance().step_s


def test_what_is_cut_out_belongs_to_no_step(clock: PhaseClock) -> None:
    clock.begin("forward")
    begin = clock.bookmark()
    clock.end()
    end = clock.bookmark()
    clock.begin("forward")
    clock.end()
    clock.end_step()

    assert {"forward": (2.0,)} == _phases(clock.balance([(begin, end)]))
    assert (5.0,) == clock.balance([(begin, end)]).step_s


def test_a_named_phase_gives_way_to_what_hooks_see(clock: PhaseClock) -> None:
    clock.enter("my part")
    clock.begin("forward")
    clock.end()
    clock.leave("my part")
    clock.end_step()

    assert {"my part": (2.0,), "forward": (1.0,)} == _phases(clock.balance())


def test_what_no_hook_saw_before_a_backward_pass_is_forward_or_loss(clock: PhaseClock) -> None:
    for phase in ("forward", "forward", "optimizer", "backward"):
        clock.begin(phase)
        clock.end()
    clock.end_step()

    # Gradients are set to zero between two parts of a loss in the user's own words.
    assert {"forward": (3.0,), "loss": (2.0,), "optimizer": (1.0,), "backward": (1.0,)} == _phases(
        clock.balance()
    )
    assert (2.0,) == clock.balance().residual_s
