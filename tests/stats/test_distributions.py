"""Quantiles and bounds agree with scipy's, which the product does without."""

from __future__ import annotations

import math

import pytest
from scipy import special

from perfkit.stats.distributions import (
    fisher_quantile,
    lower_bound,
    student_quantile,
    student_tails,
    upper_bound,
)


@pytest.mark.parametrize("degrees", [1, 2, 3, 7, 19, 40, 150, 5000])
@pytest.mark.parametrize("error", [0.5, 0.05, 0.01, 1e-4, 1e-8, 1e-12])
def test_students_quantile_is_exact(degrees: int, error: float) -> None:
    assert pytest.approx(-special.stdtrit(degrees, error / 2), rel=1e-10) == student_quantile(degrees, error)
    assert math.inf == student_quantile(0, error)


@pytest.mark.parametrize("degrees", [2.3, 9.9, 123.4])
@pytest.mark.parametrize("t", [0.0, -0.5, 3.0, 30.0])
def test_students_tails_are_exact(degrees: float, t: float) -> None:
    assert pytest.approx(2 * special.stdtr(degrees, -abs(t)), rel=1e-10) == student_tails(degrees, t)


@pytest.mark.parametrize("between", [1, 2, 9])
@pytest.mark.parametrize("within", [2, 6, 100])
def test_fishers_quantile_is_exact(between: int, within: int) -> None:
    found = fisher_quantile(between, within, 0.001)

    assert pytest.approx(0.001, rel=1e-10) == special.fdtrc(between, within, found)


@pytest.mark.parametrize("of", [1, 20, 1000])
@pytest.mark.parametrize("confidence", [0.4, 0.95])
def test_bounds_of_a_share_are_those_of_clopper_and_pearson(of: int, confidence: float) -> None:
    for count in {0, of // 3, of - 1}:
        bound = special.betaincinv(count + 1, of - count, confidence)
        assert pytest.approx(bound, rel=1e-10) == upper_bound(count, of, confidence=confidence)
        assert pytest.approx(1 - bound) == lower_bound(of - count, of, confidence=confidence)
    assert (0.0, 1.0) == (lower_bound(0, 0), upper_bound(0, 0))
