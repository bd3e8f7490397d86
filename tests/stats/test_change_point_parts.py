"""Steps of a trend, part by part: each figure against another way to come by it, each limit from both sides.

The likelihoods are computed here from the differences of runs that follow one another, in which a step is a
single one that is off, and the medians run by run.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from perfkit.model.history import Stretch
from perfkit.stats.change_points import FloatArray, Step, find_steps


def _figures(step: Step) -> tuple[float, float, float]:
    return step.ratio, step.low, step.high


def _noise(runs: int, *, seed: int, drift: float = 0.0) -> FloatArray:
    """Return noise of one percent without outliers, and the sum of a drift's own."""
    source = np.random.default_rng(seed)
    scatter = 0.01 * source.uniform(-1, 1, runs)
    return np.asarray(scatter + drift * np.cumsum(0.01 * source.uniform(-1, 1, runs)))


def _with_steps(logs: FloatArray, steps: dict[int, float]) -> FloatArray:
    for place, size in steps.items():
        logs[place:] += size
    return logs


def _stretch(values: FloatArray) -> tuple[float, float, int]:
    return float(np.mean(values)), math.sqrt(np.var(values, ddof=1)), len(values)


def _as_tuple(stretch: Stretch) -> tuple[float, float | None, int]:
    return stretch.mean, stretch.sd, stretch.runs


