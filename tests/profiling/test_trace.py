"""The window of steps that torch.profiler watches."""

from __future__ import annotations

import pytest

from perfkit.profiling.trace import Window, choose_window


@pytest.mark.parametrize("steps", [None, 5, 1000])
def test_a_long_loop_has_a_full_window(steps: int | None) -> None:
    """The set-up passes by, one step warms up, three are kept."""
    assert Window(wait=1, warmup=1, active=3) == choose_window(steps)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_short_loop_still_gives_a_trace(steps: int) -> None:
    """With few steps the window ends at the last one, and keeps at least one."""
    window = choose_window(steps)
    assert steps == window.end
    assert window.active >= 1


def test_begin_counts_the_steps_not_kept() -> None:
    """The first step kept comes after waiting and warm-up."""
    assert 2 == choose_window(100).begin
