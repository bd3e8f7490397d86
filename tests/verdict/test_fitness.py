"""Launches of identical code show what a machine is fit for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from synthetic import MACHINE

from perfkit.gating.aa_runs import judge_fitness
from perfkit.model.calibration import Condition, Fitness, Noise
from perfkit.model.comparisons import LaunchPair, Policy

POLICY = Policy(alpha=0.01, family=6, looks=(10, 20, 40))
STEADY = Condition(name="governor", found="performance", state="good")


def _launches(sd: float, count: int) -> tuple[LaunchPair, ...]:
    ratios = np.exp(np.random.default_rng(5).normal(0, sd, count))
    return tuple(
        LaunchPair(launch=number, preloader=number // 4, base_s=(0.01,) * 5, head_s=(0.01 * ratio,) * 5)
        for number, ratio in enumerate(ratios)
    )


def _fitness(
    *sds: float, count: int = 200, seconds: float = 20, policy: Policy = POLICY, margin: float = 0.02
) -> Fitness:
    """Return the fitness of a machine on which benchmarks scatter by these deviations."""
    return judge_fitness(
        MACHINE,
        [STEADY],
        {f"b.py::test_{number}": _launches(sd, count) for number, sd in enumerate(sds)},
        launch_s=0.5,
        policy=policy,
        margin=margin,
        seconds_per_benchmark=seconds,
    )


def _noise(sd: float, *, seconds: float = 20, policy: Policy = POLICY) -> tuple[Noise, ...]:
    return _fitness(sd, seconds=seconds, policy=policy).noises


def test_noise_is_read_off_the_launches() -> None:
    (noise,) = _noise(0.01)

    assert pytest.approx(0.01, rel=0.1) == noise.launch_sd
    assert (200, 40) == (noise.measured, noise.launches)
    assert noise.half_width is not None
    assert noise.effect is not None
    assert 0.02 < noise.half_width + 0.02 < noise.effect < 0.04


@pytest.mark.parametrize(("seconds", "launches"), [(4, 0), (5, 10), (12, 20), (1000, 40)])
def test_the_budget_reaches_a_look(seconds: float, launches: int) -> None:
    (noise,) = _noise(0.01, seconds=seconds)

    assert launches == noise.launches
    assert (noise.half_width is None) == (launches == 0)


@pytest.mark.parametrize(("sd", "fit", "code"), [(0.01, True, 0), (0.1, False, 3)])
def test_a_machine_is_fit_where_identical_code_would_be_unchanged(sd: float, fit: bool, code: int) -> None:  # noqa: FBT001
    found = _fitness(sd)

    assert (fit, code) == (found.fit, found.exit_code)
    assert (STEADY,) == found.conditions


def test_an_interval_that_reaches_the_margin_does_not_fit() -> None:
    (noise,) = _noise(0.01)
    assert noise.half_width is not None

    assert _fitness(0.01, margin=noise.half_width * 1.001).fit
    assert not _fitness(0.01, margin=noise.half_width).fit


def test_what_launches_of_one_generation_share_widens_the_interval() -> None:
    (apart,) = _noise(0.01)
    (sharing,) = _noise(0.01, policy=replace(POLICY, shared_variance=1.0))

    assert apart.launch_sd == sharing.launch_sd
    assert apart.half_width is not None
    assert sharing.half_width is not None
    assert 1.5 * apart.half_width < sharing.half_width < 2.0 * apart.half_width


def test_the_noisiest_benchmark_decides() -> None:
    assert not _fitness(0.001, 0.1).fit


def test_a_smaller_margin_asks_for_more() -> None:
    assert (True, False) == (_fitness(0.015, margin=0.05).fit, _fitness(0.015, margin=0.005).fit)


def test_too_few_launches_are_not_measured() -> None:
    assert [5] == [noise.measured for noise in _fitness(0.001, count=5).noises]
    found = _fitness(0.001, count=4)

    assert ((), False, 4) == (found.noises, found.fit, found.exit_code)
