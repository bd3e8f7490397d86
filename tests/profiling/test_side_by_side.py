"""Of two passes in turns each makes all its steps, and neither includes the other's time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pass_specs import pass_spec

from perfkit.model import PassName, PassSummary
from perfkit.profiling.passes.exchange import PassSpec
from perfkit.profiling.passes.launch import PassLauncher, SideBySide, run_pass, run_side_by_side

TRAINING = """
import time

import torch


def main():
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for step in range(24):
        parameter.grad = torch.ones(1)
        until = time.process_time() + {seconds}
        while time.process_time() < until:
            pass
        optimizer.step()


def fails():
    main()
    raise RuntimeError("after the last step")
"""

DETOUR = """
import sys

sys.path.insert(0, sys.argv[1])
import helper


def main():
    pass


def fails():
    raise RuntimeError("with the other helper")
"""


def _spec(root: Path, *, seconds: float = 0.01, name: PassName = "clean", call: str = "main") -> PassSpec:
    (root / "folder").mkdir(parents=True)
    (root / "slow.py").write_text(TRAINING.format(seconds=seconds))
    return pass_spec(root, f"slow:{call}", root / "folder", name=name, known_steps=24)


def _summaries(both: SideBySide) -> tuple[PassSummary, PassSummary]:
    first, second = (result.summary for result in both.results)
    assert first is not None
    assert second is not None
    return first, second


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, launcher: PassLauncher) -> SideBySide:
    """Return a loop beside one that takes three times as long, the latter with the balance hooks."""
    place = tmp_path_factory.mktemp("both")
    return run_side_by_side(
        # A wait for a core, of some milliseconds, has to be little beside a step.
        (_spec(place / "quick", seconds=0.02), _spec(place / "slow", seconds=0.06, name="balance")),
        lambda _: None,
        launcher,
    )


def test_each_side_makes_all_its_steps_in_times_of_its_own(both: SideBySide) -> None:
    (first, second), balance, ratio = _summaries(both), both.results[1].balance, both.ratio

    assert [24, 24] == [first.steps, second.steps]
    assert 24 <= sum(both.turns)
    for summary in (first, second):
        assert pytest.approx(sum(summary.step_s), rel=0.05) == summary.total_s
    # The other side's turns alone would make a step of the quick loop longer than any of the slow one.
    assert (first.typical_step_s or 0) < (second.typical_step_s or 0)
    assert ratio is not None
    assert ratio.low <= ratio.ratio <= ratio.high
    assert ratio.ratio > 2
    assert balance is not None
    assert pytest.approx(second.step_s[1:], rel=0.1) == balance.step_s[1:]


def test_a_side_that_fails_lets_the_other_end(tmp_path: Path, launcher: PassLauncher) -> None:
    both = run_side_by_side(
        (_spec(tmp_path / "fails", call="fails"), _spec(tmp_path / "fine")), lambda _: None, launcher
    )

    assert both.results[0].problem is not None
    assert "after the last step" in both.results[0].problem.message
    assert both.results[1].summary is not None
    assert both.ratio is None


@pytest.mark.parametrize(("from_root", "call"), [(True, "main"), (False, "main"), (True, "fails")])
def test_code_from_elsewhere_is_refused(
    tmp_path: Path, launcher: PassLauncher, *, from_root: bool, call: str
) -> None:
    """A module that the project has must come from there: else another code would be measured.

    That is reported of a target that fails as well: the other code may be why.
    """
    spec = replace(_spec(tmp_path / "side", call=call), from_root=from_root)
    (tmp_path / "side/slow.py").write_text(DETOUR)
    (tmp_path / "side/helper.py").write_text("")
    (tmp_path / "installed").mkdir()
    (tmp_path / "installed/helper.py").write_text("")

    found = run_pass(replace(spec, arguments=(str(tmp_path / "installed"),)), lambda _: None, launcher)

    assert found.problem is not None
    assert '"helper" was imported from' in found.problem.message
