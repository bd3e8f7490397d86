"""Where a ratio passes through one is found on logarithmic scales."""

from __future__ import annotations

import pytest

from perfkit.stats.crossing import crossing


@pytest.mark.parametrize(
    ("size", "low", "high"),
    [
        # Ratios as far from one on both sides cross halfway between 10 and 1000.
        (100.0, (10.0, 2.0), (1000.0, 0.5)),
        (100.0, (10.0, 0.5), (1000.0, 2.0)),
        # Four is twice as far from one as a half: two thirds of the way.
        (40.0, (10.0, 4.0), (80.0, 0.5)),
        (20.0, (10.0, 0.5), (80.0, 4.0)),
        (0.25, (0.125, 0.5), (0.5, 2.0)),
    ],
)
def test_the_line_between_two_points_crosses_one(
    size: float, low: tuple[float, float], high: tuple[float, float]
) -> None:
    """Straight on logarithmic scales, it crosses where its shares say; either point may come first."""
    assert pytest.approx(size) == crossing(low, high)
    assert pytest.approx(size) == crossing(high, low)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((10.0, 2.0), (1000.0, 3.0)),
        ((10.0, 0.2), (1000.0, 0.3)),
        # A ratio of one itself is on no side.
        ((10.0, 1.0), (1000.0, 3.0)),
        ((10.0, 0.5), (1000.0, 1.0)),
        ((0.0, 2.0), (1000.0, 0.5)),
        ((10.0, 2.0), (0.0, 0.5)),
        ((-1.0, 2.0), (1000.0, 0.5)),
        ((10.0, 2.0), (-1.0, 0.5)),
    ],
)
def test_where_nothing_crosses_there_is_no_size(low: tuple[float, float], high: tuple[float, float]) -> None:
    """Both on one side, or a size that has no logarithm."""
    assert None is crossing(low, high)


def test_sizes_and_ratios_near_one_are_like_any_others() -> None:
    """A size of one has the logarithm zero, and is a size."""
    assert pytest.approx(1.0) == crossing((0.5, 2.0), (2.0, 0.5))
    assert pytest.approx(2.0) == crossing((1.0, 2.0), (4.0, 0.5))
