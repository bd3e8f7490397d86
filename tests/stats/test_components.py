"""Variance is divided into its components: preloaders, launches and rounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfkit.stats.components import Components, shared_variance, variance_components


@pytest.mark.parametrize("between", [0.0, 0.01, 0.05])
def test_simulated_levels_are_found_again(between: float) -> None:
    """Deviations between preloaders and between launches come out as they were put in."""
    source = np.random.default_rng(11)
    levels = source.normal(0, between, 500) if between else np.zeros(500)
    launches: dict[object, list[float]] = {
        number: list(level + source.normal(0, 0.02, 4)) for number, level in enumerate(levels)
    }
    rounds = [list(source.normal(0, 0.07, 6)) for _ in range(500)]

    found = variance_components(launches, rounds)

    assert pytest.approx(between, abs=0.004) == found.preloaders
    assert pytest.approx(0.02, rel=0.1) == found.launches
    assert pytest.approx(0.07, rel=0.1) == found.rounds


def test_unequal_groups_count_by_their_size() -> None:
    """Groups of one to six launches give the same answer as equal ones."""
    source = np.random.default_rng(12)
    launches: dict[object, list[float]] = {
        number: list(source.normal(0, 0.03) + source.normal(0, 0.01, 1 + number % 6))
        for number in range(2000)
    }

    found = variance_components(launches, [])

    assert pytest.approx(0.03, rel=0.1) == found.preloaders
    assert pytest.approx(0.01, rel=0.1) == found.launches


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
    """A level with one member has no variance, rather than none."""
    assert expected == variance_components(launches, rounds)


def test_what_launches_of_a_group_share_is_told_in_parts_of_their_own_variance() -> None:
    """Groups whose levels scatter half as much as their launches share a quarter of their variance."""
    source = np.random.default_rng(13)
    groups = [list(source.normal(0, 0.01) + source.normal(0, 0.02, 6)) for _ in range(3000)]

    assert pytest.approx(0.25, abs=0.03) == shared_variance(groups)


@pytest.mark.parametrize(
    ("groups", "shared"),
    [([[0.1, 0.2]], 0.0), ([[0.1], [0.2]], 0.0), ([[0.1, 0.1], [0.1, 0.1]], 0.0)],
)
def test_nothing_is_shared_where_nothing_shows_it(groups: list[list[float]], shared: float) -> None:
    """One group, groups of one launch, or launches that all agree."""
    assert shared == shared_variance(groups)


def test_groups_that_agree_within_and_differ_share_all() -> None:
    """There is no variance of launches to compare with."""
    assert math.inf == shared_variance([[0.1, 0.1], [0.2, 0.2]])


def test_two_unequal_groups_are_divided_by_hand() -> None:
    """Two and four launches: squares of 22 within on 4 degrees, 196/3 between on one, and a size of 8/3."""
    groups = [[0.0, 2.0], [5.0, 7.0, 9.0, 11.0]]
    between = (196 / 3 - 22 / 4) / (8 / 3)

    found = variance_components(dict(enumerate(groups)), groups)

    assert pytest.approx(math.sqrt(between)) == found.preloaders
    assert pytest.approx(math.sqrt(22 / 4)) == found.launches == found.rounds
    assert pytest.approx(between / (22 / 4)) == shared_variance(groups)
