"""How long a benchmark is measured in one launch follows from the time of its iteration."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfkit.runner.lockstep.turns import (
    ROUND_S,
    LoopPlan,
    corrected,
    error_of_median,
    is_precise,
    plan_loops,
)

LAUNCH_S = 0.25
iteration_times = st.floats(1e-8, 100.0)


def seconds_of(plan: LoopPlan, iteration_s: float) -> float:
    """Return what both sides spend in their turns."""
    return 2 * plan.turns * (plan.untimed + plan.rounds * plan.loops) * iteration_s


@given(iteration_times)
def test_a_round_is_long_against_the_clock(iteration_s: float) -> None:
    """Quick iterations are looped until a round has its length; slow ones are a round each."""
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S)

    assert plan.loops * iteration_s >= min(ROUND_S / 2, iteration_s)
    has_the_fewest_slices = 4 == plan.loops and iteration_s <= 0.005
    assert 1 == plan.loops or has_the_fewest_slices or plan.loops * iteration_s <= 1.5 * ROUND_S


@given(iteration_times)
def test_a_launch_takes_its_time_or_the_fewest_turns(iteration_s: float) -> None:
    """The time asked for is kept to half a turn, unless the fewest rounds take longer.

    These are four, or of slow calls as many as take a quarter of a second, but one at least.
    """
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S)

    turn_s = seconds_of(plan, iteration_s) / plan.turns
    fewest = min(4, max(1, math.ceil(0.25 / (plan.loops * iteration_s))))
    assert fewest <= plan.turns * plan.rounds
    assert plan.turns <= 200
    assert (
        abs(seconds_of(plan, iteration_s) - LAUNCH_S) <= 0.5001 * turn_s
        or fewest <= plan.turns * plan.rounds < fewest + plan.rounds
    )


@given(st.floats(1e-8, 0.005), st.floats(0.5, 1.0))
def test_a_launch_of_quick_calls_takes_the_time_that_was_asked_for(
    iteration_s: float, launch_s: float
) -> None:
    """It is that of both sides together, to half a turn of each."""
    plan = plan_loops(iteration_s, launch_s=launch_s)

    seconds = seconds_of(plan, iteration_s)
    assert abs(seconds - launch_s) <= 0.5001 * seconds / plan.turns


def test_a_launch_has_four_rounds_at_least_and_two_hundred_turns_at_most() -> None:
    """However little or much time it may take: fewer would not scatter, and more would say no more."""
    short, long = (plan_loops(1e-5, launch_s=launch_s) for launch_s in (1e-6, 60.0))

    assert 4 == short.turns * short.rounds
    assert (200, 200) == (long.turns, long.most_turns)


@pytest.mark.parametrize(("iteration_s", "rounds"), [(0.06, 4), (0.1, 4), (0.25, 1), (0.3, 1), (5.0, 1)])
def test_a_slow_call_has_few_rounds_in_each_launch(iteration_s: float, rounds: int) -> None:
    """Launches replicate it, so that no more rounds are added where it scatters."""
    plan = plan_loops(iteration_s, launch_s=0.05)

    assert (rounds, rounds) == (plan.turns * plan.rounds, plan.most_turns * plan.rounds)


def test_rounds_that_are_only_allowed_end_when_there_is_enough_of_them() -> None:
    """A benchmark that allows so many slow rounds is not kept at them."""
    plan = plan_loops(0.3, launch_s=0.06, fixed_loops=1, most_rounds=20)

    assert (20, 0.5) == (plan.turns, plan.enough_s)


@pytest.mark.parametrize("pipeline", [False, True])
@given(iteration_s=st.floats(1e-8, 0.15))
@example(iteration_s=0.15)
def test_each_turn_warms_up_for_the_same_time(*, iteration_s: float, pipeline: bool) -> None:
    """Whole rounds begin after the after-effects of a switch, sliced ones after half, or one long call."""
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S, pipeline=pipeline)

    least_s = 0.002 if plan.slices == 1 else 0.001
    assert least_s <= plan.untimed * iteration_s * (1 + 1e-9) < least_s + 2 * iteration_s
    assert 0.005 <= plan.first_untimed * iteration_s * (1 + 1e-9) < 0.005 + 2 * iteration_s


def test_a_long_iteration_outlasts_its_own_cold_start() -> None:
    """Nothing of it is thrown away: twice as many launches tell more than warmer calls would."""
    plans = [plan_loops(iteration_s, launch_s=LAUNCH_S) for iteration_s in (0.2, 2.0)]

    assert [(0, 0), (0, 0)] == [(plan.untimed, plan.first_untimed) for plan in plans]


@given(iteration_times, st.integers(1, 50), st.integers(1, 50))
def test_a_benchmark_that_counts_its_calls_gets_those_and_no_more(
    iteration_s: float, rounds: int, loops: int
) -> None:
    """Rounds times loops calls, none of them untimed, however quick it is."""
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S, fixed_loops=loops, most_rounds=rounds)

    untimed = plan.first_untimed + (plan.turns - 1) * plan.untimed
    calls = untimed + plan.turns * plan.rounds * plan.loops
    assert (rounds * loops, loops) == (calls, plan.loops)


@given(iteration_times)
def test_a_round_of_short_calls_is_timed_in_slices(iteration_s: float) -> None:
    """All slices hold equally many calls, about a quarter of a millisecond of them, or one."""
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S)

    assert 0 == plan.loops % plan.slices
    in_slice = plan.loops // plan.slices
    assert 1 == plan.slices or 4 <= plan.slices
    assert 1 == plan.slices or 1 == in_slice or 0.00016 <= in_slice * iteration_s <= 0.00034
    assert (plan.slices > 1) == (iteration_s <= 0.005)


@pytest.mark.parametrize(
    ("iteration_s", "slices", "in_slice"),
    [
        (1e-6, 20, 250),
        (1e-5, 20, 25),
        # Four calls are nearer to a quarter of a millisecond than three, and 18 slices to 5 ms than 17.
        (7e-5, 18, 4),
        (1e-4, 25, 2),
        (1e-3, 5, 1),
        # Four slices at least, up to the longest call of which there are several in a round.
        (2e-3, 4, 1),
        (5e-3, 4, 1),
        (5.1e-3, 1, 1),
    ],
)
def test_a_round_has_about_twenty_slices_or_one_for_each_call(
    iteration_s: float, slices: int, in_slice: int
) -> None:
    """A slice is a quarter of a millisecond, the round five, as near as whole calls come to them."""
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S)

    assert (slices, slices * in_slice) == (plan.slices, plan.loops)


def test_rounds_that_are_not_ours_to_part_have_one_slice() -> None:
    """A benchmark's own rounds, and those of workers, whose quickest calls find their batch waiting."""
    given_rounds = plan_loops(1e-5, launch_s=LAUNCH_S, fixed_loops=500)
    counted = plan_loops(1e-5, launch_s=LAUNCH_S, most_rounds=9)
    piped = plan_loops(1e-5, launch_s=LAUNCH_S, pipeline=True)

    assert [1, 1, 1] == [plan.slices for plan in (given_rounds, counted, piped)]
    assert [500, 1] == [plan.loops for plan in (given_rounds, counted)]


