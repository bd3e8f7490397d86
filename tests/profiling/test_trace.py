"""torch.profiler watches a window of steps, and in it the phases that the user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.profiling.exchange import PassSpec
from perfkit.profiling.launch import PassLauncher, run_pass
from perfkit.profiling.targets import Target
from perfkit.profiling.trace import Window, choose_window
from perfkit.reading.files import read_profile
from perfkit.reading.names import CodeNames

NAMED = """
import time

import perfkit
import torch


def spend(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


@perfkit.phase("mining")
def mine(values):
    spend(0.004)
    with perfkit.phase("sampling"):
        spend(0.002)
    return values.square().mean()


def main():
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epoch = perfkit.phase("epoch")
    epoch.__enter__()
    for _ in range(8):
        mine(model(torch.ones(2, 4))).backward()
        optimizer.step()
    epoch.__exit__()
"""


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


def test_phases_that_the_user_names_are_ranges_of_the_trace(tmp_path: Path, launcher: PassLauncher) -> None:
    """Each has the time that no other known phase has, the inner one its own, as in a balance pass."""
    (tmp_path / "pass").mkdir()
    (tmp_path / "loop.py").write_text(NAMED)
    spec = PassSpec(
        name="torch",
        target=Target(name="train", place="loop:main"),
        arguments=(),
        root=str(tmp_path),
        own=(),
        folder=str(tmp_path / "pass"),
        artifact="profile",
        known_steps=8,
        from_root=True,
    )

    result = run_pass(spec, lambda _: None, launcher)

    assert result.problem is None, result.problem
    reading = read_profile(tmp_path / "pass/profile.trace.json.gz", CodeNames())
    seconds = {phase.name: phase.seconds for phase in reading.phases}
    assert seconds["mining"] >= 3 * 0.004
    assert 3 * 0.002 <= seconds["sampling"] < seconds["mining"]
    assert min(seconds["backward"], seconds["optimizer"]) > 0
    assert pytest.approx(reading.total_s) == sum(seconds.values())
