"""The plan of a comparison says which change it can detect, and when it will be decided."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfkit.stats.interval import location_interval
from perfkit.stats.planning import deciding_look, expected_half_width, minimum_detectable_effect

LOOKS = (10, 15, 20, 26, 33, 42, 60)
ERROR = 0.01 / 42
ERRORS = dict.fromkeys(LOOKS, ERROR)


@pytest.mark.parametrize("launches", [8, 10, 26, 60])
def test_the_expected_half_width_is_what_normal_noise_gives(launches: int) -> None:
    """Simulated intervals are on average as wide as planned, to a twentieth."""
    series = np.random.default_rng(6).normal(0, 0.02, (2000, launches))
    widths = location_interval(series, [0] * launches, error=ERROR).half_width

    assert pytest.approx(widths.mean(), rel=0.05) == expected_half_width(0.02, launches, error=ERROR)


@pytest.mark.parametrize("launches", [10, 26, 60])
def test_the_minimum_detectable_effect_is_detected_as_often_as_it_says(launches: int) -> None:
    """At that effect, 90 % of simulated comparisons and no more than 98 % lie above the margin."""
    effect = minimum_detectable_effect(0.015, launches, error=ERROR, margin=0.02, power=0.95)
    series = np.random.default_rng(7).normal(math.log1p(effect), 0.015, (4000, launches))

    interval = location_interval(series, [0] * launches, error=ERROR)

    share = float((interval.centre - interval.half_width > math.log1p(0.02)).mean())
    assert pytest.approx(0.94, abs=0.04) == share


def test_what_can_be_detected_shrinks_with_launches_and_grows_with_noise() -> None:
    """More launches see smaller effects, more scatter hides them, and none lies within the margin."""
    effects = [minimum_detectable_effect(0.01, look, error=ERROR, margin=0.02) for look in LOOKS]

    assert sorted(effects, reverse=True) == effects
    assert effects[-1] > 0.02
    assert minimum_detectable_effect(0.02, 8, error=ERROR, margin=0.02) > effects[0]


def test_the_deciding_look_is_the_first_that_is_narrow_enough() -> None:
    """The look before it would still reach over the margin."""
    look = deciding_look(0.0, 0.015, errors=ERRORS, margin=0.02, trimmed_from=10)

    assert 20 == look
    assert expected_half_width(0.015, 20, error=ERROR, trimmed_from=10) < math.log1p(0.02)
    assert expected_half_width(0.015, 15, error=ERROR, trimmed_from=10) > math.log1p(0.02)
    # What is not trimmed has more degrees of freedom.
    assert 15 == deciding_look(0.0, 0.015, errors=ERRORS, margin=0.02)


def test_a_ratio_on_the_margin_is_never_decided() -> None:
    """No interval around the margin lies to one side of it."""
    assert None is deciding_look(math.log1p(0.02), 0.015, errors=ERRORS, margin=0.02)


def test_a_clear_slowdown_is_decided_sooner_than_a_slight_one() -> None:
    """+10 % needs fewer launches than +4 %."""
    clear = deciding_look(math.log1p(0.10), 0.03, errors=ERRORS, margin=0.02)
    slight = deciding_look(math.log1p(0.04), 0.03, errors=ERRORS, margin=0.02)

    assert (10, 42) == (clear, slight)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_change_within_the_margin_is_decided_by_a_lower_threshold(sign: int) -> None:
    """A change as large as the margin is beyond a threshold of 0.5 %, at the look that is narrow enough."""
    centre = math.log1p(sign * 0.02)
    look = deciding_look(centre, 0.015, errors=ERRORS, margin=0.02, threshold=0.005)

    assert look is not None
    distance = abs(centre - math.log1p(sign * 0.005))
    before = max((one for one in LOOKS if one < look), default=2)
    assert expected_half_width(0.015, look, error=ERROR) < distance
    assert expected_half_width(0.015, before, error=ERROR) > distance


def test_identical_code_is_decided_alike_whatever_the_threshold() -> None:
    """Nothing is below a threshold that is not within the margin."""
    looks = [deciding_look(0.0, 0.015, errors=ERRORS, margin=0.02, threshold=one) for one in (None, 0.005)]

    assert looks[0] == looks[1] is not None


def test_units_of_several_launches_need_more_of_them() -> None:
    """Where preloaders of four launches are the unit, their number decides."""
    look = deciding_look(0.0, 0.003, errors=ERRORS, margin=0.02, launches_per_unit=4.0)

    assert 20 == look
    assert 10 == deciding_look(0.0, 0.003, errors=ERRORS, margin=0.02)
