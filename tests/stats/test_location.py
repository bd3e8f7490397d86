"""The location of a launch follows from its paired rounds."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.stats.interval import location

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