def test_fixed_loops_are_kept() -> None:
    """A benchmark with a setup for each call is not looped; more rounds make up for it."""
    plan = plan_loops(1e-4, launch_s=LAUNCH_S, fixed_loops=1)

    assert 1 == plan.loops
    assert 30 == plan.rounds


def test_worker_processes_get_longer_rounds() -> None:
    """A round outlasts the refilling of their queues."""
    alone, piped = (plan_loops(1e-4, launch_s=LAUNCH_S, pipeline=pipeline) for pipeline in (False, True))

    assert (50, 200) == (alone.loops, piped.loops)


def test_alike_rounds_say_enough() -> None:
    """A constant ratio has no error, whatever its size, nor has a drift that both sides share."""
    drift = [1e-3 * (1 + 0.05 * turn) for turn in range(8)]

    assert is_precise([1e-3] * 3, [2e-3] * 3)
    assert is_precise(drift, [1.5 * value for value in drift])


def test_scattered_rounds_ask_for_more_until_there_are_many() -> None:
    """The error falls with the number of rounds."""
    base, head = [1e-3, 1e-3, 1e-3, 1e-3], [1e-3, 1.04e-3, 0.96e-3, 1.02e-3]

    assert not is_precise(base, head)
    assert is_precise(base * 10, head * 10)


@given(st.lists(st.tuples(st.floats(1e-7, 1.0), st.floats(1e-7, 1.0)), min_size=3, max_size=30))
def test_stopping_favours_no_side(rounds: list[tuple[float, float]]) -> None:
    """With the sides swapped, a launch stops at the same round."""
    base, head = zip(*rounds, strict=True)

    assert is_precise(base, head) == is_precise(head, base)


