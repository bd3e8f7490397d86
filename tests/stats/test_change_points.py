"""Change points of a trend: how often one is found where there is none, and where they are."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.model.history import Stretch
from perfkit.stats.change_points import (
    SHORTEST,
    FloatArray,
    Sought,
    Step,
    find_all_steps,
    find_steps,
    likely_step,
    two_levels,
    weekly,
)
from perfkit.stats.change_points import to_and_fro as habit
from perfkit.stats.interval import lower_bound

RUNS = 100
TIGERBEETLE = Path(__file__).parents[3] / "shared/data/tigerbeetle.json"
Noise = Callable[[np.random.Generator], FloatArray]


def _normal(source: np.random.Generator) -> FloatArray:
    return source.standard_normal(RUNS)


def _heavy(source: np.random.Generator) -> FloatArray:
    return source.standard_t(3, RUNS)


def _skewed(source: np.random.Generator) -> FloatArray:
    return source.lognormal(0, 1, RUNS)


def _correlated(source: np.random.Generator) -> FloatArray:
    drawn, level = source.standard_normal(RUNS) * math.sqrt(1 - 0.8**2), [source.standard_normal()]
    for value in drawn:
        level.append(0.8 * level[-1] + value)
    return np.array(level[1:])


def _wandering(source: np.random.Generator) -> FloatArray:
    return source.standard_normal(RUNS) + 0.1 * np.cumsum(source.standard_normal(RUNS))


def _walk(source: np.random.Generator) -> FloatArray:
    return np.cumsum(source.standard_normal(RUNS))


def _bursts(source: np.random.Generator) -> FloatArray:
    noise = source.standard_normal(RUNS)
    for start in source.integers(RUNS, size=source.poisson(3)):
        noise[start : start + source.integers(1, 4)] += source.exponential(10)
    return noise


def _trend(
    noise: Noise = _normal, *, seed: int = 0, sd: float = 0.01, steps: dict[int, float] | None = None
) -> FloatArray:
    """Return levels about 3 ms with noise of an sd, multiplied by each ratio from its place on."""
    levels = 0.003 * np.exp(sd * noise(np.random.default_rng(seed)))
    for place, ratio in (steps or {}).items():
        levels[place:] *= ratio
    return np.asarray(levels)


def _two_steps(last: int) -> list[float]:
    """Return a slowdown of two fifths with an outlier after it, and ``last`` runs of a later improvement."""
    slower = [508.0, 522, 507, 507, 1094, 507, 507, 507, 517, 511, 510]
    return [365.0, 363, 360, 360, 360, 360, *slower, *[324.0] * last]


@pytest.mark.parametrize(("last", "places"), [(4, [6]), (5, [6]), (6, [6, 17]), (7, [6, 17]), (9, [6, 17])])
def test_two_large_steps_of_a_short_trend_are_found(last: int, places: list[int]) -> None:
    assert places == [step.place for step in find_steps(_two_steps(last))]


@pytest.mark.parametrize("runs", range(18, 25))
def test_steps_before_and_after_the_middle_of_a_short_trend_are_found(runs: int) -> None:
    steps = {6: 1.4, runs - 6: 1 / 1.4}

    found = find_steps(_trend(sd=0.005, steps=steps)[:runs])

    assert [*steps] == [step.place for step in found]


def _places(levels: FloatArray, *, exact: bool = False) -> list[int]:
    return [step.place for step in find_steps(levels, exact=exact)]


@pytest.mark.parametrize("noise", [_normal, _heavy, _skewed, _correlated, _wandering, _walk, _bursts])
def test_noise_has_hardly_ever_a_step(noise: Noise) -> None:
    alarms = sum(bool(_places(_trend(noise, seed=seed))) for seed in range(300))

    assert lower_bound(alarms, 300, confidence=0.999) <= 0.01


@pytest.mark.parametrize("noise", [_normal, _heavy, _bursts])
def test_a_step_of_five_deviations_is_found_where_it_is(noise: Noise) -> None:
    found = [_places(_trend(noise, seed=seed, steps={10 + seed % 81: 1.05})) for seed in range(100)]

    right = sum(
        len(places) == 1 and abs(places[0] - 10 - seed % 81) <= 1 for seed, places in enumerate(found)
    )
    assert right >= 95


def test_many_trends_together_have_the_steps_of_each_alone() -> None:
    trends = [
        Sought(_trend(seed=seed, steps={length // 2: 1.1})[:length], sessions=[*range(length)])
        for seed, length in enumerate([100, 8, 100, 31, 60, 13, 100])
    ]
    trends += [Sought([4, 4, 4, 5, 5, 5], exact=True), Sought([]), Sought(_trend(_bursts))]

    alone = [find_steps(one.levels, exact=one.exact, sessions=one.sessions) for one in trends]

    assert alone == find_all_steps(trends)
    assert sum(map(bool, alone)) >= 5
    assert [] == find_all_steps([])


def test_a_step_has_its_size_and_the_runs_on_either_side() -> None:
    levels = _trend(steps={40: 1.05})

    (step,) = find_steps(levels)

    assert step.place == 40
    assert step.low < 1.05 < step.high
    assert step.high / step.low < 1.02
    assert (40, 60) == (step.before.runs, step.after.runs)
    assert pytest.approx(levels[:40].mean()) == step.before.mean
    assert pytest.approx(levels[40:].std(ddof=1), rel=0.01) == step.after.sd
    levels[[50, 70, 71]] *= 1.5
    (step,) = find_steps(levels)
    assert pytest.approx(1.05, abs=0.01) == step.ratio
    assert pytest.approx(step.ratio, abs=0.005) == step.after.mean / step.before.mean
    assert step.chance < 1e-6


def test_the_interval_holds_the_true_ratio() -> None:
    found = [find_steps(_trend(_wandering, seed=seed, steps={50: 1.06})) for seed in range(200)]

    steps = [found_steps[0] for found_steps in found if len(found_steps) == 1]
    held = sum(step.low <= 1.06 <= step.high for step in steps)
    assert len(steps) > 150
    assert held / len(steps) >= 0.9


@pytest.mark.parametrize("place", [0, 1, 50, 95, 98, 99])
@pytest.mark.parametrize("size", [1.5, 20.0, 0.3])
def test_an_outlier_is_no_step(place: int, size: float) -> None:
    levels = _trend()
    levels[place] *= size

    assert [] == _places(levels)


def test_a_burst_at_the_end_is_no_step_until_it_lasts() -> None:
    assert [] == _places(_trend(steps={95: 1.3}))
    assert [92] == _places(_trend(steps={92: 1.3}))


def test_a_slow_rise_is_no_step() -> None:
    assert [] == _places(_trend() * np.linspace(1, 1.05, RUNS))


@pytest.mark.parametrize("bend", [lambda part: part, lambda part: part**2, lambda part: max(part - 0.5, 0.0)])
def test_a_step_on_a_slope_is_found_and_a_bend_is_none(bend: Callable[[float], float]) -> None:
    rise = 0.2 * np.array([bend(run / 60) for run in range(60)])
    noise = 0.003 * np.random.default_rng(5).standard_normal((20, 60))
    step = 0.04 * (np.arange(60) >= 40)

    assert not any(_places(np.exp(rise + one)) for one in noise)
    assert sum(_places(np.exp(rise + one + step)) == [40] for one in noise) >= 18


def test_a_level_that_keeps_coming_back_has_no_step_until_one_lasts() -> None:
    to_and_fro = np.repeat([0.0, 0.1] * 5, 20) + 0.01 * np.random.default_rng(1).standard_normal(200)
    lasting = np.where(np.arange(200) >= 180, 0.3, 0.0)

    assert len(_places(np.exp(to_and_fro[:100]))) == 4
    assert _places(np.exp(to_and_fro)) == []
    whole, part = habit([np.exp(to_and_fro), np.exp(to_and_fro[:100])])
    changes, ratio = whole or (0, 0.0)
    assert changes == 9
    assert abs(ratio - 1.1) < 0.02
    assert part is None
    assert _places(np.exp(to_and_fro + lasting)) == [180]


def test_three_runs_after_five_deviations_are_a_likely_step_and_outliers_are_none() -> None:
    found = [likely_step(_trend(seed=seed, steps={97: 1.05})[60:]) for seed in range(100)]
    noise = [_trend(_heavy, seed=seed)[60:] for seed in range(100)]

    assert sum(one is not None and abs(one[0] - 37) <= 1 and 1.03 < one[1] < 1.08 for one in found) >= 85
    assert sum(likely_step(one) is not None for one in noise) <= 1
    step = likely_step(_trend(steps={98: 1.3})[60:])
    assert step is None or not step.probable
    assert likely_step(_trend()[:8]) is None


def test_patterns_are_found_by_what_keeps_coming_back() -> None:
    noise = [_trend(seed=seed)[:30] for seed in range(40)]
    stepped = [_trend(seed=seed, steps={15: 1.1})[:30] for seed in range(40)]
    days = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number) for number in range(30)]
    tuesdays = np.array([1.1 if day.weekday() == 1 else 1.0 for day in days])
    coin = np.random.default_rng(2).choice((1.0, 1.1), 30)

    assert not any(two_levels(one) or weekly(one, days) for one in (*noise, *stepped))
    assert sum((weekly(one * tuesdays, days) or ((),))[0] == (1,) for one in noise) >= 35
    assert weekly(noise[0] * tuesdays, days[:1] * 30) is None
    assert all(two_levels(one * coin) is not None for one in noise[:20])


def test_few_runs_have_no_step() -> None:
    levels = np.array([1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 2.0, 2.01, 1.99, 2.0, 2.01, 1.99])

    assert 2 * SHORTEST == len(levels)
    assert [6] == _places(levels)
    assert [] == _places(levels[1:])
    assert [] == _places(levels[:1])
    assert [] == _places(levels[:0])


def test_a_constant_trend_with_a_step_has_one() -> None:
    (step,) = find_steps(np.where(np.arange(RUNS) < 50, 0.003, 0.0033))

    assert 50 == step.place
    assert pytest.approx(1.1) == step.ratio
    assert all(math.isfinite(figure) for figure in (step.low, step.high, step.chance))


def test_a_count_that_never_repeats_is_judged_like_a_time() -> None:
    levels = _trend(steps={50: 1.05})

    assert find_steps(levels) == find_steps(levels, exact=True)


def test_a_step_between_two_sessions_needs_three_on_either_side() -> None:
    levels = _trend(steps={50: 1.05})

    assert () == find_steps(levels, sessions=[run // 50 for run in range(RUNS)])
    assert [50] == [step.place for step in find_steps(levels, sessions=["one hour"] * RUNS)]
    assert [50] == [step.place for step in find_steps(levels, sessions=[run // 10 for run in range(RUNS)])]


@pytest.mark.parametrize("apart", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("runs", [(50, 50), (95, 5), (92, 8)])
def test_a_step_beside_the_end_of_an_session_is_none(runs: tuple[int, int], apart: float) -> None:
    source = np.random.default_rng(1)
    hours = [0] * runs[0] + [1] * runs[1]
    series = 0.01 * source.standard_normal((60, RUNS)) + 0.01 * apart * np.array(hours)

    found = [find_steps(np.exp(one), sessions=hours) for one in series]

    assert 0 == sum(map(bool, found))


def test_a_step_some_runs_into_an_session_is_found() -> None:
    hours = [run // 50 for run in range(RUNS)]

    (step,) = find_steps(_trend(steps={58: 1.05}), sessions=hours)

    assert 58 == step.place


@pytest.mark.parametrize("levels", [[1.0, math.nan], [1.0, 0.0], [1.0, -1.0], [1.0, math.inf]])
def test_a_level_that_is_none_is_refused(levels: list[float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        find_steps(levels)


@pytest.mark.parametrize("sessions", [[], ["a"], ["a"] * 3])
def test_sessions_are_one_for_each_run(sessions: list[str]) -> None:
    message = f"expected a session for each of 2 runs, found {len(sessions)}"
    with pytest.raises(ValueError, match=message):
        find_steps([1.0, 2.0], sessions=sessions)


@settings(max_examples=25, deadline=None)
@given(
    scale=st.floats(1e-9, 1e9),
    seed=st.integers(0, 1000),
    place=st.integers(10, 90),
    ratio=st.sampled_from([0.9, 1.03, 1.2]),
)
def test_a_unit_changes_nothing_and_a_mirror_mirrors(
    scale: float, seed: int, place: int, ratio: float
) -> None:
    levels = _trend(_heavy, seed=seed, steps={place: ratio})

    steps, scaled, mirrored = find_steps(levels), find_steps(scale * levels), find_steps(levels[::-1])

    assert [step.place for step in steps] == [step.place for step in scaled]
    assert [RUNS - step.place for step in steps] == [step.place for step in mirrored[::-1]]
    assert pytest.approx([step.ratio for step in steps]) == [step.ratio for step in scaled]
    assert pytest.approx([step.ratio for step in steps]) == [1 / step.ratio for step in mirrored[::-1]]


@settings(max_examples=50, deadline=None)
@given(
    levels=st.lists(st.one_of(st.floats(1e-12, 1e12), st.sampled_from([1.0, 2.0])), min_size=0, max_size=150),
    exact=st.booleans(),
)
def test_no_figure_is_ever_undefined(levels: list[float], *, exact: bool) -> None:
    for step in find_steps(levels, exact=exact):
        assert 0 < step.place < len(levels)
        assert 0 <= step.chance <= 0.0100001
        assert step.low <= step.ratio <= step.high
        assert not math.isnan(
            step.before.mean + step.after.mean + (step.before.sd or 0) + (step.after.sd or 0)
        )


def test_a_long_trend_has_its_steps_only() -> None:
    source = np.random.default_rng(3)
    levels = np.exp(0.01 * source.standard_t(3, 5000))
    for place in (500, 3000, 3040, 4985):
        levels[place:] *= 1.05

    found = _places(levels)

    assert {500, 3000, 3040, 4985} <= {near for place in found for near in range(place - 1, place + 2)}
    assert len(found) <= 5


@pytest.mark.skipif(
    not TIGERBEETLE.exists(), reason="the series of tigerbeetle is not beside this repository"
)
def test_a_real_series_has_its_steps_and_not_its_outlier() -> None:
    values = json.loads(TIGERBEETLE.read_text())["values"]

    assert [15, 61, 71, 95] == _places(np.array(values, dtype=float))


def test_clear_steps_are_where_another_detector_has_them() -> None:
    ruptures = pytest.importorskip("ruptures")
    levels = _trend(steps={30: 1.15, 65: 0.8})

    pelt = ruptures.Pelt(model="l2", min_size=SHORTEST, jump=1).fit(np.log(levels)).predict(pen=0.01)

    assert pelt[:-1] == _places(levels)


@pytest.mark.parametrize("second", range(18, 24))
def test_two_steps_in_few_runs_are_both_found(second: int) -> None:
    noise = np.random.default_rng(second).normal(0, 0.005, 30)
    levels = np.exp(noise + 0.09 * (np.arange(30) >= 10) + 0.09 * (np.arange(30) >= second))

    assert [10, second] == [step.place for step in find_steps(levels)]


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
