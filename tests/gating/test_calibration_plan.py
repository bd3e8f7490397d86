"""The plan of a calibration has every gate and plant that was asked for, in a random order."""

from __future__ import annotations

from collections import Counter

from perfkit.gating.aa_runs import plan_cases

NAMES = ("a", "b", "c")


def test_each_kind_has_its_number_and_each_benchmark_its_turn() -> None:
    cases = plan_cases(NAMES, gates=7, slowdowns=(0.03, 0.05), seed=1)

    assert Counter({None: 7, 0.03: 7, 0.05: 7}) == Counter(case.slowdown for case in cases)
    for plant in (0.03, 0.05):
        turns = Counter(case.benchmark for case in cases if case.slowdown == plant)
        assert {2, 3} == set(turns.values())
    assert all((case.slowdown is None) == (case.benchmark is None) for case in cases)
    assert list(range(1, 22)) == [case.number for case in cases]


def test_the_order_is_drawn_from_the_seed() -> None:
    first, again, other = (plan_cases(NAMES, gates=9, slowdowns=(0.05,), seed=seed) for seed in (1, 1, 2))

    assert first == again
    assert first != other
    assert [case.slowdown for case in first] != sorted((case.slowdown for case in first), key=str)
