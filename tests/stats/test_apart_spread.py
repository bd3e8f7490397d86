"""Differences between samples measured apart have a spread, an interval, and a need that would decide."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfkit.stats.apart import Spread, half_width_apart, occasions_to_decide, pooled_spread

ERROR = 0.01


def test_spread_is_pooled_within_samples_only() -> None:
    """How far samples lie from one another says nothing of the spread within them."""
    near, far = [[1.0, 3.0], [2.0, 4.0, 6.0]], [[1.0, 3.0], [102.0, 104.0, 106.0]]

    found = pooled_spread(near)

    assert found == pooled_spread(far)
    assert found is not None
    assert pytest.approx(math.sqrt((2 + 8) / 3)) == found.sd
    assert 3 == found.degrees


@pytest.mark.parametrize("samples", [[], [[1.0]], [[1.0], [2.0]]])
def test_without_a_repetition_there_is_no_spread(samples: list[list[float]]) -> None:
    """One value of each sample cannot say how far two would lie apart."""
    assert pooled_spread(samples) is None


def test_the_interval_holds_as_often_as_it_says() -> None:
    """Of 20,000 differences of the same code, 90 % intervals miss between 9 and 11 %."""
    source = np.random.default_rng(3)
    missed = 0
    for base, head in source.normal(0, 0.03, (20_000, 2, 3)):
        spread = pooled_spread([list(base), list(head)])
        assert spread is not None
        missed += abs(head.mean() - base.mean()) > half_width_apart(spread, (3, 3), error=0.1)

    assert 0.09 < missed / 20_000 < 0.11


def test_the_occasions_to_decide_do_decide() -> None:
    """With as many more the interval clears the margin, with one fewer it does not."""
    spread = Spread(sd=0.01, degrees=4)

    more = occasions_to_decide(0.0, spread, (2, 2), error=ERROR, margin=0.02)

    assert more is not None
    widths = [
        half_width_apart(Spread(sd=0.01, degrees=4 + 2 * extra), (2 + extra, 2 + extra), error=ERROR)
        for extra in (more - 1, more)
    ]
    assert widths[0] > -math.log1p(-0.02) > widths[1] or widths[0] > math.log1p(0.02) > widths[1]


def test_samples_without_a_repetition_add_nothing_to_the_spread() -> None:
    """Neither does one without a value."""
    assert Spread(sd=math.sqrt(2), degrees=1) == pooled_spread([[], [7.0], [1.0, 3.0], [9.0]])


@pytest.mark.parametrize("more", [1, 2, 3, 7, 100])
def test_occasions_are_added_to_each_sample_until_they_decide(more: int) -> None:
    """Each brings a degree of freedom; a hundred are the most, and where one fewer would do that is told."""

    def told(sd: float) -> int | None:
        return occasions_to_decide(0.0, Spread(sd=sd, degrees=5), (2, 5), error=ERROR, margin=0.02)

    width = half_width_apart(Spread(sd=1.0, degrees=5 + 2 * more), (2 + more, 5 + more), error=ERROR)
    enough = math.log1p(0.02) / width

    assert more == told(0.9999 * enough)
    assert (more + 1 if more < 100 else None) == told(1.0001 * enough)


def test_what_is_decided_already_needs_an_occasion_more() -> None:
    """None is never said to be enough: who asks has not decided."""
    spread = Spread(sd=1e-9, degrees=4)

    assert 1 == occasions_to_decide(0.0, spread, (2, 2), error=ERROR, margin=0.02)


def test_what_lies_on_the_margin_is_never_decided() -> None:
    """No number of occasions separates a ratio from a margin it equals."""
    spread = Spread(sd=0.01, degrees=4)

    assert occasions_to_decide(math.log1p(0.02), spread, (2, 2), error=ERROR, margin=0.02) is None