def test_each_round_of_a_side_has_one_of_the_other() -> None:
    """A round without its partner is a mistake of the caller, and not left out in silence."""
    with pytest.raises(ValueError, match="shorter than"):
        is_precise([1e-3] * 4, [1e-3] * 3)


@pytest.mark.parametrize("count", [101, 1000])
def test_the_error_of_a_median_is_that_of_normal_values(count: int) -> None:
    """The deviation times the root of half of pi, over the root of their number."""
    normal = statistics.NormalDist(mu=5.0, sigma=0.2)
    values = [normal.inv_cdf((place + 0.5) / count) for place in range(count)]

    assert pytest.approx(0.2 * math.sqrt(math.pi / 2 / count), rel=0.02) == error_of_median(values)


def test_a_noisy_launch_may_take_three_times_its_turns() -> None:
    """Counted calls are not ours to add to."""
    free = plan_loops(1e-3, launch_s=LAUNCH_S)
    counted = plan_loops(1.0, launch_s=LAUNCH_S, most_rounds=5)

    assert (3 * free.turns, 5) == (free.most_turns, counted.most_turns)


def test_a_plan_from_calls_that_met_a_stall_is_corrected() -> None:
    """A call of 100 us that was taken for one of 8 ms gets rounds of many calls, and keeps them."""
    mistaken = plan_loops(8e-3, launch_s=LAUNCH_S)
    rounds = [1.0e-4] * 20 + [8e-3] * 5

    better = corrected(mistaken, rounds, rounds, launch_s=LAUNCH_S)

    assert 1 == mistaken.loops
    assert plan_loops(1e-4, launch_s=LAUNCH_S) == better
    assert better == corrected(better, rounds, rounds, launch_s=LAUNCH_S)


def test_a_side_that_is_slower_by_far_is_no_mistake() -> None:
    """The plan is made for the slower side, and holds whichever side that is."""
    plan = plan_loops(1e-2, launch_s=LAUNCH_S)

    assert plan == corrected(plan, [1e-4] * 6, [1e-2] * 6, launch_s=LAUNCH_S)
    assert plan == corrected(plan, [1e-2] * 6, [1e-4] * 6, launch_s=LAUNCH_S)
    assert plan == corrected(plan, [6e-3] * 6, [1.9e-2] * 6, launch_s=LAUNCH_S)


@pytest.mark.parametrize(
    ("seen_s", "stays"), [(2.01e-2, False), (2e-2, True), (1.5e-2, True), (5e-3, True), (4.99e-3, False)]
)
def test_a_plan_stays_within_a_factor_of_two(seen_s: float, *, stays: bool) -> None:
    """Of calls that were taken for ones of 10 ms: what is within it is the noise of a machine."""
    plan = plan_loops(1e-2, launch_s=LAUNCH_S)

    assert stays == (plan == corrected(plan, [seen_s] * 5, [seen_s] * 5, launch_s=LAUNCH_S))


def test_a_corrected_plan_keeps_what_is_known_of_the_benchmark() -> None:
    """That processes work for it, and after how many calls its accelerator has warmed up."""
    mistaken = replace(plan_loops(1e-2, launch_s=LAUNCH_S, pipeline=True), warmup=7)

    better = corrected(mistaken, [1e-4] * 5, [1e-4] * 5, launch_s=LAUNCH_S)

    assert replace(plan_loops(1e-4, launch_s=LAUNCH_S, pipeline=True), warmup=7) == better


def test_a_launch_begins_with_what_warms_up_its_accelerator_too() -> None:
    """Whichever takes more untimed calls: the copies of a fork, or an accelerator; at first none is known."""
    plan = plan_loops(1e-3, launch_s=LAUNCH_S)

    assert (5, 0, 5) == (plan.first_untimed, plan.warmup, plan.begins_with)
    assert [5, 5, 6] == [replace(plan, warmup=warmup).begins_with for warmup in (1, 5, 6)]


def test_what_a_benchmark_fixes_itself_is_never_corrected() -> None:
    """Its own loops and rounds stay, however long they take."""
    counted = plan_loops(1.0, launch_s=LAUNCH_S, most_rounds=5)
    looped = plan_loops(1.0, launch_s=LAUNCH_S, fixed_loops=3)

    assert (counted, looped) == tuple(
        corrected(plan, [1e-5] * 6, [1e-5] * 6, launch_s=LAUNCH_S) for plan in (counted, looped)
    )
