"""Steps of a trend, part by part: each figure against another way to come by it, each limit from both sides.

The likelihoods are computed here from the differences of runs that follow one another, in which a step is a
single one that is off, and the medians run by run.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from scipy import stats

from perfkit.model.history import Stretch
from perfkit.stats.change_points import FloatArray, Step, find_steps, tame

# The model by which the simulated figures of docs/measured/change-points.md were made: strengths of the drift
# in parts of the sd of runs, by how much clearer a step has to be beside each, and how many runs are compared
# at once.
DRIFTS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 2.0)
DOUBTS = (0.0, 0.0, 0.0, 2.0, 6.0, 4.0, 0.0)
LENGTHS = (12, 18, 25, 35, 50, 70, 100, 140, 200)
# No benchmark repeats better than to a thousandth.
LEAST_SD = 0.001


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """What the differences of runs say of one strength of drift: ``left`` are squares beside each step."""

    squares: float
    left: FloatArray
    changes: FloatArray
    errors: FloatArray
    log_determinant: float


@cache
def _precision(differences: int, drift: float) -> tuple[FloatArray, float]:
    """Return the inverse covariance of differences of unit noise, and the log determinant of the former."""
    beside = np.eye(differences, k=1) + np.eye(differences, k=-1)
    covariance = (2 + drift**2) * np.eye(differences) - beside
    return np.asarray(np.linalg.inv(covariance)), float(np.linalg.slogdet(covariance)[1])


def _fits(logs: FloatArray) -> list[_Fit]:
    differences = np.diff(logs)
    least = len(differences) * LEAST_SD**2
    found = []
    for drift in DRIFTS:
        precision, log_determinant = _precision(len(differences), drift)
        own = np.diag(precision)
        pulls = precision @ differences
        squares = float(differences @ pulls) + least
        found.append(
            _Fit(
                squares=squares,
                left=np.maximum(squares - pulls**2 / own, least),
                changes=pulls / own,
                errors=1 / np.sqrt(own),
                log_determinant=log_determinant,
            )
        )
    return found


def _clarities(logs: FloatArray) -> FloatArray:
    """Return twice the log ratio of the likelihoods with and without a step, at each place from 1 on."""
    count = len(logs) - 1
    doubt_of_few = 2.0 if len(logs) < 35 else 0.0
    fits = _fits(logs)
    without = min(count * math.log(fit.squares) + fit.log_determinant for fit in fits)
    with_step = [
        count * np.log(fit.left) + fit.log_determinant + doubt + doubt_of_few
        for fit, doubt in zip(fits, DOUBTS, strict=True)
    ]
    return np.asarray(without - np.min(with_step, axis=0))


def _ratio(logs: FloatArray, place: int) -> tuple[float, float, float]:
    """Return the ratio at a place and its interval, of all strengths of drift that are likely enough."""
    count, at = len(logs) - 1, place - 1
    fits = _fits(logs)
    quantile = stats.t.ppf(0.975, count - 1)
    unlikelihoods = [count * math.log(fit.left[at]) + fit.log_determinant for fit in fits]
    best = min(unlikelihoods)
    ends = []
    for fit, unlikelihood in zip(fits, unlikelihoods, strict=True):
        half = quantile * math.sqrt(fit.left[at] / (count - 1)) * fit.errors[at]
        if unlikelihood <= best + 2 * math.log(10):
            ends.append((fit.changes[at] - half, fit.changes[at] + half))
    change = fits[unlikelihoods.index(best)].changes[at]
    return (
        math.exp(change),
        math.exp(min(low for low, _ in ends)),
        math.exp(max(high for _, high in ends)),
    )


def _chance_of(clarity: float) -> float:
    """Return the chance of a clarity: 1 % of 17, and a tenth of that for each 4 more."""
    return float(0.01 * 10 ** ((17 - clarity) / 4))


def _compared(low: int, place: int, high: int) -> slice:
    """Return the most runs that may be compared at once, with the place as near to the middle as may be."""
    length = max(one for one in LENGTHS if one <= high - low)
    start = min(range(low, high - length + 1), key=lambda one: abs(one + length // 2 - place))
    return slice(start, start + length)


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


def _seen(levels: FloatArray) -> FloatArray:
    """Return the logs of levels as they are judged."""
    logs = np.log(levels)
    return tame(logs - np.median(logs))


@pytest.mark.parametrize("runs", LENGTHS)
def test_a_step_has_the_chance_of_its_likelihoods_and_the_interval_of_least_squares(runs: int) -> None:
    """Of each strength of drift, and of as many runs as are compared at once."""
    told = 0
    for seed, drift in enumerate([*DRIFTS, 0.3, 1.2] * 2):
        place = 6 + seed * 7 % (runs - 11)
        size = 0.03 * (1 + seed % 4) * (1 + 2 * drift)
        levels = np.exp(_with_steps(_noise(runs, seed=seed, drift=drift), {place: size}))

        steps = find_steps(levels, chance=1.0)

        if len(steps) == 1:
            told += 1
            (step,) = steps
            logs = _seen(levels)
            assert pytest.approx(_chance_of(_clarities(logs)[step.place - 1]), rel=1e-5, abs=0) == step.chance
            assert pytest.approx(_ratio(logs, step.place), rel=1e-9) == _figures(step)
    assert told >= 6


@pytest.mark.parametrize("runs", LENGTHS)
@pytest.mark.parametrize("chance", [0.01, 0.3])
def test_a_step_is_claimed_where_it_is_as_clear_as_it_has_to_be(runs: int, chance: float) -> None:
    """Where all runs are compared at once, whether there is a step depends on the clearest place."""
    claims = []
    for seed in range(12):
        size = 0.04 / math.sqrt(runs) * (1 + seed % 6)
        levels = np.exp(_with_steps(_noise(runs, seed=seed), {runs // 2: size}))

        claims.append(bool(find_steps(levels, chance=chance)))

        assert (_chance_of(_clarities(_seen(levels))[5:-5].max()) <= chance) == claims[-1]
    assert 0 < sum(claims) < 12


@pytest.mark.parametrize(
    ("runs", "small", "large"),
    [(40, 6, 12), (40, 34, 28), (40, 31, 24), (40, 9, 16), (40, 7, 14), (40, 33, 26)],
)
def test_a_step_is_found_in_few_runs_beside_a_large_one(runs: int, small: int, large: int) -> None:
    """Those up to the large one, or from it on, are twelve to sixteen."""
    levels = np.exp(_with_steps(_noise(runs, seed=7), {small: 0.2, large: 1.0}))

    assert sorted([small, large]) == [step.place for step in find_steps(levels)]


@pytest.mark.parametrize("runs", [36, 38, 40])
def test_steps_up_and_down_are_found_among_half_as_many_runs(runs: int) -> None:
    """All runs together are alike on either side of each."""
    levels = np.exp(_with_steps(_noise(runs, seed=3), {10: 0.03, 26: -0.03}))

    assert [10, 26] == [step.place for step in find_steps(levels)]


@pytest.mark.parametrize("chance", [0.01, 0.1])
def test_no_step_is_less_sure_than_asked_for(chance: float) -> None:
    """What looked clear among some runs is told only if it is among all between its neighbours."""
    for seed in range(30):
        source = np.random.default_rng(seed)
        sizes = 0.01 * source.choice([-5, -3, -2, -1, 1, 2, 3, 5], size=6)
        places = np.cumsum(source.integers(6, 40, size=6)).tolist()
        logs = _with_steps(_noise(places[-1] + 20, seed=seed), dict(zip(places, sizes, strict=True)))

        assert all(step.chance <= chance for step in find_steps(np.exp(logs), chance=chance))


@pytest.mark.parametrize("seed", [540, 668, 1181, 1613])
def test_a_step_is_told_where_it_is_clearest_though_it_was_first_seen_elsewhere(seed: int) -> None:
    """Other steps beside it blur where it is, until these are known."""
    source = np.random.default_rng(seed)
    sizes = 0.01 * source.choice([-5, -3, -2, -1, 1, 2, 3, 5], size=4)
    places = np.cumsum(source.integers(6, 60, size=4)).tolist()
    logs = _with_steps(_noise(places[-1] + 20, seed=seed), dict(zip(places, sizes, strict=True)))

    found = {step.place for step in find_steps(np.exp(logs))}

    assert found
    assert found <= {near for place in places for near in range(place - 1, place + 2)}


@pytest.mark.parametrize("seed", [4156, 6457, 8625, 13239, 13336])
def test_of_windows_that_overlap_the_clearest_is_believed_first(seed: int) -> None:
    """With the least clear one first, some of these steps would hide others."""
    source = np.random.default_rng(seed)
    sizes = 0.01 * source.choice([-10, -6, -4, -3, 3, 4, 6, 10], size=6)
    places = np.cumsum(source.integers(6, 40, size=6)).tolist()
    logs = _with_steps(_noise(places[-1] + 20, seed=seed), dict(zip(places, sizes, strict=True)))

    found = [step.place for step in find_steps(np.exp(logs))]

    assert len(places) == len(found)
    assert all(abs(place - step) <= 1 for place, step in zip(places, found, strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_judged_among_the_runs_between_its_neighbours(seed: int) -> None:
    """As many of these as are compared at once, as evenly on either side as may be."""
    source = np.random.default_rng(seed)
    gaps = source.integers(11, [20, 60, 150, 260][seed % 4], size=4)
    edges = [0, *(int(edge) for edge in np.cumsum(gaps))]
    sizes = dict(zip(edges[1:-1], [0.2, -0.15, 0.25], strict=True))
    levels = np.exp(_with_steps(_noise(edges[-1], seed=seed), sizes))

    steps = find_steps(levels)

    assert edges[1:-1] == [step.place for step in steps]
    logs = _seen(levels)
    for at, step in enumerate(steps):
        low, place, high = edges[at : at + 3]
        among = _compared(low, place, high)
        beside = place - among.start
        assert pytest.approx(_chance_of(_clarities(logs[among])[beside - 1]), rel=1e-5, abs=0) == step.chance
        assert pytest.approx(_ratio(logs[among], beside), rel=1e-9) == _figures(step)
        assert pytest.approx(_stretch(levels[low:place])) == _as_tuple(step.before)
        assert pytest.approx(_stretch(levels[place:high])) == _as_tuple(step.after)


def _stretch(values: FloatArray) -> tuple[float, float, int]:
    return float(np.mean(values)), math.sqrt(np.var(values, ddof=1)), len(values)


def _as_tuple(stretch: Stretch) -> tuple[float, float | None, int]:
    return stretch.mean, stretch.sd, stretch.runs


@pytest.mark.parametrize(
    "runs", [12, 13, 14, 15, 17, 18, 24, 30, 36, 49, 61, 99, 111, 150, 199, 201, 299, 300, 301, 450]
)
def test_a_clear_step_is_found_wherever_six_runs_are_on_either_side(runs: int) -> None:
    """Of any number of runs, and as near to either end."""
    places = {6, 7, 8, 11, 12, runs // 3, runs // 2, runs - 12, runs - 7, runs - 6}
    for place in sorted(place for place in places if 6 <= place <= runs - 6):
        levels = np.exp(_with_steps(_noise(runs, seed=runs), {place: 0.3}))

        assert [place] == [step.place for step in find_steps(levels)]


@pytest.mark.parametrize("late", [False, True])
def test_five_runs_at_an_end_are_no_level(*, late: bool) -> None:
    """However far off they are, and however many there are beside them."""
    for runs in (12, 18, 40, 60, 100):
        levels = np.exp(_with_steps(_noise(runs, seed=runs), {runs - 5 if late else 5: 0.3}))

        assert () == find_steps(levels)


def test_a_step_is_as_sure_as_it_is_asked_to_be() -> None:
    """It is told where its chance is not above the one that is asked for, by default one in a hundred."""
    surest, usual = 0.0, 1.0
    for seed in range(12):
        levels = np.exp(_with_steps(_noise(50, seed=seed), {25: 0.012}))
        for step in find_steps(levels, chance=1.0)[:1]:
            assert step in find_steps(levels, chance=step.chance * 1.001)
            assert step not in find_steps(levels, chance=step.chance * 0.999)
            assert (step.chance <= 0.01) == (step in find_steps(levels))
            surest, usual = max(surest, step.chance), min(usual, step.chance)
    assert usual < 0.01 < surest


def test_no_chance_is_above_one() -> None:
    """Though more may be asked for than is probable: a probability is one at most."""
    chances = [
        step.chance for seed in range(5) for step in find_steps(np.exp(_noise(40, seed=seed)), chance=1e3)
    ]

    assert 1.0 == max(chances)


@pytest.mark.parametrize(
    ("off", "counts"),
    [
        (0.001, 0.001),
        (0.0024, 0.0024),
        (0.0025, 0.0025),
        (0.003, 0.002),
        (0.00375, 0.00125),
        (0.0049, 0.0001),
        (0.005, 0.0),
        (0.0051, 0.0),
        (0.5, 0.0),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("place", [0, 11, 50, 99])
def test_a_run_counts_in_full_up_to_two_and_a_half_deviations_and_not_beyond_five(
    off: float, counts: float, sign: int, place: int
) -> None:
    """In between it counts the less, the farther off it is; no deviation is below a thousandth."""
    logs = np.full(100, 0.25)
    logs[place] += sign * off

    tamed = tame(logs)

    expected = np.full(100, 0.25)
    expected[place] += sign * counts
    assert pytest.approx(expected, abs=1e-12) == tamed


@pytest.mark.parametrize(
    ("runs", "slow", "level"),
    [
        (100, range(40, 50), False),
        (100, range(40, 51), True),
        (42, range(16, 26), False),
        (41, range(16, 21), False),
        (41, range(16, 22), True),
        (100, range(94, 100), True),
        (100, range(95, 100), False),
        (100, range(89, 95), True),
        (100, range(88, 94), False),
        (100, range(6), True),
        (100, range(5), False),
        (100, range(5, 11), True),
        (100, range(6, 12), False),
    ],
)
def test_slow_runs_are_a_level_where_they_are_most_of_their_neighbours(
    runs: int, slow: range, *, level: bool
) -> None:
    """That is eleven of 21, or six of eleven where there are fewer than 42 runs or at either end."""
    logs = np.zeros(runs)
    logs[slow] = 1.0

    tamed = tame(logs)

    assert (logs if level else np.zeros(runs)).tolist() == tamed.tolist()


@pytest.mark.parametrize(("beside", "counts"), [(6, True), (10, True), (11, False), (12, False)])
@pytest.mark.parametrize("end", ["first", "last"])
def test_the_level_at_an_end_is_that_of_its_eleven_runs(beside: int, *, counts: bool, end: str) -> None:
    """A run as slow as the six outermost ones is one of that level if it is among the eleven."""
    logs = np.zeros(100)
    logs[[*range(6), beside]] = 1.0
    expected = logs.copy()
    expected[beside] = float(counts)

    tamed = tame(logs) if end == "first" else tame(logs[::-1])[::-1]

    assert expected.tolist() == tamed.tolist()


def _tamed_run_by_run(logs: FloatArray) -> FloatArray:
    """Return what ``tame`` returns, computed one run after the other."""
    runs = len(logs)
    wide = 21 if runs >= 42 else 11

    def median_from(start: int) -> float:
        start = min(max(start, 0), runs - wide)
        return float(np.median(logs[start : start + wide]))

    around = np.array([median_from(at - (wide - 1) // 2) for at in range(runs)])
    by_differences = _beside(np.abs(logs[1:] - logs[:-1]), runs) / math.sqrt(2)
    by_levels = _beside(np.abs(logs - around), runs)
    tamed = []
    for at, log in enumerate(logs):
        levels = [around[at], median_from(at - wide + 1), median_from(at)]
        levels += [np.median(logs[:11])] * (at < 11) + [np.median(logs[-11:])] * (at >= runs - 11)
        level = levels[int(np.argmin(np.abs(log - np.array(levels))))]
        sd = max(1.4826 * max(by_differences[at], by_levels[at]), LEAST_SD)
        off = abs(log - level) / sd
        counts = off if off <= 2.5 else max(5 - off, 0)
        tamed.append(level + math.copysign(counts * sd, log - level))
    return np.array(tamed)


def _beside(values: FloatArray, runs: int) -> FloatArray:
    """Return medians of 101 values each, every 20 of them and of the last ones, and lines between these."""
    if len(values) <= 101:
        return np.full(runs, np.median(values))
    ends = [*range(101, len(values), 20), len(values)]
    middles = [end - 51 for end in ends]
    return np.interp(np.arange(runs), middles, [np.median(values[end - 101 : end]) for end in ends])


@pytest.mark.parametrize(
    "runs", [12, 13, 21, 30, 41, 42, 43, 60, 101, 102, 103, 121, 122, 141, 180, 300, 555]
)
def test_outliers_are_tamed_as_run_by_run(runs: int) -> None:
    """Of noise with many outliers, whose deviation grows, and of levels that drift."""
    source = np.random.default_rng(runs)
    for _ in range(max(2, 240 // runs)):
        growing = np.linspace(1, 4, runs) * source.standard_t(2, runs)
        drifting = source.standard_t(2, runs) + np.cumsum(source.standard_normal(runs))
        for logs in (0.01 * growing, 0.01 * drifting):
            assert pytest.approx(_tamed_run_by_run(logs), abs=1e-12) == tame(logs)


def test_the_deviation_of_runs_is_that_of_those_beside_them() -> None:
    """Where noise has grown threefold, what is far off among quiet runs is ordinary among noisy ones."""
    sizes = np.where(np.arange(400) < 200, 0.01, 0.03)
    logs = sizes * np.tile([1, 0, -1, 0, 1, -1, 0, 1, 0, -1], 40)
    logs[[20, 380]] = 0.08

    tamed = tame(logs)

    assert 0 == tamed[20]
    assert pytest.approx(0.08) == tamed[380]


def _is_machines(occasions: list[int], place: int) -> bool:
    """Tell whether the machine may have made a step at a place."""
    before, after = occasions[:place], occasions[place:]
    bridged = any(before.count(one) >= 6 and after.count(one) >= 6 for one in occasions)
    few = min(len(set(before)), len(set(after))) < 3
    return before[-1] != after[0] and few and not bridged


@pytest.mark.parametrize("seed", range(60))
def test_a_step_between_two_occasions_is_the_machines_unless_it_cannot_be(seed: int) -> None:
    """Of occasions in any order, some of which take turns, and none of which is a number to be counted by."""
    source = np.random.default_rng(seed)
    runs = int(source.integers(24, 60))
    place = int(source.integers(6, runs - 5))
    names = source.integers(0, source.integers(2, 8), size=runs)
    lasts = source.integers(1, [3, 8, 12, 20][seed % 4], size=runs)
    occasions = [int(one) for one in np.repeat(names, lasts)[:runs]]
    levels = np.exp(_with_steps(_noise(runs, seed=seed), {place: 1.0}))

    found = find_steps(levels, occasions=[f"of {one}" for one in occasions])

    assert ([] if _is_machines(occasions, place) else [place]) == [step.place for step in found]


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
def test_three_occasions_on_either_side_make_a_step_the_codes(
    lasting: tuple[int, ...], *, found: bool
) -> None:
    """Two on one side do not, however many are on the other."""
    occasions = [number for number, runs in enumerate(lasting) for _ in range(runs)]
    levels = np.exp(_with_steps(_noise(40, seed=1), {20: 0.3}))

    assert found == bool(find_steps(levels, occasions=occasions))


@pytest.mark.parametrize(
    "occasions",
    [
        "aaaaaabbbbbbbbbbbbbbaaaaaacccccdddddeeee",
        "bbbbbbbaaaaaabbbbbbbaaaaaacccccdddddeeee",
        "aaaaaabbbbbbbbbbbbbbaaaaacccccddddeeeeea",
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_an_occasion_on_either_side_may_be_any_of_them(occasions: str, *, late: bool) -> None:
    """One of two on one side that has six runs among the others on the other side has made no step."""
    levels = np.exp(_with_steps(_noise(40, seed=1), {20: 0.3}))

    assert find_steps(levels, occasions=occasions[::-1] if late else occasions)


@pytest.mark.parametrize(("before", "after"), [(6, 6), (5, 6), (6, 5), (5, 5), (7, 9)])
def test_an_occasion_of_six_runs_on_either_side_has_not_made_a_step(before: int, after: int) -> None:
    """Five on a side are too few: they may be slow by a burst."""
    occasions = ["a"] * 12 + ["b"] * before + ["c"] * (22 - before) + ["b"] * after + ["d"] * (22 - after)
    place = 12 + before
    levels = np.exp(_with_steps(_noise(len(occasions), seed=1), {place: 0.3}))

    steps = find_steps(levels, occasions=["a"] * place + occasions[place:])
    assert not steps

    turns = ["b"] * before + ["c"] * (30 - before) + ["b"] * after + ["d"] * (30 - after)
    levels = np.exp(_with_steps(_noise(60, seed=1), {30: 0.3}))

    assert (min(before, after) >= 6) == bool(find_steps(levels, occasions=turns))


@pytest.mark.parametrize("ends", [(32,), (27,), (35, 50), (24, 40, 54)])
@pytest.mark.parametrize("runs", [50, 60])
def test_a_step_is_likelier_than_any_of_the_machine_by_what_it_has_to_be(
    runs: int, ends: tuple[int, ...]
) -> None:
    """By as much as it has to be likelier than none; the likeliest of the machine is what counts."""
    place = runs // 2
    occasions = [sum(end <= run for end in ends) for run in range(runs)]
    logs = _with_steps(_noise(runs, seed=runs), {place: 0.3})
    (step,) = find_steps(np.exp(logs))
    among = _compared(0, place, runs)
    clarities = _clarities(_seen(np.exp(logs))[among])

    least = min(
        clarities[place - among.start - 1] - clarities[end - among.start - 1]
        for end in ends
        if end < among.stop
    )

    assert place == step.place
    assert (step,) == find_steps(np.exp(logs), occasions=occasions, chance=_chance_of(least) * 1.001)
    assert () == find_steps(np.exp(logs), occasions=occasions, chance=_chance_of(least) * 0.999)


@pytest.mark.parametrize(
    ("end", "rivals"), [(2, False), (4, False), (5, False), (6, True), (54, True), (55, False), (57, False)]
)
def test_the_machine_may_have_made_a_step_among_the_runs_that_are_compared(end: int, *, rivals: bool) -> None:
    """These are the fifty from 5 to 55 of sixty; an occasion that ends right before them rivals none."""
    levels = np.exp(_with_steps(_noise(60, seed=2), {30: 0.03}))
    (step,) = find_steps(levels)
    occasions = ["one"] * end + ["other"] * (60 - end)

    found = find_steps(levels, occasions=occasions, chance=step.chance * 1.001)

    assert ([] if rivals else [step]) == list(found)


def test_any_value_that_three_runs_repeat_is_a_level_of_counts() -> None:
    """What lies between two of them belongs to the first one's runs, and tells nothing of the ratio."""
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
    """Most runs have to repeat the one before, or else the counts are judged like times."""
    steps = find_steps(counts, exact=True)

    assert places == [step.place for step in steps]
    for step in steps:
        assert (step.place, len(counts) - step.place) == (step.before.runs, step.after.runs)


