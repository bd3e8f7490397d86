"""A gain that is none is named, and one that is one is not doubted."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping
from pathlib import Path

import pytest
from gains import BENCH, FAKE, HONEST, Gain

from perfkit.gating.gains import doubts_of, take_looks
from perfkit.model import SIDES, Side
from perfkit.model.comparisons import Doubt
from perfkit.runner.lockstep.launch import LaunchRules, run_launch
from perfkit.runner.lockstep.launcher import Launcher, MeasuredTrees

NODE = f"{BENCH}::test_it"


def _doubts(gain: Gain, folder: Path) -> list[Doubt]:
    """Write both sides, measure them in one launch, and look closer."""
    roots: dict[Side, Path] = {side: folder / side for side in SIDES}
    for side, text in zip(SIDES, (gain.base, gain.head_text), strict=True):
        roots[side].mkdir()
        (roots[side] / "pytest.ini").write_text("[pytest]\npythonpath = .\n")
        (roots[side] / BENCH).write_text(gain.bench)
        (roots[side] / "app.py").write_text(text)
    (folder / "launches").mkdir()
    trees = MeasuredTrees(roots=roots, origins=(), paths=(BENCH,))
    with Launcher(
        trees, folder=folder / "launches", environment=os.environ, seed=1, preload=[], cores=1
    ) as launcher:
        launcher.survey()
        children = [launcher.start(side, nodes=[NODE]) for side in SIDES]
        rules = LaunchRules(launch_s=0.04, limit_s=lambda _: 20.0)
        record = run_launch(children, [NODE], plans={}, rules=rules)
        assert () == record.failures
        timing = record.timings[NODE]
        claimed = statistics.median(timing.base_s), statistics.median(timing.head_s)
        assert claimed[1] < 0.9 * claimed[0]
        looks = take_looks(launcher, NODE, 20.0, claimed[0])
    return doubts_of(claimed, looks)


def _params(gains: Mapping[str, Gain]) -> list[object]:
    return [pytest.param(name, marks=[pytest.mark.slow] * one.slow) for name, one in gains.items()]


@pytest.mark.parametrize("name", _params(FAKE))
def test_a_gain_that_is_none_is_named(name: str, tmp_path: Path) -> None:
    found = _doubts(FAKE[name], tmp_path)

    assert FAKE[name].doubt in {one.kind for one in found}
    assert all(len(one.text) <= 110 for one in found)


@pytest.mark.parametrize("name", _params(HONEST))
def test_a_gain_is_not_doubted(name: str, tmp_path: Path) -> None:
    assert [] == _doubts(HONEST[name], tmp_path)
