"""The plan of a comparison states which change it can detect, and when it will be decided."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfkit.stats.interval import location_interval
from perfkit.stats.planning import (
    decidable_margin,
    deciding_look,
    distance_to_margin,
    expected_half_width,
    launches_per_generation,
    minimum_detectable_effect,
)

LOOKS = (10, 15, 20, 26, 33, 42, 60)
ERROR = 0.01 / 42
ERRORS = dict.fromkeys(LOOKS, ERROR)


@pytest.mark.parametrize("launches", [8, 10, 26, 60])
def test_the_expected_half_width_is_what_normal_noise_gives(launches: int) -> None:
    series = np.random.default_rng(6).normal(0, 0.02, (2000, launches))
    widths = location_interval(series, [0] * launches, error=ERROR).half_width

    assert pytest.approx(widths.mean(), rel=0.05) == expected_half_width(0.02, launches, error=ERROR)


@pytest.mark.parametrize("launches", [10, 26, 60])
def test_the_minimum_detectable_effect_is_detected_as_often_as_promised(launches: int) -> None:
    effect = minimum_detectable_effect(0.015, launches, error=ERROR, margin=0.02, power=0.95)
    series = np.random.default_rng(7).normal(math.log1p(effect), 0.015, (4000, launches))

    interval = location_interval(series, [0] * launches, error=ERROR)

    share = float((interval.centre - interval.half_width > math.log1p(0.02)).mean())
    assert pytest.approx(0.94, abs=0.04) == share


def test_the_deciding_look_is_the_first_that_is_narrow_enough() -> None:
    look = deciding_look(0.0, 0.015, errors=ERRORS, margin=0.02, trimmed_from=10)

    assert 20 == look
    assert expected_half_width(0.015, 20, error=ERROR, trimmed_from=10) < math.log1p(0.02)
    assert expected_half_width(0.015, 15, error=ERROR, trimmed_from=10) > math.log1p(0.02)
    # What is not trimmed has more degrees of freedom.
    assert 15 == deciding_look(0.0, 0.015, errors=ERRORS, margin=0.02)


def test_a_ratio_on_the_margin_is_never_decided() -> None:
    assert None is deciding_look(math.log1p(0.02), 0.015, errors=ERRORS, margin=0.02)


def test_a_clear_slowdown_is_decided_sooner_than_a_slight_one() -> None:
    clear = deciding_look(math.log1p(0.10), 0.03, errors=ERRORS, margin=0.02)
    slight = deciding_look(math.log1p(0.04), 0.03, errors=ERRORS, margin=0.02)

    assert (10, 42) == (clear, slight)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_change_within_the_margin_is_decided_by_a_lower_threshold(sign: int) -> None:
    centre = math.log1p(sign * 0.02)
    look = deciding_look(centre, 0.015, errors=ERRORS, margin=0.02, threshold=0.005)

    assert look is not None
    distance = abs(centre - math.log1p(sign * 0.005))
    before = max((one for one in LOOKS if one < look), default=2)
    assert expected_half_width(0.015, look, error=ERROR) < distance
    assert expected_half_width(0.015, before, error=ERROR) > distance


def test_units_of_several_launches_need_more_of_them() -> None:
    look = deciding_look(0.0, 0.003, errors=ERRORS, margin=0.02, launches_per_unit=4.0)

    assert 20 == look
    assert 10 == deciding_look(0.0, 0.003, errors=ERRORS, margin=0.02)


def test_what_sixteen_launches_can_detect() -> None:
    half_width = 2.131450 * 0.01 / 4
    scatter = math.sqrt(0.0025**2 + half_width**2 / 30)

    effect = minimum_detectable_effect(0.01, 16, error=0.05, margin=0.02)

    assert pytest.approx(1.02 * math.exp(half_width + 1.644854 * scatter) - 1, rel=1e-6) == effect
    assert pytest.approx(1.02 * math.exp(half_width) - 1, rel=1e-6) == minimum_detectable_effect(
        0.01, 16, error=0.05, margin=0.02, power=0.5
    )


def test_what_scatters_widely_hides_slowdowns_of_many_times() -> None:
    half_width = 2.131450 * 2.0 / 4

    effect = minimum_detectable_effect(2.0, 16, error=0.05, margin=0.02, power=0.5)

    assert pytest.approx(1.02 * math.exp(half_width) - 1, rel=1e-6) == effect


@pytest.mark.parametrize(("sd", "infinite"), [(149.0, False), (149.92, True), (1e6, True)])
def test_what_no_number_can_reach_is_infinite(sd: float, *, infinite: bool) -> None:
    assert infinite == math.isinf(minimum_detectable_effect(sd, 3, error=0.05, margin=0.02, power=0.95))


@pytest.mark.parametrize("launches", [10, 26, 60])
def test_identical_code_is_confirmed_as_often_as_the_margin_promises(launches: int) -> None:
    margin = decidable_margin(0.015, launches, error=ERROR, power=0.9)
    series = np.random.default_rng(12).normal(0, 0.015, (4000, launches))

    interval = location_interval(series, [0] * launches, error=ERROR)

    share = float((abs(interval.centre) + interval.half_width < math.log1p(margin)).mean())
    assert pytest.approx(0.9, abs=0.04) == share


@pytest.mark.parametrize(
    ("launches", "generation_s", "launch_s", "most"),
    [
        # The root of what a generation costs over what a launch costs, and over the variance they share.
        (8, 16.0, 1.0, 20),
        (4, 16.0, 4.0, 20),
        (5, 16.0, 1.0, 5),
        # At least one, and whole ones.
        (1, 0.0, 1.0, 20),
        (1, 0.1, 1.0, 20),
        (3, 2.0, 1.0, 20),
        (3, 1.1, 0.7, 20),
        # Launches that cost nothing are made as often as is allowed.
        (20, 16.0, 0.0, 20),
    ],
)
def test_launches_of_a_generation_follow_from_what_each_costs(
    launches: int, generation_s: float, launch_s: float, most: int
) -> None:
    assert launches == launches_per_generation(
        generation_s=generation_s, launch_s=launch_s, shared_variance=0.25, most=most
    )


def test_an_interval_decides_up_to_the_nearer_margin() -> None:
    assert math.log1p(0.02) == distance_to_margin(0.0, 0.02)
    assert pytest.approx(math.log(1.02 / 1.01)) == distance_to_margin(math.log(1.01), 0.02)
    assert pytest.approx(math.log(0.99 / 0.98)) == distance_to_margin(math.log(0.99), 0.02)
    assert pytest.approx(math.log(1.10 / 1.02)) == distance_to_margin(math.log(1.10), 0.02)
    assert pytest.approx(math.log(0.98 / 0.90)) == distance_to_margin(math.log(0.90), 0.02)
    assert 0.0 == distance_to_margin(math.log1p(0.02), 0.02)


def test_nothing_is_faster_by_all_of_its_time() -> None:
    for margin in (1.0, 1.5):
        assert math.log1p(margin) == distance_to_margin(0.0, margin)
        assert pytest.approx(math.log(8 / (1 + margin))) == distance_to_margin(math.log(8), margin)
        assert distance_to_margin(-50.0, margin) > 50.0
