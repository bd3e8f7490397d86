"""How long a benchmark is measured in a launch, in which order, and which rounds are kept."""

from __future__ import annotations

import itertools
import math
import statistics
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfkit.agent.clock import DeviceTimes
from perfkit.model import SIDES, Side
from perfkit.runner.lockstep import turns
from perfkit.runner.lockstep.launch import Slot, schedule
from perfkit.runner.lockstep.runner import Runner
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
    return 2 * plan.turns * (plan.untimed + plan.rounds * plan.loops) * iteration_s


@given(iteration_times)
def test_a_round_is_long_against_the_clock(iteration_s: float) -> None:
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


@pytest.mark.parametrize(("iteration_s", "rounds"), [(0.06, 4), (0.1, 4), (0.25, 1), (0.3, 1), (5.0, 1)])
def test_a_slow_call_has_few_rounds_in_each_launch(iteration_s: float, rounds: int) -> None:
    plan = plan_loops(iteration_s, launch_s=0.05)

    assert (rounds, rounds) == (plan.turns * plan.rounds, plan.most_turns * plan.rounds)


@pytest.mark.parametrize("pipeline", [False, True])
@given(iteration_s=st.floats(1e-8, 0.15))
@example(iteration_s=0.15)
def test_each_turn_warms_up_for_the_same_time(*, iteration_s: float, pipeline: bool) -> None:
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S, pipeline=pipeline)

    least_s = 0.002 if plan.slices == 1 else 0.001
    assert least_s <= plan.untimed * iteration_s * (1 + 1e-9) < least_s + 2 * iteration_s
    assert 0.005 <= plan.first_untimed * iteration_s * (1 + 1e-9) < 0.005 + 2 * iteration_s


@given(iteration_times, st.integers(1, 50), st.integers(1, 50))
def test_a_benchmark_that_counts_its_calls_gets_those_and_no_more(
    iteration_s: float, rounds: int, loops: int
) -> None:
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S, fixed_loops=loops, most_rounds=rounds)

    untimed = plan.first_untimed + (plan.turns - 1) * plan.untimed
    calls = untimed + plan.turns * plan.rounds * plan.loops
    assert (rounds * loops, loops) == (calls, plan.loops)


@given(iteration_times)
def test_a_round_of_short_calls_is_timed_in_slices(iteration_s: float) -> None:
    plan = plan_loops(iteration_s, launch_s=LAUNCH_S)

    assert 0 == plan.loops % plan.slices
    in_slice = plan.loops // plan.slices
    assert 1 == plan.slices or 4 <= plan.slices
    assert 1 == plan.slices or 1 == in_slice or 0.00016 <= in_slice * iteration_s <= 0.00034
    assert (plan.slices > 1) == (iteration_s <= 0.005)


def test_rounds_that_are_not_ours_to_part_have_one_slice() -> None:
    given_rounds = plan_loops(1e-5, launch_s=LAUNCH_S, fixed_loops=500)
    counted = plan_loops(1e-5, launch_s=LAUNCH_S, most_rounds=9)
    piped = plan_loops(1e-5, launch_s=LAUNCH_S, pipeline=True)

    assert [1, 1, 1] == [plan.slices for plan in (given_rounds, counted, piped)]
    assert [500, 1] == [plan.loops for plan in (given_rounds, counted)]


def test_scattered_rounds_ask_for_more_until_there_are_many() -> None:
    base, head = [1e-3, 1e-3, 1e-3, 1e-3], [1e-3, 1.04e-3, 0.96e-3, 1.02e-3]

    assert not is_precise(base, head)
    assert is_precise(base * 10, head * 10)


@given(st.lists(st.tuples(st.floats(1e-7, 1.0), st.floats(1e-7, 1.0)), min_size=3, max_size=30))
def test_stopping_favours_no_side(rounds: list[tuple[float, float]]) -> None:
    base, head = zip(*rounds, strict=True)

    assert is_precise(base, head) == is_precise(head, base)


@pytest.mark.parametrize("count", [101, 1000])
def test_the_error_of_a_median_is_that_of_normal_values(count: int) -> None:
    normal = statistics.NormalDist(mu=5.0, sigma=0.2)
    values = [normal.inv_cdf((place + 0.5) / count) for place in range(count)]

    assert pytest.approx(0.2 * math.sqrt(math.pi / 2 / count), rel=0.02) == error_of_median(values)


def test_a_plan_from_calls_that_met_a_stall_is_corrected() -> None:
    mistaken = plan_loops(8e-3, launch_s=LAUNCH_S)
    rounds = [1.0e-4] * 20 + [8e-3] * 5

    better = corrected(mistaken, rounds, rounds, launch_s=LAUNCH_S)

    assert 1 == mistaken.loops
    assert plan_loops(1e-4, launch_s=LAUNCH_S) == better
    assert better == corrected(better, rounds, rounds, launch_s=LAUNCH_S)


