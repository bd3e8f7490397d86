"""Numbers that benchmarks measure instead of times are distinguished by where all their values lie."""

from __future__ import annotations

import pytest

from perfkit.gating.counter_verdicts import compare_count, numbers_that_decide
from perfkit.model import Benchmark
from perfkit.runner.agent.counters.model import PEAK_MEMORY, TRACKED, Count

BENCHMARK = Benchmark(name="benchmarks/a.py::peakmem_a", version="1")


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        ((100, 101, 102), (105, 106, 107), "REGRESSED"),
        ((105, 106, 107), (100, 101, 102), "IMPROVED"),
        ((100, 101, 100), (101, 100, 101), "UNCHANGED"),
        ((100, 110, 120), (115, 125, 135), "INCONCLUSIVE"),
        ((-5, -5, -5), (-5, -5, -5), "UNCHANGED"),
        ((-5, -5, -5), (-4, -4, -4), "REGRESSED"),
        ((0, 0, 0), (0, 0, 0), "UNCHANGED"),
        ((0, 0, 0), (1, 1, 1), "REGRESSED"),
    ],
)
def test_all_values_decide(base: tuple[float, ...], head: tuple[float, ...], verdict: str) -> None:
    old, new = (Count(metric=PEAK_MEMORY, unit="B", values=values, causes=()) for values in (base, head))
    found = compare_count(BENCHMARK, old, new, margin=0.02, gating=True)
    assert (verdict, True) == (found.verdict, found.gating)


def test_a_repeated_value_is_exact() -> None:
    old, new = (Count(metric=TRACKED, unit="1", values=(v, v), causes=()) for v in (10.0, 20.0))
    found = compare_count(BENCHMARK, old, new, margin=0.02, gating=True)
    assert ("REGRESSED", True, 10.0, 20.0) == (found.verdict, found.metric.exact, found.base, found.head)


@pytest.mark.parametrize(
    ("error", "launches"), [(0.01, 5), (0.01 / 20, 8), (0.5, 3), (2 / 20, 3), (2 / 70, 4)]
)
def test_launches_follow_from_the_error(error: float, launches: int) -> None:
    assert launches == numbers_that_decide(error)


@pytest.mark.parametrize(
    ("base", "head", "verdict"),
    [
        # Exactly by the margin is not beyond it.
        ((100, 100), (102, 102), "UNCHANGED"),
        ((100, 100), (98, 98), "UNCHANGED"),
        ((100, 100), (98, 103), "INCONCLUSIVE"),
        ((-100, -100), (-97, -97), "REGRESSED"),
        ((-100, -100), (-103, -103), "IMPROVED"),
    ],
)
def test_a_number_may_move_by_the_margin(
    base: tuple[float, ...], head: tuple[float, ...], verdict: str
) -> None:
    old, new = (Count(metric=TRACKED, unit="1", values=values, causes=()) for values in (base, head))

    assert verdict == compare_count(BENCHMARK, old, new, margin=0.02, gating=True).verdict
