"""The location of a launch follows from its paired rounds."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise import POLICY, RECORDED_FILE, load_recorded, located

from perfkit.stats.interval import location_interval
from perfkit.stats.location import CANDIDATES, location, median_log_ratio

times = st.floats(min_value=1e-6, max_value=1e3)
rounds = st.lists(st.tuples(times, times), min_size=1, max_size=30)
every_candidate = pytest.mark.parametrize("name", CANDIDATES)
LAUNCHES = 400


@every_candidate
@given(sample=rounds)
def test_swapping_the_sides_changes_the_sign(name: str, sample: list[tuple[float, float]]) -> None:
    """Base and head are treated alike."""
    base, head = zip(*sample, strict=True)

    assert pytest.approx(-CANDIDATES[name](base, head), abs=1e-9) == CANDIDATES[name](head, base)


@every_candidate
@given(sample=rounds, factor=st.floats(min_value=0.01, max_value=100))
def test_the_unit_of_time_does_not_matter(
    name: str, sample: list[tuple[float, float]], factor: float
) -> None:
    """A ratio has no unit."""
    base, head = zip(*sample, strict=True)
    scaled = CANDIDATES[name]([factor * time for time in base], [factor * time for time in head])

    assert pytest.approx(CANDIDATES[name](base, head), abs=1e-9) == scaled


@every_candidate
@given(sample=rounds, dose=st.floats(min_value=0.5, max_value=2))
def test_a_slowdown_of_every_round_is_read_in_full(
    name: str, sample: list[tuple[float, float]], dose: float
) -> None:
    """Head times a dose moves the location by the log of the dose."""
    base, head = zip(*sample, strict=True)
    moved = CANDIDATES[name](base, [dose * time for time in head])

    assert pytest.approx(CANDIDATES[name](base, head) + math.log(dose), abs=1e-9) == moved


@given(sample=rounds, order=st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(sample: list[tuple[float, float]], order: Random) -> None:
    """Pairs may be shuffled, as pairs."""
    shuffled = sorted(sample, key=lambda _: order.random())

    plain = location(*zip(*sample, strict=True))
    assert pytest.approx(plain, abs=1e-9) == location(*zip(*shuffled, strict=True))


@every_candidate
@pytest.mark.parametrize(
    ("base", "head"),
    [
        ([], []),
        ([1.0], [1.0, 2.0]),
        ([1.0, 2.0], [1.0]),
        ([0.0, 1.0], [1.0, 1.0]),
        ([1.0], [-1.0]),
    ],
)
def test_values_that_make_no_ratios_are_refused(name: str, base: list[float], head: list[float]) -> None:
    """Nothing, unequal numbers, zero and negative times have no location."""
    with pytest.raises(ValueError, match=r"as many|above zero"):
        CANDIDATES[name](base, head)


def _read(slow: list[float], noise: float) -> dict[str, float]:
    """Return what each candidate reads, as a ratio, where the head's rounds take so many times as long."""
    random = np.random.default_rng(1)
    read = dict.fromkeys(CANDIDATES, 0.0)
    for _ in range(LAUNCHES):
        base, head = np.exp(random.normal(0, noise, (2, len(slow))))
        for name, candidate in CANDIDATES.items():
            read[name] += candidate(base, np.array(slow) * head) / LAUNCHES
    return {name: math.exp(value) for name, value in read.items()}


EVERY_TENTH = [1.0] * 9 + [1.2]


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.05])
def test_a_slowdown_of_every_tenth_call_is_read_in_full_where_a_round_holds_many(noise: float) -> None:
    """+20 % in every tenth call costs each round of ten calls 2 %, and is read as that."""
    read = _read([float(np.mean(EVERY_TENTH))] * 40, noise)

    assert pytest.approx(1.02, abs=0.002) == read["median log ratio"]


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.05])
def test_a_slowdown_of_every_tenth_round_is_overlooked_by_the_median(noise: float) -> None:
    """Where a round is one call, what costs 2 % is read as about 1 % or less; a mean would see it."""
    read = _read(EVERY_TENTH * 4, noise)

    assert 1.0 < read["median log ratio"] < 1.012
    assert pytest.approx(1.019, abs=0.002) == read["winsorised mean"]


def test_a_slowdown_of_most_rounds_is_overlooked_by_lower_quartiles() -> None:
    """Of +20 % in six calls of ten the median reads most, a ratio of lower quartiles next to nothing."""
    read = _read(([1.0] * 4 + [1.2] * 6) * 4, 0.01)

    assert read["median log ratio"] > 1.17
    assert read["ratio of lower quartiles"] < 1.02


def test_the_location_is_the_median() -> None:
    """One wild pair of five moves nothing; of four pairs it is the mean of the middle two."""
    assert pytest.approx(math.log(1.02)) == location([1.0] * 5, [1.01, 1.02, 1.03, 1.0, 9.0])
    assert pytest.approx(math.log(1.02 * 1.03) / 2) == location([1.0] * 4, [1.01, 1.02, 1.03, 9.0])


def test_winsorising_tames_a_burst() -> None:
    """A round that took twice as long as its neighbours counts as if it had taken 28 % longer."""
    burst = CANDIDATES["winsorised mean"]([1.0] * 20, [1.0] * 19 + [2.0])

    assert pytest.approx(0.25 / 20) == burst


def test_the_fence_widens_with_the_noise() -> None:
    """Where rounds scatter widely, none of them is far out."""
    winsorised = CANDIDATES["winsorised mean"]

    assert pytest.approx(0.0) == winsorised([1.0] * 4, [0.5, 0.8, 1.25, 2.0])
    assert pytest.approx(math.log(2.0) / 4) == winsorised([1.0] * 4, [1.0, 0.8, 1.25, 2.0])


def test_the_fence_stands_five_deviations_from_the_median() -> None:
    """Rounds that lie 0.1 from their median deviate by 0.14826: one at 2 counts as if it stood at 0.7413."""
    logs = [-0.1] * 4 + [0.0] + [0.1] * 3 + [2.0]

    read = CANDIDATES["winsorised mean"]([1.0] * 9, [math.exp(log) for log in logs])

    assert pytest.approx((-0.4 + 0.3 + 5 * 0.14826) / 9) == read


def _half_widths(name: str) -> list[float]:
    """Return the half-width of each recorded series, all of its launches located by a candidate."""
    recorded = load_recorded(RECORDED_FILE).values()
    logs = [located(launches, CANDIDATES[name]) for launches in recorded]
    return [
        float(location_interval(one, [0] * len(one), error=POLICY.error_at(20)).half_width) for one in logs
    ]


@pytest.mark.parametrize(
    ("name", "wider"),
    [
        ("ratio of means", 1.3),
        ("mean log ratio", 1.3),
        ("winsorised mean", 1.25),
        ("Hodges-Lehmann", 1.03),
        ("ratio of lower quartiles", 0.9),
    ],
)
def test_on_recorded_launches_the_median_gives_the_narrowest_intervals(name: str, wider: float) -> None:
    """Others give intervals wider by so much, on average over series; lower quartiles are its equal."""
    factors = np.log(np.divide(_half_widths(name), _half_widths("median log ratio")))
    error = factors.std(ddof=1) / math.sqrt(factors.size)

    assert median_log_ratio is location
    assert math.exp(factors.mean() - 1.645 * error) > wider
