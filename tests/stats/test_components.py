"""Variance is divided into its components: fork servers, launches and rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfkit.model.calibration import Components
from perfkit.stats.planning import (
    Spread,
    pooled_spread,
    sessions_to_decide,
    shared_variance,
    unpaired_half_width,
    variance_components,
)


@pytest.mark.parametrize(
    ("launches", "rounds", "expected"),
    [
        ({}, [], Components(preloaders=None, launches=None, rounds=None)),
        ({1: [0.1]}, [[0.1]], Components(preloaders=None, launches=None, rounds=None)),
        ({1: [0.1, 0.1]}, [[0.2, 0.2]], Components(preloaders=None, launches=0.0, rounds=0.0)),
    ],
)
def test_what_was_not_replicated_is_not_known(
    launches: dict[object, list[float]], rounds: list[list[float]], expected: Components
) -> None:
    assert expected == variance_components(launches, rounds)


@pytest.mark.parametrize(
    ("groups", "shared"), [([[0.1, 0.2]], 0.0), ([[0.1], [0.2]], 0.0), ([[0.1, 0.1], [0.1, 0.1]], 0.0)]
)
def test_nothing_is_shared_where_nothing_shows_it(groups: list[list[float]], shared: float) -> None:
    assert shared == shared_variance(groups)


def test_groups_that_agree_within_and_differ_share_all() -> None:
    assert math.inf == shared_variance([[0.1, 0.1], [0.2, 0.2]])


def test_two_unequal_groups_are_divided_by_hand() -> None:
    groups = [[0.0, 2.0], [5.0, 7.0, 9.0, 11.0]]
    between = (196 / 3 - 22 / 4) / (8 / 3)

    found = variance_components(dict(enumerate(groups)), groups)

    assert pytest.approx(math.sqrt(between)) == found.preloaders
    assert pytest.approx(math.sqrt(22 / 4)) == found.launches == found.rounds
    assert pytest.approx(between / (22 / 4)) == shared_variance(groups)


ERROR = 0.01


def test_spread_is_pooled_within_samples_only() -> None:
    near, far = [[1.0, 3.0], [2.0, 4.0, 6.0], [7.0], []], [[1.0, 3.0], [102.0, 104.0, 106.0]]

    found = pooled_spread(near)

    assert found == pooled_spread(far)
    assert found is not None
    assert pytest.approx(math.sqrt((2 + 8) / 3)) == found.sd
    assert 3 == found.degrees


@pytest.mark.parametrize("samples", [[], [[1.0]], [[1.0], [2.0]]])
def test_without_a_repetition_there_is_no_spread(samples: list[list[float]]) -> None:
    assert pooled_spread(samples) is None


def test_the_interval_holds_as_often_as_promised() -> None:
    source = np.random.default_rng(3)
    missed = 0
    for base, head in source.normal(0, 0.03, (4_000, 2, 3)):
        spread = pooled_spread([list(base), list(head)])
        assert spread is not None
        missed += abs(head.mean() - base.mean()) > unpaired_half_width(spread, (3, 3), error=0.1)

    assert 0.09 < missed / 4_000 < 0.11


@pytest.mark.parametrize("more", [1, 2, 3, 7, 100])
def test_sessions_are_added_to_each_sample_until_they_decide(more: int) -> None:
    def shown(sd: float) -> int | None:
        return sessions_to_decide(0.0, Spread(sd=sd, degrees=5), (2, 5), error=ERROR, margin=0.02)

    width = unpaired_half_width(Spread(sd=1.0, degrees=5 + 2 * more), (2 + more, 5 + more), error=ERROR)
    enough = math.log1p(0.02) / width

    assert more == shown(0.9999 * enough)
    assert (more + 1 if more < 100 else None) == shown(1.0001 * enough)


def test_what_is_decided_already_needs_an_session_more() -> None:
    spread = Spread(sd=1e-9, degrees=4)

    assert 1 == sessions_to_decide(0.0, spread, (2, 2), error=ERROR, margin=0.02)


def test_what_lies_on_the_margin_is_never_decided() -> None:
    spread = Spread(sd=0.01, degrees=4)

    assert sessions_to_decide(math.log1p(0.02), spread, (2, 2), error=ERROR, margin=0.02) is None
