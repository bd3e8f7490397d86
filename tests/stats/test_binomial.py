"""The bounds of counted shares are exact."""

from __future__ import annotations

import pytest

from perfkit.stats.binomial import lower_bound, upper_bound


@pytest.mark.parametrize(("count", "of", "bound"), [(0, 100, 0.0295), (1, 100, 0.0466), (0, 20, 0.1391)])
def test_the_upper_bound_is_that_of_clopper_and_pearson(count: int, of: int, bound: float) -> None:
    """Tabled one-sided 95 % bounds come out."""
    assert bound == pytest.approx(upper_bound(count, of), abs=1e-4)


@pytest.mark.parametrize("confidence", [0.95, 0.4])
@pytest.mark.parametrize("count", [5, 18])
def test_the_bounds_mirror_each_other(count: int, confidence: float) -> None:
    """The lower bound of a share is one minus the upper bound of its opposite."""
    opposite = 1 - upper_bound(20 - count, 20, confidence=confidence)

    assert opposite == pytest.approx(lower_bound(count, 20, confidence=confidence))


def test_where_nothing_ran_nothing_is_known() -> None:
    """No trials leave the whole range open."""
    assert (0.0, 1.0) == (lower_bound(0, 0), upper_bound(0, 0))
