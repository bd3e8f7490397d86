"""The machine's part in the levels of many benchmarks: it is taken off, and told of the machine."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

import numpy as np
import pytest

from perfkit.stats.change_points import FloatArray, find_steps
from perfkit.stats.common_factor import remove_common_factor

RUNS, BENCHMARKS = 120, 6


def _table(*, machine: FloatArray | None = None, seed: int = 0, sd: float = 0.005) -> FloatArray:
    """Return levels of six benchmarks between 1 µs and 1 s, each of which follows the machine as it may."""
    source = np.random.default_rng(seed)
    noise = sd * source.standard_normal((RUNS, BENCHMARKS))
    follows = np.linspace(0.5, 1.5, BENCHMARKS)
    factor = np.zeros(RUNS) if machine is None else np.log(machine)
    return np.asarray(np.logspace(-6, 0, BENCHMARKS) * np.exp(noise + np.outer(factor, follows)))


def _hours() -> FloatArray:
    """Return a machine that wanders by some percent, with slow moments."""
    source = np.random.default_rng(9)
    logs = 0.01 * np.cumsum(source.standard_normal(RUNS)) + 0.3 * (source.random(RUNS) < 0.05)
    return np.asarray(np.exp(logs))


def _spread(levels: FloatArray) -> float:
    """Return the relative deviation of levels by their median absolute deviation."""
    logs = np.log(levels[np.isfinite(levels)])
    return float(1.4826 * np.median(np.abs(logs - np.median(logs))))


def test_what_the_machine_did_is_taken_off() -> None:
    """What is left scatters like the runs themselves, for those that follow it little or much."""
    table = _table(machine=_hours())

    left = remove_common_factor(table)

    assert all(_spread(column) < 0.012 for column in left.levels.T)
    assert all(_spread(column) > 0.02 for column in table.T)
    assert pytest.approx(np.linspace(0.5, 1.5, BENCHMARKS), abs=0.2) == np.array(left.slopes)


def test_a_step_of_one_benchmark_stays_its_own() -> None:
    """A step of 5 % on a wandering machine is found at its size, in no other one, and not in the machine."""
    table = _table(machine=_hours())
    table[70:, 2] *= 1.05

    left = remove_common_factor(table)

    (step,) = find_steps(left.levels[:, 2])
    assert step.place == 70
    assert step.low < 1.05 < step.high
    assert [()] * 5 == [find_steps(left.levels[:, column]) for column in (0, 1, 3, 4, 5)]
    assert () == left.machine_steps()


def test_a_step_of_all_is_the_machines() -> None:
    """Where all benchmarks slow down together it is a step of the factor, and of no benchmark."""
    table = _table(machine=np.where(np.arange(RUNS) < 60, 1.0, 1.08))

    left = remove_common_factor(table)

    (step,) = left.machine_steps()
    assert step.place == 60
    assert step.low < 1.08 < step.high
    assert all(find_steps(column) == () for column in left.levels.T)
    assert all(len(find_steps(column)) == 1 for column in table.T)


def test_runs_need_not_have_measured_each_benchmark() -> None:
    """With a third of the cells missing the factor is still taken off, and what is missing stays so."""
    table = _table(machine=_hours())
    missing = np.random.default_rng(1).random(table.shape) < 1 / 3
    table[missing] = np.nan

    left = remove_common_factor(table)

    assert np.array_equal(missing, np.isnan(left.levels))
    assert all(
        _spread(column) < 0.6 * _spread(before) for column, before in zip(left.levels.T, table.T, strict=True)
    )


def test_benchmarks_that_came_later_make_no_step_of_the_machine() -> None:
    """A machine that was slow before half of the benchmarks existed is told as one that became faster."""
    table = _table(machine=np.where(np.arange(RUNS) < 60, 1.0, 1.1))
    table[:80, :2] = np.nan

    left = remove_common_factor(table)

    assert [60] == [step.place for step in left.machine_steps()]
    assert all(find_steps(column[np.isfinite(column)]) == () for column in left.levels.T)


@pytest.mark.parametrize("step", [1.03, 1.1, 1.3])
def test_a_benchmarks_own_step_does_not_tilt_what_it_follows(step: float) -> None:
    """It follows the machine as before, so that the step stands out from what the machine scatters by."""
    source = np.random.default_rng(3)
    table = np.exp(source.normal(0, 0.005, (40, 6)) + source.normal(0, 0.08, (40, 1)))
    table[20:, 0] *= step

    left = remove_common_factor(table)

    assert 0.9 < left.slopes[0] < 1.1
    assert [20] == [found.place for found in find_steps(left.levels[:, 0])]


def test_too_few_others_leave_a_benchmark_as_it_is() -> None:
    """Of three benchmarks none can be compared with three others."""
    table = _table(machine=_hours())[:, :3]

    left = remove_common_factor(table)

    assert np.array_equal(table, left.levels) or pytest.approx(table) == left.levels
    assert (0.0, 0.0, 0.0) == left.slopes
    assert np.isnan(left.factor).all()
    assert () == left.machine_steps()


def test_a_benchmark_measured_apart_from_the_others_stays_as_it_is() -> None:
    """Its runs hold no other, so nothing is known of their machine."""
    table = _table(machine=_hours())
    table[::2, 0] = np.nan
    table[1::2, 1:] = np.nan

    left = remove_common_factor(table)

    assert left.slopes[0] == 0
    assert pytest.approx(table[1::2, 0]) == left.levels[1::2, 0]


def _exact(factor: Sequence[float], *, first: Sequence[float], others: int = 4) -> FloatArray:
    """Return levels without noise from logarithms: some that follow a factor wholly, behind a first one."""
    return np.asarray(np.exp(np.column_stack([first, *[factor] * others])))


@pytest.mark.parametrize("seed", range(5))
def test_a_run_is_compared_with_the_median_of_its_other_benchmarks(seed: int) -> None:
    """Of three to seven others that were measured it is the one in the middle, or lies between two."""
    source = np.random.default_rng(seed)
    logs = np.zeros((90, 8))
    # In every third run the machine is slow, and each benchmark has some noise of its own.
    logs[::3] = source.choice([0.2, 0.4, 0.8], (30, 1)) + source.normal(0, 0.02, (30, 8))
    logs[::3][source.random((30, 8)) < 0.35] = np.nan

    left = remove_common_factor(np.exp(logs))

    for run in range(0, 90, 3):
        measured = logs[run, np.isfinite(logs[run])].tolist()
        known = len(measured) >= 4
        expected = math.exp(statistics.median(measured)) if known else math.nan
        assert expected == pytest.approx(float(left.factor[run]), nan_ok=True)
        for column in np.flatnonzero(np.isfinite(logs[run])) if known else ():
            own = logs[run, column]
            taken_off = left.slopes[column] * statistics.median([one for one in measured if one != own])
            assert own - taken_off == pytest.approx(math.log(left.levels[run, column]))


def test_between_runs_that_lack_others_the_factor_lies_between_those_around() -> None:
    """A run that measured one benchmark alone lies in the same hour as its neighbours."""
    factor = [0.0] * 20 + [0.2, 0.3, 0.4] + [0.0] * 20
    table = _exact(factor, first=factor)
    table[21, 1:] = np.nan

    left = remove_common_factor(table)

    assert np.isnan(left.factor[21])
    assert pytest.approx(1.0) == left.levels[21, 0]


@pytest.mark.parametrize(("known", "slope"), [(60, 1.0), (59, 0.0)])
def test_a_benchmark_with_others_in_half_of_its_runs_is_compared(known: int, slope: float) -> None:
    """In fewer of them it stays as it is."""
    factor = np.where(np.arange(120) % 10 == 0, 0.3, 0.0)
    table = _exact(factor.tolist(), first=factor.tolist())
    table[known:, 1:] = np.nan

    assert pytest.approx(slope) == remove_common_factor(table).slopes[0]


@pytest.mark.parametrize(
    ("slope", "follows"), [(2.0, 3.0), (2.0, 2.0), (1.5, 1.5), (0.4, 0.4), (0.0, 0.0), (0.0, -0.5)]
)
def test_a_benchmark_follows_the_machine_up_to_twice_as_much(slope: float, follows: float) -> None:
    """What moves the other way, or by more, does so by chance."""
    factor = np.where(np.arange(60) % 10 == 5, 0.1, 0.0)

    left = remove_common_factor(_exact(factor.tolist(), first=(follows * factor).tolist()))

    assert pytest.approx((slope, 1.0, 1.0, 1.0, 1.0)) == left.slopes
    assert pytest.approx((follows - slope) * factor) == np.log(left.levels[:, 0])


@pytest.mark.parametrize(("steep", "slope"), [(8, 0.0), (9, 1.0), (11, 1.0), (12, 2.0)])
def test_a_benchmark_is_taken_to_follow_as_others_do_where_its_moves_are_no_clearer(
    steep: int, slope: float
) -> None:
    """Of twenty moves of the machine it follows some twice as much, and the others not at all."""
    factor, first = np.zeros(1000), np.zeros(1000)
    factor[25::50], first[25 : 50 * steep : 50] = 0.1, 0.2

    assert slope == pytest.approx(
        remove_common_factor(_exact(factor.tolist(), first=first.tolist())).slopes[0]
    )


def test_a_slope_is_that_of_most_moves() -> None:
    """Three runs before a slow one say 1.2, 1.5 and 1.8: the one in the middle, by the weight of its move."""
    left = remove_common_factor(_exact([0.0, 0.0, 0.0, 0.1], first=[0.06, 0.03, 0.0, 0.18]))

    assert pytest.approx(1.5) == left.slopes[0]


@pytest.mark.parametrize(("moved", "slope"), [(2.9, 0.0), (3.1, 0.6), (4.0, 0.6)])
def test_what_the_machine_usually_does_from_run_to_run_tells_no_slope(moved: float, slope: float) -> None:
    """It moved where it did so by more than three times as much, and then the benchmark is seen to follow."""
    factor = np.where(np.arange(40) % 2 == 0, 0.0, 0.01)
    factor[20] = 0.01 * moved

    left = remove_common_factor(_exact(factor.tolist(), first=(0.6 * factor).tolist()))

    assert pytest.approx(slope) == left.slopes[0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("runs", [0, 1, 2, 3])
@pytest.mark.parametrize("benchmarks", [0, 1, 2, 5])
def test_few_runs_and_few_benchmarks_have_nothing_taken_off(runs: int, benchmarks: int) -> None:
    """What a machine usually does cannot be told from them."""
    table = np.exp(np.random.default_rng(1).normal(0, 0.1, (runs, benchmarks)))

    left = remove_common_factor(table)

    assert pytest.approx(table) == left.levels
    assert (0.0,) * benchmarks == left.slopes


def test_units_and_order_of_benchmarks_change_nothing() -> None:
    """In other units the levels are so too; in another order they are the same."""
    table = _table(machine=_hours())
    order = [3, 0, 5, 1, 4, 2]

    left, scaled, turned = (remove_common_factor(one) for one in (table, 1e3 * table, table[:, order]))

    assert pytest.approx(1e3 * left.levels) == scaled.levels
    assert pytest.approx(left.levels[:, order]) == turned.levels
    assert pytest.approx(left.factor) == scaled.factor


def test_without_noise_nothing_is_undefined() -> None:
    """Benchmarks that repeat to the digit, and none at all, are returned as they are."""
    same = remove_common_factor(np.ones((20, 5)))

    assert np.array_equal(np.ones((20, 5)), same.levels)
    assert np.array_equal(np.ones(20), same.factor)
    assert (0.0,) * 5 == same.slopes
    assert (0, 4) == remove_common_factor(np.ones((0, 4))).levels.shape
    assert (3, 0) == remove_common_factor(np.ones((3, 0))).levels.shape


@pytest.mark.parametrize("table", [[[1.0, 0.0]], [[1.0, -1.0]], [[1.0, math.inf]], [1.0, 2.0], [[[1.0]]]])
def test_levels_that_are_none_are_refused(table: list[list[float]]) -> None:
    """A zero, a negative or an infinite level is a mistake of the caller, and so is a single trend."""
    with pytest.raises(ValueError, match="table of levels above zero"):
        remove_common_factor(table)