@pytest.mark.parametrize(
    "runs", [12, 13, 14, 15, 17, 18, 24, 30, 36, 49, 61, 99, 111, 150, 199, 201, 299, 300, 301, 450]
)
def test_a_clear_step_is_found_wherever_six_runs_are_on_either_side(runs: int) -> None:
    places = {6, 7, 8, 11, 12, runs // 3, runs // 2, runs - 12, runs - 7, runs - 6}
    for place in sorted(place for place in places if 6 <= place <= runs - 6):
        levels = np.exp(_with_steps(_noise(runs, seed=runs), {place: 0.3}))

        assert [place] == [step.place for step in find_steps(levels)]


@pytest.mark.parametrize("late", [False, True])
def test_five_runs_at_an_end_are_no_level(*, late: bool) -> None:
    for runs in (12, 18, 40, 60, 100):
        levels = np.exp(_with_steps(_noise(runs, seed=runs), {runs - 5 if late else 5: 0.3}))

        assert () == find_steps(levels)


@pytest.mark.parametrize(
    ("lasting", "found"),
    [
        ((20, 20), False),
        ((10, 10, 20), False),
        ((5, 5, 10, 20), False),
        ((20, 10, 10), False),
        ((10, 10, 10, 10), False),
        ((20, 5, 5, 10), False),
        ((5, 5, 10, 10, 10), False),
        ((10, 10, 5, 5, 10), False),
        ((5, 5, 10, 5, 5, 10), True),
        ((5, 5, 10, 1, 9, 10), True),
        ((5, 14, 1, 5, 5, 10), True),
        ((5, 5, 10, 5, 14, 1), True),
        ((1, 9, 10, 5, 5, 10), True),
    ],
)
def test_three_sessions_on_either_side_make_a_step_the_codes(
    lasting: tuple[int, ...], *, found: bool
) -> None:
    sessions = [number for number, runs in enumerate(lasting) for _ in range(runs)]
    levels = np.exp(_with_steps(_noise(40, seed=1), {20: 0.3}))

    assert found == bool(find_steps(levels, sessions=sessions))


@pytest.mark.parametrize(("before", "after"), [(6, 6), (5, 6), (6, 5), (5, 5), (7, 9)])
def test_a_session_of_six_runs_on_either_side_has_not_made_a_step(before: int, after: int) -> None:
    sessions = ["a"] * 12 + ["b"] * before + ["c"] * (22 - before) + ["b"] * after + ["d"] * (22 - after)
    place = 12 + before
    levels = np.exp(_with_steps(_noise(len(sessions), seed=1), {place: 0.3}))

    steps = find_steps(levels, sessions=["a"] * place + sessions[place:])
    assert not steps

    turns = ["b"] * before + ["c"] * (30 - before) + ["b"] * after + ["d"] * (30 - after)
    levels = np.exp(_with_steps(_noise(60, seed=1), {30: 0.3}))

    assert (min(before, after) >= 6) == bool(find_steps(levels, sessions=turns))


def test_any_value_that_three_runs_repeat_is_a_level_of_counts() -> None:
    counts = [5.0] * 3 + [6.0, 6.0, 7.0] + [8.0] * 4 + [2.0] + [8.0] * 3 + [4.0] * 5

    first, second = find_steps(counts, exact=True)

    assert (6, 14) == (first.place, second.place)
    assert (8 / 5,) * 3 == _figures(first)
    assert (4 / 8,) * 3 == _figures(second)
    assert (0.0, 0.0) == (first.chance, second.chance)
    assert pytest.approx(_stretch(np.array(counts[:6]))) == _as_tuple(first.before)
    assert (
        pytest.approx(_stretch(np.array(counts[6:14]))) == _as_tuple(first.after) == _as_tuple(second.before)
    )
    assert pytest.approx(_stretch(np.array(counts[14:]))) == _as_tuple(second.after)


@pytest.mark.parametrize(
    ("counts", "places"),
    [
        ([1, 1, 1, 2, 2, 2], [3]),
        ([1, 1, 2, 2, 2], []),
        ([1, 1, 1, 2, 2], []),
        ([1, 1, 1, 2, 2, 1, 1, 1], []),
        ([1, 1, 1, 2, 2, 3, 3, 3], [5]),
        ([3, 3, 3, 0, 0, 0], [3]),
        ([0, 0, 0, 3, 3, 3], [3]),
        # Half of these repeat, which is not most.
        ([1, 1, 1, 2, 3, 4, 5, 5, 5], []),
        ([1, 1, 1, 2, 3, 4, 5, 5, 5, 5], [6]),
        ([9, 9, 9, 8, 7, 6, 5, 5, 5], []),
    ],
)
def test_a_step_of_counts_lies_between_two_levels(counts: list[int], places: list[int]) -> None:
    steps = find_steps(counts, exact=True)

    assert places == [step.place for step in steps]
    for step in steps:
        assert (step.place, len(counts) - step.place) == (step.before.runs, step.after.runs)


def test_a_count_may_fall_to_zero() -> None:
    fall, rise = find_steps([4, 4, 4, 0, 0, 0, 1, 1, 1], exact=True)

    assert (0.0,) * 3 == _figures(fall)
    assert (math.inf,) * 3 == _figures(rise)


def test_counts_that_scatter_about_zero_have_no_step() -> None:
    counts = [0, 1, 2, 1, 0, 3, 1, 2, 10, 11, 12, 10, 11, 13, 12, 11]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert () == find_steps(counts, exact=True)
        assert () == find_steps([7], exact=True)
        assert () == find_steps([], exact=True)


@pytest.mark.parametrize("level", [-1.0, math.nan, math.inf, -math.inf])
def test_a_count_is_a_finite_number_not_below_zero(level: float) -> None:
    with pytest.raises(ValueError, match="not a finite number above zero"):
        find_steps([level] * 20, exact=True)


def _with_a_small_step(runs: int, place: int) -> FloatArray:
    """Return logs in which a step is just clear where it has fifty runs on one side and 150 on the other."""
    repeating = 0.01 * np.random.default_rng(1).permutation(np.linspace(-1, 1, 50))
    return _with_steps(np.tile(repeating, runs // 50), {place: 0.008})


@pytest.mark.parametrize("place", [450, 600, 750])
@pytest.mark.parametrize("apart", [-140, -60, 60, 140])
@pytest.mark.parametrize("beyond", [0, 30, 60, 90])
def test_a_small_step_is_found_beside_a_large_one(place: int, apart: int, beyond: int) -> None:
    logs = _with_steps(np.roll(_with_a_small_step(1200, place), beyond), {place + beyond + apart: 1.0})
    logs[:beyond] -= 0.008

    small, large = sorted(find_steps(np.exp(logs)), key=lambda step: step.ratio)

    assert place + beyond + apart == large.place
    assert abs(small.place - place - beyond) <= 1
