"""torch.profiler watches a window of steps, and in it the phases that the user names."""

from __future__ import annotations

from pathlib import Path

import pytest
from pass_specs import pass_spec

from perfkit.errors import NotMeasuredError
from perfkit.model import PassSummary
from perfkit.profiling.passes import instruments
from perfkit.profiling.passes.exchange import PassResult
from perfkit.profiling.passes.instruments import Window, choose_window
from perfkit.profiling.passes.launch import PassLauncher, run_pass
from perfkit.profiling.read.formats import read_profile
from perfkit.profiling.read.names import CodeNames

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
    spend(0.04)
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


MADE_ON_IMPORT = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer.step()


def main():
    for _ in range(8):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""


def _traced(root: Path, loop: str, launcher: PassLauncher) -> PassResult:
    """Return what the torch pass gives of a module whose function ``main`` makes eight steps."""
    (root / "pass").mkdir()
    (root / "loop.py").write_text(loop)
    spec = pass_spec(root, "loop:main", root / "pass", name="torch", known_steps=8)
    return run_pass(spec, lambda _: None, launcher)


@pytest.mark.parametrize("steps", [None, 5, 1000])
def test_a_long_loop_has_a_full_window(steps: int | None) -> None:
    assert Window(wait=1, warmup=1, active=3) == choose_window(steps)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_short_loop_still_gives_a_trace(steps: int) -> None:
    window = choose_window(steps)
    assert steps == window.end
    assert window.active >= 1


def test_begin_counts_the_steps_not_kept() -> None:
    assert 2 == choose_window(100).begin


def test_phases_that_the_user_names_are_ranges_of_the_trace(tmp_path: Path, launcher: PassLauncher) -> None:
    result = _traced(tmp_path, NAMED, launcher)

    assert result.problem is None, result.problem
    reading = read_profile(tmp_path / "pass/profile.trace.json.gz", CodeNames())
    seconds = {phase.name: phase.seconds for phase in reading.phases}
    assert seconds["mining"] >= 3 * 0.04
    assert 3 * 0.002 <= seconds["sampling"] < seconds["mining"]
    assert min(seconds["backward"], seconds["optimizer"]) > 0
    assert pytest.approx(reading.total_s) == sum(seconds.values())


def test_the_steps_of_an_optimizer_that_was_made_on_import_are_seen(
    tmp_path: Path, launcher: PassLauncher
) -> None:
    result = _traced(tmp_path, MADE_ON_IMPORT, launcher)

    assert result.problem is None, result.problem
    assert result.summary is not None
    assert (5, 2) == (result.summary.steps, result.summary.profiled_from)
    reading = read_profile(tmp_path / "pass/profile.trace.json.gz", CodeNames())
    assert reading.steps is not None
    assert 3 == reading.steps.count


def test_a_trace_that_cannot_be_written_is_reported_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = pass_spec(
        tmp_path, "loop:main", tmp_path / "missing", name="torch", trace_all=True, from_root=False
    )
    monkeypatch.setattr(instruments, "watch_optimizers", lambda *_: None)
    watch = instruments.TorchProfile(spec)
    watch.run(lambda: None)
    summary = PassSummary(name="torch", total_s=1.0, step_s=(), samples=None)

    with pytest.raises(NotMeasuredError, match=r"could not write the trace of 0 optimizer steps.*--passes"):
        watch.write(summary)
