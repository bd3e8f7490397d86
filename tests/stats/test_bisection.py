"""A bisect names the commit at which the level changed, and asks for no more launches than it has to."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.stats.bisection import (
    Conclusion,
    Costs,
    Measure,
    MeasuredPair,
    Rules,
    expected_bits,
    next_move,
    posterior,
)

FIVE, THREE = math.log(1.05), math.log(1.03)
COSTS = Costs(opening_s=0.0, launch_s=1.0)


def levels_of(commits: int, steps: dict[int, float]) -> list[float]:
    """Return the level of each of the places 0 to ``commits`` with steps at some of them."""
    return [sum(size for place, size in steps.items() if place <= at) for at in range(commits + 1)]


def search(
    levels: Sequence[float],
    noise: Callable[[], float] = lambda: 0.0,
    *,
    weights: Sequence[float] | None = None,
    unusable: Collection[int] = (),
    costs: Costs = COSTS,
    rules: Rules | None = None,
) -> tuple[Conclusion, dict[tuple[int, int], list[float]]]:
    """Return how a bisect ends, and its launches by pair; a launch that is not allowed fails the test."""
    launches: dict[tuple[int, int], list[float]] = {}
    open_pair = None
    for _ in range(500):
        move = next_move(
            as_pairs(launches),
            weights=weights or [1.0] * (len(levels) - 1),
            unusable=unusable,
            costs=costs,
            rules=rules or Rules(),
            open_pair=open_pair,
        )
        if isinstance(move, Conclusion):
            return move, launches
        assert not {move.base, move.head} & set(unusable)
        open_pair = (move.base, move.head)
        found = launches.setdefault(open_pair, [])
        found += [levels[move.head] - levels[move.base] + noise() for _ in range(move.launches)]
    raise AssertionError("the search did not end")


def as_pairs(launches: Mapping[tuple[int, int], Sequence[float]]) -> list[MeasuredPair]:
    return [MeasuredPair(base=pair[0], head=pair[1], log_ratios=tuple(v)) for pair, v in launches.items()]


def count(launches: dict[tuple[int, int], list[float]]) -> int:
    return sum(len(found) for found in launches.values())


@dataclass(frozen=True, kw_only=True)
class Question:
    """The arguments of a search."""

    launches: Mapping[tuple[int, int], Sequence[float]]
    weights: Sequence[float]
    unusable: Collection[int] = ()
    costs: Costs = COSTS
    rules: Rules = field(default_factory=Rules)
    open_pair: tuple[int, int] | None = None

    def answer(self) -> Measure | Conclusion:
        """Return the answer of the search."""
        return next_move(
            as_pairs(self.launches),
            weights=self.weights,
            unusable=self.unusable,
            costs=self.costs,
            rules=self.rules,
            open_pair=self.open_pair,
        )


@pytest.mark.parametrize("size", [FIVE, -FIVE, math.log(35)])
@pytest.mark.parametrize("commits", [1, 2, 3, 20, 64])
def test_without_noise_each_place_is_named_exactly(commits: int, size: float) -> None:
    for place in {1, 2, commits // 2, commits - 1, commits} & set(range(1, commits + 1)):
        conclusion, launches = search(levels_of(commits, {place: size}))

        (step,) = conclusion.steps
        assert ("found", (place,)) == (conclusion.status, step.places)
        assert step.low < size < step.high
        assert 3 * (1 + math.ceil(math.log2(commits))) + 2 >= count(launches)


def test_a_long_range_takes_few_launches_more() -> None:
    conclusion, launches = search(levels_of(2000, {1234: FIVE}))

    assert ((1234,),) == tuple(step.places for step in conclusion.steps)
    assert 20 > count(launches)


def test_several_steps_are_all_found_the_largest_first() -> None:
    for small in (THREE, -THREE):
        steps = {10: small, 40: math.log(1.1)}
        conclusion, _ = search(levels_of(64, steps))

        assert [(40,), (10,)] == [step.places for step in conclusion.steps]
        assert [1, math.copysign(1, small)] == [math.copysign(1, step.log_ratio) for step in conclusion.steps]


def test_a_change_that_is_reverted_is_no_change() -> None:
    conclusion, launches = search(levels_of(64, {10: FIVE, 30: -FIVE}))

    assert ("no change", ()) == (conclusion.status, conclusion.steps)
    assert {(0, 64)} == set(launches)


def test_places_that_cannot_be_measured_are_named_together() -> None:
    conclusion, launches = search(levels_of(64, {32: FIVE}), unusable={31, 32, 33})

    (step,) = conclusion.steps
    assert (31, 32, 33, 34) == step.places
    assert not {31, 32, 33} & {place for pair in launches for place in pair}


def test_a_place_without_weight_is_never_named() -> None:
    weights = [1.0] * 64
    weights[30] = weights[32] = 0.0
    conclusion, _ = search(levels_of(64, {32: FIVE}), weights=weights, unusable={32})

    assert ((32,),) == tuple(step.places for step in conclusion.steps)


def test_what_is_favoured_rightly_is_found_sooner() -> None:
    favoured = {False: [1.0] * 64, True: [10.0 if place in {7, 20, 33} else 1.0 for place in range(1, 65)]}
    taken = {}
    for right, weights in favoured.items():
        conclusion, launches = search(levels_of(64, {20: FIVE}), weights=weights)
        assert ((20,),) == tuple(step.places for step in conclusion.steps)
        taken[right] = count(launches)
    misled, _ = search(levels_of(64, {50: FIVE}), weights=favoured[True])

    assert taken[True] < taken[False]
    assert ((50,),) == tuple(step.places for step in misled.steps)


def test_where_opening_a_pair_is_dear_several_launches_are_asked_for_at_once() -> None:
    source = np.random.default_rng(5)
    dear = Costs(opening_s=60.0, launch_s=1.0)
    few = [
        len(search(levels_of(64, {20: FIVE}), lambda: source.normal(0, 0.02), costs=costs)[1])
        for costs in (dear, COSTS)
    ]
    first = next_move([], weights=[1] * 64, unusable=(), costs=dear, rules=Rules(), open_pair=None)

    assert isinstance(first, Measure)
    assert first.launches > 1
    assert few[0] < few[1]


def test_an_answer_can_be_had_before_it_is_known() -> None:
    conclusion, launches = search(levels_of(64, {20: FIVE}), rules=Rules(most_launches=5))

    (step,) = conclusion.steps
    assert ("undecided", 5) == (conclusion.status, count(launches))
    assert 20 in step.places
    assert 1 < len(step.places) < 64
    assert "5 launches" in conclusion.why


def test_a_named_commit_is_confirmed_against_the_one_before_it() -> None:
    plain, _ = search(levels_of(64, {20: FIVE}))
    confirmed, launches = search(levels_of(64, {20: FIVE}), rules=Rules(confirming=6))

    assert 6 <= len(launches[19, 20])
    assert confirmed.steps[0].high - confirmed.steps[0].low < plain.steps[0].high - plain.steps[0].low


def test_only_what_is_missing_is_measured_to_confirm() -> None:
    pairs = {(0, 2): [0.001] * 4, (0, 3): [0.05] * 4, (0, 9): [0.05] * 4, (2, 3): [0.05] * 2}
    moves = [
        Question(launches=pairs, weights=[1.0] * 9, rules=Rules(confirming=confirming)).answer()
        for confirming in (0, 2, 3, 5)
    ]

    assert ["found"] * 2 == [move.status for move in moves[:2] if isinstance(move, Conclusion)]
    assert [Measure(base=2, head=3, launches=missing) for missing in (1, 3)] == moves[2:]


def test_where_one_step_is_known_and_another_likely_both_are_reported() -> None:
    pairs = {(0, 3): [0.0] * 6, (0, 4): [0.1] * 6, (0, 20): [0.15] * 6}
    question = Question(launches=pairs, weights=[1.0] * 20, rules=Rules(most_launches=18))
    conclusion = question.answer()

    assert isinstance(conclusion, Conclusion)
    assert "found" == conclusion.status
    assert [(4,), tuple(range(5, 21))] == [step.places for step in conclusion.steps]
    assert conclusion.why == (
        "after 18 launches, which were allowed, it is not clear whether there is another step, or where"
    )


@pytest.mark.parametrize("levels", [{4: 0.06}, {3: 0.03, 9: 0.06}, {2: -0.03}, {11: 0.0}, {7: 0.025}])
def test_the_shortest_row_of_places_that_holds_a_step_is_reported(levels: dict[int, float]) -> None:
    launches = {(0, place): [level] * 2 for place, level in {**levels, 12: 0.06}.items()}
    weights = [1.0, 2.0, 1.0, 0.0, 4.0, 3.0, 1.0, 1.0, 5.0, 1.0, 1.0, 1.0]
    rules = Rules(confidence=0.9, most_launches=1)
    conclusion = Question(launches=launches, weights=weights, rules=rules).answer()
    chances = posterior(as_pairs(launches), weights=weights, rules=rules)
    held = {(i, j): sum(chances[i - 1 : j]) for i in range(1, 13) for j in range(i, 13)}
    wanted = 0.9 * sum(chances)
    first, last = min((row for row in held if held[row] >= wanted), key=lambda row: row[1] - row[0])

    assert isinstance(conclusion, Conclusion)
    (step,) = conclusion.steps
    assert tuple(range(first, last + 1)) == step.places
    assert pytest.approx(min(1.0, held[first, last])) == step.probability


def test_a_step_below_what_matters_is_no_change() -> None:
    conclusion, _ = search(levels_of(64, {20: math.log(1.0025)}))

    assert "no change" == conclusion.status
    assert "1.0%" in conclusion.why


def test_noisy_bisects_are_right_and_short() -> None:
    source = np.random.default_rng(20261125)
    right, taken = 0, 0
    for _ in range(30):
        place = int(source.integers(1, 65))
        noise = 0.75 * 0.02 * source.standard_t(3, size=500)
        conclusion, launches = search(levels_of(64, {place: FIVE}), iter(noise.tolist()).__next__)
        right += ((place,),) == tuple(step.places for step in conclusion.steps)
        taken += count(launches)

    assert right >= 28
    assert taken <= 21 * 30


def test_where_nothing_changed_no_commit_is_named() -> None:
    source = np.random.default_rng(3)
    endings = []
    for _ in range(40):
        noise = 0.75 * 0.02 * source.standard_t(3, size=500)
        endings.append(search(levels_of(64, {}), iter(noise.tolist()).__next__)[0].status)

    assert 0 == endings.count("found")
    assert 36 <= endings.count("no change")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"weights": []}, "one place at least"),
        ({"weights": [1.0, math.nan, 1.0]}, "weights are finite"),
        ({"weights": [1.0, -1.0, 1.0]}, "weights are finite"),
        ({"weights": [0.0, 0.0, 0.0]}, "weights are finite"),
        ({"weights": [1.0, math.inf, 1.0]}, "weights are finite"),
        ({"weights": [1.0, 1.0]}, "places 0 and 3 are no pair in a range from 0 to 2"),
        ({"unusable": {3}}, "place 3 is none of those between 0 and 3"),
        ({"unusable": {0}}, "place 0 is none of those between 0 and 3"),
        ({"unusable": {7}}, "place 7"),
        ({"unusable": [9, 2, 7, -1, 8]}, "place -1 is none"),
        ({"pairs": [MeasuredPair(base=0, head=3, log_ratios=(math.nan,))]}, "not a finite number"),
        ({"pairs": [MeasuredPair(base=2, head=1, log_ratios=(0.0,))]}, "no pair in a range"),
        ({"pairs": [MeasuredPair(base=2, head=2, log_ratios=(0.0,))]}, "no pair in a range"),
        ({"pairs": [MeasuredPair(base=-1, head=2, log_ratios=(0.0,))]}, "no pair in a range"),
        ({"pairs": [MeasuredPair(base=0, head=4, log_ratios=(0.0,))]}, "no pair in a range"),
        (
            {"pairs": [MeasuredPair(base=a, head=b, log_ratios=(0.0,)) for a, b in ((1, 3), (0, 2))]},
            "places 1 and 3 are neither neighbours",
        ),
        ({"costs": Costs(opening_s=1.0, launch_s=0.0)}, "a launch takes some time"),
        *(
            ({"rules": Rules(confidence=part)}, "a confidence lies between 0.5 and 1")
            for part in (0.4, 0.5, 1.0, 2.0)
        ),
        *(({"rules": Rules(alpha=part)}, "alpha between 0 and 1") for part in (-1.0, 0.0, 1.0, 2.0)),
        *(({"rules": Rules(least_step=size)}, "a step above 0") for size in (-0.01, 0.0, math.inf)),
        *(
            ({"costs": Costs(opening_s=opening_s, launch_s=launch_s)}, "a launch takes some time")
            for opening_s, launch_s in (
                (math.nan, 1.0),
                (math.inf, 1.0),
                (-1.0, 1.0),
                (0.0, math.inf),
                (0.0, -1.0),
            )
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(changed: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "pairs": [MeasuredPair(base=0, head=3, log_ratios=(0.05,))],
        "weights": [1.0, 1.0, 1.0],
        "unusable": (),
        "costs": COSTS,
        "rules": Rules(),
        "open_pair": None,
    } | changed
    pairs = arguments.pop("pairs")

    with pytest.raises(ValueError, match=message):
        next_move(pairs, **arguments)  # type: ignore[arg-type]


@st.composite
def measured(draw: st.DrawFn) -> tuple[list[MeasuredPair], list[float]]:
    """Return pairs of a range with place 0, and weights."""
    commits = draw(st.integers(1, 12))
    heads = draw(st.lists(st.integers(1, commits), max_size=5))
    values = st.lists(st.floats(-3, 3), max_size=4)
    pairs = [MeasuredPair(base=0, head=head, log_ratios=tuple(draw(values))) for head in heads]
    weights = draw(st.lists(st.floats(0.01, 100), min_size=commits, max_size=commits))
    return pairs, weights


@settings(max_examples=60, deadline=None)
@given(given_=measured(), order=st.randoms(use_true_random=False))
def test_any_launches_give_probabilities_and_the_same_answer(
    given_: tuple[list[MeasuredPair], list[float]], order: random.Random
) -> None:
    pairs, weights = given_
    chances = posterior(pairs, weights=weights, rules=Rules())
    move = next_move(pairs, weights=weights, unusable=(), costs=COSTS, rules=Rules(), open_pair=None)
    mixed = list(pairs)
    order.shuffle(mixed)
    again = posterior(mixed, weights=[2 * weight for weight in weights], rules=Rules())

    assert len(weights) == len(chances)
    assert all(0 <= chance <= 1 for chance in chances)
    assert pytest.approx(again, abs=1e-6) == chances
    assert move == next_move(pairs, weights=weights, unusable=(), costs=COSTS, rules=Rules(), open_pair=None)
    if isinstance(move, Conclusion):
        assert all(step.low <= step.log_ratio <= step.high for step in move.steps)
        assert all(0 < step.probability <= 1 for step in move.steps)


def test_a_reading_adds_at_most_what_is_not_known() -> None:
    shown = expected_bits(np.array([0.5, 0.5, 0.1, 0.0]), np.array([8.0, 0.0, 8.0, 8.0]))
    farther = expected_bits(np.array([0.5, 0.1]), np.array([8.1, 300.0]))

    tenth = -(0.1 * math.log2(0.1) + 0.9 * math.log2(0.9))
    assert pytest.approx([1, 0, tenth, 0], abs=0.003) == list(shown)
    assert [shown[0], shown[2]] == list(farther)
