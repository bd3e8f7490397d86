"""The interval over launches has the right quantile and width, and is over preloaders where they differ."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.stats.interval import (
    TRIMMED_FROM,
    Interval,
    error_per_look,
    location_interval,
    trimmed_variance,
)
from perfkit.stats.planning import expected_half_width

logs = st.lists(st.floats(min_value=-1, max_value=1), min_size=2, max_size=40)


def _bounds(interval: Interval) -> tuple[float, float]:
    return float(interval.centre - interval.half_width), float(interval.centre + interval.half_width)


def test_few_launches_give_students_interval() -> None:
    """Below ten launches nothing is trimmed: mean, and t of 3 degrees at 95 % is 3.182."""
    interval = location_interval([1.0, 2.0, 3.0, 4.0], [0, 0, 0, 0], error=0.05)

    assert pytest.approx(2.5) == float(interval.centre)
    assert pytest.approx(3.182446 * math.sqrt(5 / 3) / 2) == float(interval.half_width)


def test_many_launches_are_trimmed_by_a_tenth_at_each_end() -> None:
    """Of ten, one at each end is left out; its place in the deviation takes its neighbour."""
    interval = location_interval([*range(1, 10), 1000.0], [0] * 10, error=0.05, trimmed_from=10)
    winsorised_sd = np.std([2, 2, 3, 4, 5, 6, 7, 8, 9, 9], ddof=1)

    assert pytest.approx(5.5) == float(interval.centre)
    # t of 7 degrees at 95 % is 2.364624.
    assert pytest.approx(2.364624 * winsorised_sd * math.sqrt(9 / (8 * 7)), rel=1e-6) == interval.half_width


def test_fewer_than_twenty_launches_are_not_trimmed() -> None:
    """Where nearly all of few agree by chance, the one that does not is needed to see that they scatter."""
    values = [0.03] * 18 + [-0.03]

    nineteen = location_interval(values, [0] * 19, error=0.05)
    twenty = location_interval([*values, 0.03], [0] * 20, error=0.05)

    assert pytest.approx(np.mean(values)) == float(nineteen.centre)
    assert pytest.approx(2.100922 * np.std(values, ddof=1) / math.sqrt(19), rel=1e-6) == nineteen.half_width
    assert (0.03, 0.0) == pytest.approx((float(twenty.centre), float(twenty.half_width)))


def test_one_launch_bounds_nothing() -> None:
    """The scatter of one value is not known."""
    interval = location_interval([0.5], [0], error=0.05)

    assert (-math.inf, math.inf) == _bounds(interval)


def test_launches_that_agree_have_no_width() -> None:
    """Where nothing scatters, nothing is uncertain, whatever the preloaders."""
    interval = location_interval([0.25] * 8, [0, 0, 0, 0, 1, 1, 1, 1], error=0.05)

    assert (0.25, 0.25) == _bounds(interval)


def test_differing_preloaders_are_the_unit() -> None:
    """Two tight groups far apart are two values, and t of 1 degree at 95 % is 12.706."""
    interval = location_interval([0.0, 0.01, 1.0, 1.01], [3, 3, 7, 7], error=0.05)

    assert bool(interval.by_preloaders)
    assert pytest.approx(0.505) == float(interval.centre)
    assert pytest.approx(12.7062 * math.sqrt(0.5) / math.sqrt(2), rel=1e-5) == float(interval.half_width)


def test_each_preloader_weighs_the_same_where_they_differ() -> None:
    """A preloader with three launches counts no more than one with two."""
    interval = location_interval([0.0, 0.01, 1.0, 1.01, 1.005], [0, 0, 1, 1, 1], error=0.05)

    assert pytest.approx((0.005 + 1.005) / 2) == float(interval.centre)


def test_preloaders_that_agree_do_not_matter() -> None:
    """Groups that scatter as one leave the launch the unit."""
    values = [0.0, 0.02, 0.01, 0.0, 0.02, 0.01]

    grouped = location_interval(values, [0, 0, 0, 1, 1, 1], error=0.05)

    assert not bool(grouped.by_preloaders)
    assert _bounds(location_interval(values, [0] * 6, error=0.05)) == _bounds(grouped)


def test_a_preloader_for_every_launch_leaves_launches() -> None:
    """Fresh processes are launches and preloaders in one."""
    values = [0.0, 1.0, 0.0, 1.0]

    interval = location_interval(values, [0, 1, 2, 3], error=0.05)

    assert not bool(interval.by_preloaders)
    assert _bounds(location_interval(values, [0] * 4, error=0.05)) == _bounds(interval)


def test_series_side_by_side_are_judged_one_by_one() -> None:
    """Each of many series has the interval it would have alone."""
    series = np.random.default_rng(5).normal(0, 1, (50, 12)) + np.repeat([[0, 2, 0]], 4, axis=1)
    groups = np.arange(12) // 4

    together = location_interval(series, groups, error=0.01)
    alone = [location_interval(one, groups, error=0.01) for one in series]

    assert 0 < together.by_preloaders.sum() < 50
    assert [float(one.centre) for one in alone] == together.centre.tolist()
    assert pytest.approx([float(one.half_width) for one in alone]) == together.half_width.tolist()


@given(values=logs)
def test_swapping_the_sides_mirrors_the_interval(values: list[float]) -> None:
    """Log ratios of the other sign have bounds of the other sign."""
    groups = [place // 4 for place in range(len(values))]
    low, high = _bounds(location_interval(values, groups, error=0.01))

    mirrored = _bounds(location_interval([-value for value in values], groups, error=0.01))

    assert pytest.approx((-high, -low), abs=1e-9) == mirrored


@given(values=logs, order=st.randoms(use_true_random=False))
def test_the_order_of_launches_does_not_matter(values: list[float], order: Random) -> None:
    """Launches of one preloader may be shuffled."""
    shuffled = sorted(values, key=lambda _: order.random())
    groups = [0] * len(values)

    plain = _bounds(location_interval(values, groups, error=0.01))

    assert pytest.approx(plain, abs=1e-9) == _bounds(location_interval(shuffled, groups, error=0.01))


def test_alpha_is_shared_over_comparisons_and_looks() -> None:
    """All shares together make alpha."""
    assert pytest.approx(0.01) == 6 * 7 * error_per_look(0.01, family=6, looks=7)


@pytest.mark.parametrize("units", [5, 10, 40])
def test_the_trimmed_variance_is_that_of_the_interval(units: int) -> None:
    """A plain mean of units with this variance has the interval's width; one burst adds next to nothing."""
    values = np.random.default_rng(2).normal(0, 0.02, units)
    width = float(location_interval(values, [0] * units, error=0.01).half_width)

    sd = math.sqrt(trimmed_variance(values))

    assert pytest.approx(width) == expected_half_width(sd, units, error=0.01)
    if units >= TRIMMED_FROM:
        burst = np.append(values[:-1], 5.0)
        assert trimmed_variance(burst) < 3 * sd**2
