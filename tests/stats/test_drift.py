"""Drift is found where a trend rises more evenly than it wanders, and hardly ever in identical code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from perfkit.stats.change_points import FloatArray
from perfkit.stats.drift import Drift, best_place, find_drift

STUDY = Path(__file__).parents[2] / "benchmarks" / "change_points"


def _found(levels: FloatArray, *, least: float = 0.02) -> Drift | None:
    """Return the drift since the best level, each run of a session of its own, in one environment."""
    start = best_place(levels.tolist())
    runs = len(levels) - start
    return find_drift(levels[start:], sessions=range(runs), environments=[0] * runs, least=least)


@pytest.fixture(scope="module")
def series() -> Iterator[ModuleType]:
    """Return the series of the study of change points: real runs and simulated noise of identical code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(STUDY.parent / "calibration"))
        patch.syspath_prepend(str(STUDY))
        yield importlib.import_module("series")
    for name in ("series", "plan", "neutral"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("rise", [0.01, 0.02, 0.05])
@pytest.mark.parametrize("seed", range(3))
def test_a_steady_rise_is_found(rise: float, seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0, 0.005, 40)
    rises = rise * np.clip(np.arange(40) - 8, 0, None)

    drift = _found(np.exp(rises + noise))

    assert drift is not None
    assert drift.low < np.exp(rises[-1]) < drift.high
    assert drift.low > 1.02


def test_a_rise_between_level_ground_is_found() -> None:
    noise = np.random.default_rng(1).normal(0, 0.005, 40)
    ramp = np.clip((np.arange(40) - 16) / 6, 0, 1)

    assert _found(np.exp(0.17 * ramp + noise)) is not None


def test_a_rise_within_the_margin_is_none() -> None:
    assert _found(np.exp(np.linspace(0, 0.015, 40))) is None


def test_few_runs_show_no_drift() -> None:
    assert _found(np.exp(0.02 * np.arange(11))) is None


def test_another_environment_has_a_level_of_its_own() -> None:
    noise = np.random.default_rng(1).normal(0, 0.003, 40)
    stretches = np.repeat(["old", "new"], 20).tolist()
    jump: FloatArray = np.repeat([0.0, 0.3], 20)

    def found(logs: FloatArray) -> Drift | None:
        return find_drift(list(np.exp(logs + noise)), sessions=range(40), environments=stretches, least=0.02)

    assert found(jump) is None
    assert found(np.linspace(0, 0.4, 40)) is not None


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("runs", [1, 2, 3, 5, 8])
def test_many_environments_leave_nothing_to_compare(runs: int) -> None:
    stretches = [place // runs for place in range(24)]
    levels = np.exp(0.1 * np.array(stretches) + np.random.default_rng(1).normal(0, 0.001, 24))

    assert find_drift(levels, sessions=range(24), environments=stretches, least=0.02) is None


@pytest.mark.parametrize("seed", range(5))
def test_sessions_that_differ_make_no_drift(seed: int) -> None:
    source = np.random.default_rng(seed)
    sessions = np.repeat(np.arange(4), 10)
    logs = np.sort(source.normal(0, 0.05, 4))[sessions] + source.normal(0, 0.005, 40)

    assert find_drift(np.exp(logs), sessions=sessions.tolist(), environments=[0] * 40, least=0.02) is None


@pytest.mark.parametrize(
    "noise",
    ["normal", "skewed: lognormal", "... by 0.8", "... by 0.3", "a random walk and nothing else",
     "... by the whole sd", "bursts of one to three runs"],
)  # fmt: skip
def test_hardly_any_simulated_series_drifts(series: ModuleType, noise: str) -> None:
    alarms = sum(_found(series.simulate(noise, number), least=0.0) is not None for number in range(200))

    assert alarms <= 2


@pytest.mark.parametrize("level", ["quickest", "launch 1"])
def test_no_window_of_identical_code_drifts(series: ModuleType, level: str) -> None:
    windows = [
        window.series(benchmark, without_factor=False)
        for study in (series.TUNED_ON, series.HELD_OUT)
        for window in series.read_windows(study, level)
        for benchmark in range(6)
    ]

    assert 66 == len(windows)
    assert [] == [levels for levels in windows if _found(levels) is not None]
