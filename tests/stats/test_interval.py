"""Intervals have the right quantiles and width, and locations are medians of log ratios."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from perfkit.stats.interval import (
    TRIMMED_FROM,
    Interval,
    degrees_of_freedom,
    fisher_quantile,
    location,
    location_interval,
    lower_bound,
    student_quantile,
    student_tails,
    trimmed_variance,
    upper_bound,
    widening,
)
from perfkit.stats.planning import expected_half_width

logs = st.lists(st.floats(min_value=-1, max_value=1), min_size=2, max_size=40)


def _bounds(interval: Interval) -> tuple[float, float]:
    return float(interval.centre - interval.half_width), float(interval.centre + interval.half_width)


def test_few_launches_give_students_interval() -> None:
    interval = location_interval([1.0, 2.0, 3.0, 4.0], [0, 0, 0, 0], error=0.05)

    assert pytest.approx(2.5) == float(interval.centre)
    assert pytest.approx(3.182446 * math.sqrt(5 / 3) / 2) == float(interval.half_width)


def test_many_launches_are_trimmed_by_a_tenth_at_each_end() -> None:
    interval = location_interval([*range(1, 10), 1000.0], [0] * 10, error=0.05, trimmed_from=10)
    winsorised_sd = np.std([2, 2, 3, 4, 5, 6, 7, 8, 9, 9], ddof=1)

    assert pytest.approx(5.5) == float(interval.centre)
    # t of 7 degrees at 95 % is 2.364624.
    assert pytest.approx(2.364624 * winsorised_sd * math.sqrt(9 / (8 * 7)), rel=1e-6) == interval.half_width


def test_fewer_than_twenty_launches_are_not_trimmed() -> None:
    values = [0.03] * 18 + [-0.03]

    nineteen = location_interval(values, [0] * 19, error=0.05)
    twenty = location_interval([*values, 0.03], [0] * 20, error=0.05)

    assert pytest.approx(np.mean(values)) == float(nineteen.centre)
    assert pytest.approx(2.100922 * np.std(values, ddof=1) / math.sqrt(19), rel=1e-6) == nineteen.half_width
    assert (0.03, 0.0) == pytest.approx((float(twenty.centre), float(twenty.half_width)))


def test_one_launch_bounds_nothing() -> None:
    interval = location_interval([0.5], [0], error=0.05)

    assert (-math.inf, math.inf) == _bounds(interval)


def test_launches_that_agree_have_no_width() -> None:
    interval = location_interval([0.25] * 8, [0, 0, 0, 0, 1, 1, 1, 1], error=0.05)

    assert (0.25, 0.25) == _bounds(interval)


def test_differing_fork_servers_are_the_unit() -> None:
    interval = location_interval([0.0, 0.01, 1.0, 1.01], [3, 3, 7, 7], error=0.05)

    assert bool(interval.by_zygotes)
    assert pytest.approx(0.505) == float(interval.centre)
    assert pytest.approx(12.7062 * math.sqrt(0.5) / math.sqrt(2), rel=1e-5) == float(interval.half_width)


def test_fork_servers_that_agree_do_not_matter() -> None:
    values = [0.0, 0.02, 0.01, 0.0, 0.02, 0.01]

    grouped = location_interval(values, [0, 0, 0, 1, 1, 1], error=0.05)

    assert not bool(grouped.by_zygotes)
    assert _bounds(location_interval(values, [0] * 6, error=0.05)) == _bounds(grouped)


def test_a_fork_server_for_every_launch_leaves_launches() -> None:
    values = [0.0, 1.0, 0.0, 1.0]

    interval = location_interval(values, [0, 1, 2, 3], error=0.05)

    assert not bool(interval.by_zygotes)
    assert _bounds(location_interval(values, [0] * 4, error=0.05)) == _bounds(interval)


def test_series_side_by_side_are_judged_one_by_one() -> None:
    series = np.random.default_rng(5).normal(0, 1, (50, 12)) + np.repeat([[0, 2, 0]], 4, axis=1)
    groups = np.arange(12) // 4

    together = location_interval(series, groups, error=0.01)
    alone = [location_interval(one, groups, error=0.01) for one in series]

    assert 0 < together.by_zygotes.sum() < 50
    assert [float(one.centre) for one in alone] == together.centre.tolist()
    assert pytest.approx([float(one.half_width) for one in alone]) == together.half_width.tolist()


@given(values=logs)
def test_swapping_the_sides_mirrors_the_interval(values: list[float]) -> None:
    groups = [place // 4 for place in range(len(values))]
    low, high = _bounds(location_interval(values, groups, error=0.01))

    mirrored = _bounds(location_interval([-value for value in values], groups, error=0.01))

    assert pytest.approx((-high, -low), abs=1e-9) == mirrored


@pytest.mark.parametrize("units", [5, 10, 40])
def test_the_trimmed_variance_is_that_of_the_interval(units: int) -> None:
    values = np.random.default_rng(2).normal(0, 0.02, units)
    width = float(location_interval(values, [0] * units, error=0.01).half_width)

    sd = math.sqrt(trimmed_variance(values))

    assert pytest.approx(width) == expected_half_width(sd, units, error=0.01)
    if units >= TRIMMED_FROM:
        burst = np.append(values[:-1], 5.0)
        assert trimmed_variance(burst) < 3 * sd**2


@pytest.mark.parametrize(("distance", "differ"), [(2.99, False), (3.01, True)])
def test_fork_servers_differ_where_chance_would_do_it_once_in_a_thousand(
    distance: float, *, differ: bool
) -> None:
    values = [distance * group + place for group in range(3) for place in (-1.0, 0.0, 1.0)]

    interval = location_interval(values, [0, 0, 0, 1, 1, 1, 2, 2, 2], error=0.05)

    assert differ == bool(interval.by_zygotes)


def test_fork_servers_of_unequal_size_are_compared_by_their_own_means() -> None:
    def differ(distance: float) -> bool:
        # The squares within are 2 + 10; those between, with weights 2 and 4, are 4/3 of the squared distance.
        values = [-1.0, 1.0, *(distance + place for place in (-2.0, -1.0, 1.0, 2.0))]
        return bool(location_interval(values, [0, 0, 1, 1, 1, 1], error=0.05).by_zygotes)

    critical = math.sqrt(74.137 * (12 / 4) * 3 / 4)
    assert [False, True] == [differ(critical - 0.01), differ(critical + 0.01)]


@pytest.mark.parametrize(
    ("servers", "shared", "wider"),
    [
        # Four launches in pairs: (1 + 2 r) over (1 + 2/3 r), whose root it is.
        ([0, 0, 1, 1], 1.0, math.sqrt(3 / (5 / 3))),
        # Three and one: 10/4 together, and a half apart.
        ([0, 0, 0, 1], 0.5, math.sqrt(2.25 / 1.25)),
        ([0, 0, 0, 0], 0.25, math.sqrt(2.0)),
        ([0, 1, 2, 3], 1.0, 1.0),
        ([0, 0, 1, 1], 0.0, 1.0),
        ([0], 0.5, 1.0),
        ([0, 0], 0.5, math.sqrt(2.0)),
    ],
)
def test_what_launches_share_makes_an_interval_wider(servers: list[int], shared: float, wider: float) -> None:
    assert pytest.approx(wider) == widening(servers, shared)
    if len(servers) > 1:
        values = [0.0, 1.0, 1.0, 0.0][: len(servers)]
        plain, shared_too = (
            location_interval(values, servers, error=0.05, shared_variance=one) for one in (0.0, shared)
        )
        assert pytest.approx(wider * float(plain.half_width)) == float(shared_too.half_width)
        assert plain.centre == shared_too.centre


def test_launches_scatter_by_a_least_deviation() -> None:
    alike = location_interval([0.5] * 4, [0] * 4, error=0.05, least_sd=0.1)
    apart = location_interval([1.0, 2.0, 3.0, 4.0], [0] * 4, error=0.05, least_sd=0.1)

    assert pytest.approx(3.182446 * 0.1 / 2) == float(alike.half_width)
    assert location_interval([1.0, 2.0, 3.0, 4.0], [0] * 4, error=0.05) == apart


def test_differing_fork_servers_are_trimmed_as_launches_are() -> None:
    means = [*map(float, range(1, 10)), 1000.0]
    values = [mean + sign * 1e-3 for mean in means for sign in (-1, 1)]
    groups = [group for group in range(10) for _ in range(2)]

    interval = location_interval(values, groups, error=0.05, trimmed_from=10)

    assert bool(interval.by_zygotes)
    assert pytest.approx(5.5) == float(interval.centre)
    assert 7 == degrees_of_freedom(10, trimmed_from=10)
    assert 9 == degrees_of_freedom(10)


times = st.floats(min_value=1e-6, max_value=1e3)
rounds = st.lists(st.tuples(times, times), min_size=1, max_size=30)


@given(sample=rounds, factor=st.floats(min_value=0.5, max_value=2), order=st.randoms(use_true_random=False))
def test_a_location_is_a_log_ratio(sample: list[tuple[float, float]], factor: float, order: Random) -> None:
    base, head = zip(*sample, strict=True)
    found = pytest.approx(location(base, head), abs=1e-9)

    assert found == -location(head, base)
    assert found == location(*zip(*sorted(sample, key=lambda _: order.random()), strict=True))
    assert found == location([factor * one for one in base], [factor * one for one in head])
    assert found == location(base, [factor * one for one in head]) - math.log(factor)


@pytest.mark.parametrize(
    ("base", "head"),
    [([], []), ([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0]), ([0.0, 1.0], [1.0, 1.0]), ([1.0], [-1.0])],
)
def test_values_without_ratios_are_refused(base: list[float], head: list[float]) -> None:
    with pytest.raises(ValueError, match=r"as many|above zero"):
        location(base, head)


def test_the_location_is_the_median() -> None:
    assert pytest.approx(math.log(1.02)) == location([1.0] * 5, [1.01, 1.02, 1.03, 1.0, 9.0])
    assert pytest.approx(math.log(1.02 * 1.03) / 2) == location([1.0] * 4, [1.01, 1.02, 1.03, 9.0])


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