@pytest.mark.parametrize(
    ("seen_s", "stays"), [(2.01e-2, False), (2e-2, True), (1.5e-2, True), (5e-3, True), (4.99e-3, False)]
)
def test_a_plan_stays_within_a_factor_of_two(seen_s: float, *, stays: bool) -> None:
    plan = plan_loops(1e-2, launch_s=LAUNCH_S)

    assert stays == (plan == corrected(plan, [seen_s] * 5, [seen_s] * 5, launch_s=LAUNCH_S))


def test_a_corrected_plan_keeps_what_is_known_of_the_benchmark() -> None:
    mistaken = replace(plan_loops(1e-2, launch_s=LAUNCH_S, pipeline=True), warmup=7)

    better = corrected(mistaken, [1e-4] * 5, [1e-4] * 5, launch_s=LAUNCH_S)

    assert replace(plan_loops(1e-4, launch_s=LAUNCH_S, pipeline=True), warmup=7) == better


def test_what_a_benchmark_fixes_itself_is_never_corrected() -> None:
    counted = plan_loops(1.0, launch_s=LAUNCH_S, most_rounds=5)
    looped = plan_loops(1.0, launch_s=LAUNCH_S, fixed_loops=3)

    assert (counted, looped) == tuple(
        corrected(plan, [1e-5] * 6, [1e-5] * 6, launch_s=LAUNCH_S) for plan in (counted, looped)
    )


PLAN = plan_loops(1e-5, launch_s=0.1)


def _runner(side: Side, values: list[float], typical: list[float]) -> Runner:
    runner = Runner(SimpleNamespace(side=side), "test_it", limit_s=1.0)  # type: ignore[arg-type]
    runner.values, runner.typical = values, typical
    return runner


@pytest.mark.parametrize(
    ("base_typical", "head_typical", "kept"),
    [
        ([1.0, 2.0], [1.5, 2.5], ((1.0, 2.0), (1.5, 2.5))),
        ([1.0, 2.0], [], ((), ())),
        ([1.0, 2.0], [1.5], ((), ())),
        ([], [], ((), ())),
    ],
)
def test_typical_times_are_kept_where_every_round_has_them(
    base_typical: list[float], head_typical: list[float], kept: tuple[tuple[float, ...], tuple[float, ...]]
) -> None:
    values = {"base": [1.2, 2.2], "head": [1.7, 2.7]}
    runners = {
        side: _runner(side, values[side], typical)
        for side, typical in zip(SIDES, (base_typical, head_typical), strict=True)
    }

    timing = turns.timing_of(runners, PLAN)

    assert kept == (timing.base_typical_s, timing.head_typical_s)
    assert ((1.2, 2.2), (1.7, 2.7)) == (timing.base_s, timing.head_s)


def test_times_of_the_device_are_kept_where_every_round_has_them() -> None:
    runners = {side: _runner(side, [1.0, 2.0], []) for side in SIDES}
    runners["base"].host_s, runners["base"].device_s = [0.1, 0.2], [0.9, 1.9]
    runners["head"].host_s, runners["head"].marks = [0.2], {"launch-bound"}

    timing = turns.timing_of(runners, PLAN)

    assert {
        "base": DeviceTimes(host_s=(0.1, 0.2), device_s=(0.9, 1.9)),
        "head": DeviceTimes(marks=("launch-bound",)),
    } == timing.devices


def test_without_an_accelerator_a_launch_has_no_device_times() -> None:
    assert {} == turns.timing_of({side: _runner(side, [1.0], []) for side in SIDES}, PLAN).devices


@pytest.mark.parametrize(
    ("waited_s", "rounds_s", "seconds"),
    [
        ((), (), 0.0),
        ((0.0, 0.0, 3.0, 0.001), (0.005, 0.005, 3.005, 0.006), 3.0),
        ((0.004, 0.004, 0.1, 0.15), (0.005, 0.005, 0.101, 0.151), 0.0),
        ((2.0, 2.5, 3.0), (2.1, 2.6, 3.1), 0.0),
        ((2.0, 2.0, 5.5), (2.1, 2.1, 5.6), 3.5),
    ],
)
def test_a_round_that_stands_still_is_distinguished_from_one_that_waits(
    waited_s: tuple[float, ...], rounds_s: tuple[float, ...], seconds: float
) -> None:
    assert seconds == pytest.approx(turns.stood_still(waited_s, rounds_s), abs=0.01)


def first_slots(seed: int, count: int) -> list[Slot]:
    return list(itertools.islice(schedule(seed=seed), count))


@given(st.integers(0, 2**32), st.integers(1, 20))
def test_each_block_of_four_has_every_combination_once(seed: int, blocks: int) -> None:
    slots = first_slots(seed, 4 * blocks)

    for block in range(blocks):
        orders = {(slot.forked_first, slot.begins) for slot in slots if slot.block == block}
        assert 4 == len(orders)
    assert list(range(4 * blocks)) == [slot.launch for slot in slots]


def test_a_seed_draws_its_own_order_again_and_again() -> None:
    drawn = {tuple(first_slots(seed, 12)) for seed in range(10)}

    assert first_slots(7, 40) == first_slots(7, 40)
    assert 10 == len(drawn)