def test_a_count_may_fall_to_zero() -> None:
    """Then its ratio is zero; one that rises from zero has an infinite one."""
    fall, rise = find_steps([4, 4, 4, 0, 0, 0, 1, 1, 1], exact=True)

    assert (0.0,) * 3 == _figures(fall)
    assert (math.inf,) * 3 == _figures(rise)


def test_counts_that_scatter_about_zero_have_no_step() -> None:
    """No ratio can be told of them, nor a logarithm taken."""
    counts = [0, 1, 2, 1, 0, 3, 1, 2, 10, 11, 12, 10, 11, 13, 12, 11]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert () == find_steps(counts, exact=True)
        assert () == find_steps([7], exact=True)
        assert () == find_steps([], exact=True)


@pytest.mark.parametrize("level", [-1.0, math.nan, math.inf, -math.inf])
def test_a_count_is_a_finite_number_not_below_zero(level: float) -> None:
    """Another is a mistake of the caller."""
    with pytest.raises(ValueError, match="not a finite number above zero"):
        find_steps([level] * 20, exact=True)


def _with_a_small_step(runs: int, place: int) -> FloatArray:
    """Return logs in which a step is just clear where it has fifty runs on one side and 150 on the other."""
    repeating = 0.01 * np.random.default_rng(1).permutation(np.linspace(-1, 1, 50))
    return _with_steps(np.tile(repeating, runs // 50), {place: 0.008})


@pytest.mark.parametrize("runs", [1000, 1050])
@pytest.mark.parametrize("place", range(50, 1000, 50))
def test_a_step_just_clear_in_two_hundred_runs_is_found_anywhere(runs: int, place: int) -> None:
    """Runs that are compared at once overlap by half, so that each place has fifty on either side."""
    (step,) = find_steps(np.exp(_with_a_small_step(runs, place)))

    assert abs(step.place - place) <= 1


@pytest.mark.parametrize("place", [450, 600, 750])
@pytest.mark.parametrize("apart", [-140, -60, 60, 140])
@pytest.mark.parametrize("beyond", [0, 30, 60, 90])
def test_a_small_step_is_found_beside_a_large_one(place: int, apart: int, beyond: int) -> None:
    """Where no more runs than those beside the large one show it, these are looked at once more."""
    logs = _with_steps(np.roll(_with_a_small_step(1200, place), beyond), {place + beyond + apart: 1.0})
    logs[:beyond] -= 0.008

    small, large = sorted(find_steps(np.exp(logs)), key=lambda step: step.ratio)

    assert place + beyond + apart == large.place
    assert abs(small.place - place - beyond) <= 1


@pytest.mark.parametrize(
    ("runs", "lasting", "back", "there"),
    [
        (90, 11, True, True),
        (90, 10, True, False),
        (41, 6, True, True),
        (41, 5, True, False),
        (90, 6, False, True),
        (90, 5, False, False),
    ],
)
def test_few_runs_between_two_steps_are_a_level_or_outliers(
    runs: int, lasting: int, *, back: bool, there: bool
) -> None:
    """There and back again needs most of the neighbours, and one stair after another six runs."""
    edges = [16, 16 + lasting]
    levels = np.exp(_with_steps(_noise(runs, seed=3), {edges[0]: 0.3, edges[1]: -0.3 if back else 0.3}))

    assert there == (edges == [step.place for step in find_steps(levels)])


def test_steps_that_are_far_apart_are_told_as_if_alone() -> None:
    """Each of many in a long trend has the figures that it has among its own five hundred runs."""
    runs, every = 3000, 500
    sizes = {place: 0.05 * (-1) ** at for at, place in enumerate(range(250, runs, every))}
    logs = _with_steps(_noise(runs, seed=5), sizes)

    steps = find_steps(np.exp(logs))

    assert list(sizes) == [step.place for step in steps]
    for step, other in itertools.pairwise(steps):
        (alone,) = find_steps(np.exp(logs[step.place - 250 : other.place]))
        assert pytest.approx(_figures(alone)) == _figures(step)
