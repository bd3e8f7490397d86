"""A benchmark's launches show where what its interval assumes does not hold."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from noise import (
    LAUNCHES_PER_GENERATION,
    POLICY,
    FloatArray,
    Model,
    as_pairs,
    autocorrelated,
    normal,
    shared_bias,
    student,
)

from perfkit.gating.judge import doubts, estimate
from perfkit.model.comparisons import LaunchPair
from perfkit.runner.lockstep.launch import schedule
from perfkit.stats.interval import halves_differ, lower_bound, upper_bound

SERIES, LAUNCHES = 600, 26


def _drawn(model: Model, series: int = SERIES) -> FloatArray:
    return model(np.random.default_rng(30), (series, LAUNCHES))


def _pairs(logs: FloatArray, *, first_is_faster: float = 0.0, groups: int = 1) -> list[LaunchPair]:
    slots = [slot for slot, _ in zip(schedule(seed=3), logs, strict=False)]
    signs = np.array([1.0 if slot.begins == "base" else -1.0 for slot in slots])
    moved = as_pairs(logs + signs * math.log1p(first_is_faster))
    return [
        replace(pair, begins=slot.begins, group=place // groups)
        for place, (pair, slot) in enumerate(zip(moved, slots, strict=True))
    ]


def _stated(logs: FloatArray, *, first_is_faster: float = 0.0, groups: int = 1) -> list[str]:
    pairs = _pairs(logs, first_is_faster=first_is_faster, groups=groups)
    return list(doubts(pairs, estimate(pairs, POLICY)))


@pytest.mark.parametrize(
    "model",
    [pytest.param(normal(0.01), marks=pytest.mark.slow, id="normal"), pytest.param(student(3, 0.01), id="3")],
)
def test_what_holds_is_hardly_ever_doubted(model: Model) -> None:
    doubted = sum(bool(_stated(logs)) for logs in _drawn(model))

    assert upper_bound(doubted, SERIES) < 0.01


def test_launches_like_those_before_them_are_reported() -> None:
    output = [_stated(logs) for logs in _drawn(autocorrelated(0.01, 0.7), 100)]

    seen = sum(
        any("resemble the ones before them (correlation 0." in one for one in found) for found in output
    )
    assert lower_bound(seen, len(output)) > 0.3


def test_an_advantage_of_the_first_is_reported() -> None:
    (output,) = _stated(_drawn(normal(0.003))[0], first_is_faster=0.02)

    assert "the side that begins reads 2." in output
    assert output.endswith("% faster")


def test_processes_that_differ_are_reported_once() -> None:
    (output,) = _stated(_drawn(shared_bias(0.001, 0.05))[0], groups=LAUNCHES_PER_GENERATION)

    assert output.startswith("launches from one process resemble each other")


@pytest.mark.parametrize(("launches", "doubted"), [(10, False), (11, False), (12, True), (13, True)])
def test_few_launches_are_not_doubted(launches: int, *, doubted: bool) -> None:
    assert doubted == bool(_stated(np.zeros(launches), first_is_faster=0.1))


@pytest.mark.parametrize("launches", [2, LAUNCHES])
def test_nothing_is_doubted_without_an_interval(launches: int) -> None:
    assert [] == list(doubts(_pairs(np.zeros(launches), first_is_faster=0.1), None))


def test_halves_of_unequal_size_and_scatter_have_a_fraction_of_a_degree() -> None:
    from scipy.stats import ttest_ind

    first, second = [1.0, 2.0, 3.0], [2.0, 6.0, 10.0, 14.0]

    expected = float(ttest_ind(first, second, equal_var=False).pvalue)
    assert pytest.approx(expected, rel=1e-9) == halves_differ(first, second).p_value
