"""The machine's part in the levels of many benchmarks: it is taken off, and reported as the machine's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from perfkit.stats.change_points import FloatArray, find_steps, remove_common_factor

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
    table = _table(machine=_hours())

    left = remove_common_factor(table)

    assert all(_spread(column) < 0.012 for column in left.levels.T)
    assert all(_spread(column) > 0.02 for column in table.T)
    assert pytest.approx(np.linspace(0.5, 1.5, BENCHMARKS), abs=0.2) == np.array(left.slopes)


def test_a_step_of_one_benchmark_stays_its_own() -> None:
    table = _table(machine=_hours())
    table[70:, 2] *= 1.05

    left = remove_common_factor(table)

    (step,) = find_steps(left.levels[:, 2])
    assert step.place == 70
    assert step.low < 1.05 < step.high
    assert [()] * 5 == [find_steps(left.levels[:, column]) for column in (0, 1, 3, 4, 5)]
    assert () == left.machine_steps()


def test_a_step_of_all_is_the_machines() -> None:
    table = _table(machine=np.where(np.arange(RUNS) < 60, 1.0, 1.08))

    left = remove_common_factor(table)

    (step,) = left.machine_steps()
    assert step.place == 60
    assert step.low < 1.08 < step.high
    assert all(find_steps(column) == () for column in left.levels.T)
    assert all(len(find_steps(column)) == 1 for column in table.T)


def test_runs_need_not_have_measured_each_benchmark() -> None:
    table = _table(machine=_hours())
    missing = np.random.default_rng(1).random(table.shape) < 1 / 3
    table[missing] = np.nan

    left = remove_common_factor(table)

    assert np.array_equal(missing, np.isnan(left.levels))
    assert all(
        _spread(column) < 0.6 * _spread(before) for column, before in zip(left.levels.T, table.T, strict=True)
    )


def test_benchmarks_that_came_later_make_no_step_of_the_machine() -> None:
    table = _table(machine=np.where(np.arange(RUNS) < 60, 1.0, 1.1))
    table[:80, :2] = np.nan

    left = remove_common_factor(table)

    assert [60] == [step.place for step in left.machine_steps()]
    assert all(find_steps(column[np.isfinite(column)]) == () for column in left.levels.T)


@pytest.mark.parametrize("step", [1.03, 1.1, 1.3])
def test_a_benchmarks_own_step_does_not_tilt_what_it_follows(step: float) -> None:
    source = np.random.default_rng(3)
    table = np.exp(source.normal(0, 0.005, (40, 6)) + source.normal(0, 0.08, (40, 1)))
    table[20:, 0] *= step

    left = remove_common_factor(table)

    assert 0.9 < left.slopes[0] < 1.1
    assert [20] == [found.place for found in find_steps(left.levels[:, 0])]


def test_too_few_others_leave_a_benchmark_as_it_is() -> None:
    table = _table(machine=_hours())[:, :3]

    left = remove_common_factor(table)

    assert np.array_equal(table, left.levels) or pytest.approx(table) == left.levels
    assert (0.0, 0.0, 0.0) == left.slopes
    assert np.isnan(left.factor).all()
    assert () == left.machine_steps()


def test_a_benchmark_measured_apart_from_the_others_stays_as_it_is() -> None:
    table = _table(machine=_hours())
    table[::2, 0] = np.nan
    table[1::2, 1:] = np.nan

    left = remove_common_factor(table)

    assert left.slopes[0] == 0
    assert pytest.approx(table[1::2, 0]) == left.levels[1::2, 0]


def _exact(factor: Sequence[float], *, first: Sequence[float], others: int = 4) -> FloatArray:
    """Return levels without noise from logarithms: some that follow a factor wholly, behind a first one."""
    return np.asarray(np.exp(np.column_stack([first, *[factor] * others])))


@pytest.mark.parametrize(
    ("slope", "follows"), [(2.0, 3.0), (2.0, 2.0), (1.5, 1.5), (0.4, 0.4), (0.0, 0.0), (0.0, -0.5)]
)
def test_a_benchmark_follows_the_machine_up_to_twice_as_much(slope: float, follows: float) -> None:
    factor = np.where(np.arange(60) % 10 == 5, 0.1, 0.0)

    left = remove_common_factor(_exact(factor.tolist(), first=(follows * factor).tolist()))

    assert pytest.approx((slope, 1.0, 1.0, 1.0, 1.0)) == left.slopes
    assert pytest.approx((follows - slope) * factor) == np.log(left.levels[:, 0])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("runs", [0, 1, 2, 3])
@pytest.mark.parametrize("benchmarks", [0, 1, 2, 5])
def test_few_runs_and_few_benchmarks_have_nothing_taken_off(runs: int, benchmarks: int) -> None:
    table = np.exp(np.random.default_rng(1).normal(0, 0.1, (runs, benchmarks)))

    left = remove_common_factor(table)

    assert pytest.approx(table) == left.levels
    assert (0.0,) * benchmarks == left.slopes


def test_units_and_order_of_benchmarks_change_nothing() -> None:
    table = _table(machine=_hours())
    order = [3, 0, 5, 1, 4, 2]

    left, scaled, turned = (remove_common_factor(one) for one in (table, 1e3 * table, table[:, order]))

    assert pytest.approx(1e3 * left.levels) == scaled.levels
    assert pytest.approx(left.levels[:, order]) == turned.levels
    assert pytest.approx(left.factor) == scaled.factor


@pytest.mark.parametrize("table", [[[1.0, 0.0]], [[1.0, -1.0]], [[1.0, math.inf]], [1.0, 2.0], [[[1.0]]]])
def test_levels_that_are_none_are_refused(table: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="table of levels above zero"):
        remove_common_factor(table)
