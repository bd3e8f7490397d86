"""The clock of the balance pass gives each moment to one phase, also where phases are nested."""

from __future__ import annotations

import threading
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
    with clock.aside():
        assert clock.begin("forward")
        assert not clock.begin("host to device")
        clock.end()
    assert not clock.begin("device to host")
    clock.end()
    clock.end_step()

    assert {"optimizer": (2.0,), "forward": (1.0,)} == _phases(clock.balance())
    assert (3.0 + 1.0,) == clock.balance().residual_s


def test_a_hook_comes_back_after_an_error(clock: PhaseClock) -> None:
    def closure() -> None:
        clock.enter("my part")
        clock.leave("my part")
        raise ValueError("nan")

    clock.begin("optimizer")
    with pytest.raises(ValueError, match="nan"), clock.aside():
        closure()

    assert "optimizer" == clock.hook
    clock.end()
    clock.end_step()
    assert {"optimizer": (2.0,), "my part": (1.0,)} == _phases(clock.balance())


def test_a_pause_belongs_to_no_step(clock: PhaseClock) -> None:
    clock.begin("evaluation")
    clock.pause()
    assert not clock.begin("forward")
    clock.resume()
    clock.end()
    clock.begin("evaluation")
    clock.pause()
    clock.end()
    clock.resume()
    clock.end_step()

    assert {"evaluation": (3.0,)} == _phases(clock.balance())
    assert (6.0,) == clock.balance().step_s


def test_a_clock_that_is_closed_logs_nothing(clock: PhaseClock) -> None:
    clock.close()

    assert not clock.begin("forward")
    clock.enter("named")
    clock.pause()
    clock.resume()
    clock.end_step()
    assert (1.0,) == clock.balance().step_s


def test_a_named_phase_gives_way_to_what_hooks_see(clock: PhaseClock) -> None:
    clock.enter("my part")
    clock.begin("forward")
    clock.end()
    clock.leave("my part")
    clock.end_step()

    assert {"my part": (2.0,), "forward": (1.0,)} == _phases(clock.balance())


def test_named_phases_lie_in_one_another(clock: PhaseClock) -> None:
    clock.enter("outer")
    clock.enter("inner")
    clock.leave("inner")
    clock.leave("outer")
    clock.end_step()

    assert {"outer": (2.0,), "inner": (1.0,)} == _phases(clock.balance())


def test_a_phase_may_last_into_the_next_step(clock: PhaseClock) -> None:
    clock.enter("epoch")
    clock.end_step()
    clock.start_step()
    clock.leave("epoch")
    clock.end_step()

    assert {"epoch": (1.0, 1.0)} == _phases(clock.balance())
    assert (2.0, 2.0) == clock.balance().step_s


def test_an_unfinished_step_is_none(clock: PhaseClock) -> None:
    clock.end_step()
    clock.start_step()
    clock.begin("evaluation")
    clock.end()

    assert (1.0,) == clock.balance().step_s
    assert () == clock.balance().phases


def test_other_threads_are_not_listened_to(clock: PhaseClock) -> None:
    def elsewhere() -> None:
        assert not clock.begin("forward")
        clock.enter("mine")
        clock.leave("mine")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    clock.end_step()

    assert () == clock.balance().phases


def test_leaving_what_was_not_entered_changes_nothing(clock: PhaseClock) -> None:
    clock.leave("before")
    clock.end_step()

    assert (1.0,) == clock.balance().residual_s
