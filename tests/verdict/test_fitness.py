"""Launches of identical code show what a machine is fit for."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import MACHINE

from perfkit.records.comparisons import LaunchPair, Policy
from perfkit.verdict.fitness import Fitness, Noise, judge_fitness, judge_noise

POLICY = Policy(alpha=0.01, family=6, looks=(10, 20, 40))


def _launches(sd: float, count: int) -> tuple[LaunchPair, ...]:
    ratios = np.exp(np.random.default_rng(5).normal(0, sd, count))
    return tuple(
        LaunchPair(launch=number, preloader=number // 4, base_s=(0.01,) * 5, head_s=(0.01 * ratio,) * 5)
        for number, ratio in enumerate(ratios)
    )


def _noise(sd: float, *, count: int = 200, launch_s: float = 0.5, seconds: float = 20) -> tuple[Noise, ...]:
    return judge_noise(
        {"b.py::test_a": _launches(sd, count)},
        launch_s=launch_s,
        policy=POLICY,
        margin=0.02,
        seconds_per_benchmark=seconds,
    )


def _fitness(*noises: Noise, margin: float = 0.02) -> Fitness:
    return judge_fitness(MACHINE, [], noises, policy=POLICY, margin=margin, seconds_per_benchmark=20)


def test_noise_is_read_off_the_launches() -> None:
    """The deviation is that of the log ratios, and the budget says how many launches a gate has."""
    (noise,) = _noise(0.01)

    assert pytest.approx(0.01, rel=0.1) == noise.launch_sd
    assert (200, 40) == (noise.measured, noise.launches)
    assert noise.half_width is not None
    assert noise.effect is not None
    assert 0.02 < noise.half_width + 0.02 < noise.effect < 0.04


@pytest.mark.parametrize(("seconds", "launches"), [(4, 0), (5, 10), (12, 20), (1000, 40)])
def test_the_budget_reaches_a_look(seconds: float, launches: int) -> None:
    """What lies between two looks is of no use; below the first there is no interval."""
    (noise,) = _noise(0.01, seconds=seconds)

    assert launches == noise.launches
    assert (noise.half_width is None) == (launches == 0)


@pytest.mark.parametrize(("sd", "fit", "code"), [(0.01, True, 0), (0.1, False, 3)])
def test_a_machine_is_fit_where_identical_code_would_be_unchanged(sd: float, fit: bool, code: int) -> None:  # noqa: FBT001
    """The interval has to fit inside the margin."""
    found = _fitness(*_noise(sd))

    assert (fit, code) == (found.fit, found.exit_code)


def test_the_noisiest_benchmark_decides() -> None:
    """A machine is not fit because one kind of work is steady on it."""
    assert not _fitness(*_noise(0.001), *_noise(0.1)).fit


def test_a_smaller_margin_asks_for_more() -> None:
    """What is fit for 5 % need not be for half a percent."""
    noises = _noise(0.015)

    assert (True, False) == (_fitness(*noises, margin=0.05).fit, _fitness(*noises, margin=0.005).fit)


def test_too_few_launches_are_not_measured() -> None:
    """Four launches tell no scatter: that is exit code 4, never a pass."""
    found = _fitness(*_noise(0.001, count=4))

    assert ((), False, 4) == (found.noises, found.fit, found.exit_code)
