"""The result of a trick follows from its measurements."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from perfkit.features.tricks.command import LOOKS
from perfkit.features.tricks.records import Equivalence, TrickCase
from perfkit.features.tricks.verdict import (
    TrickResult,
    helping,
    interactions,
    ranked,
    size_crossings,
    suggested,
)
from perfkit.gating.judge import compare
from perfkit.model import Benchmark, Metric
from perfkit.model.comparisons import Comparison, Estimate, ExactComparison, LaunchPair, Policy, Verdict

SAME = Equivalence(equal=True, largest=0.0)
POLICY = Policy(alpha=0.01, family=27, looks=LOOKS)


def _comparison(verdict: Verdict, ratio: float | None = None) -> Comparison:
    estimate = (
        Estimate(ratio=ratio, low=ratio, high=ratio, confidence=0.99, launches=10, launch_sd=0.01)
        if ratio
        else None
    )
    return Comparison(
        benchmark=Benchmark(name="one", version="1"), verdict=verdict, margin=0.02, estimate=estimate
    )


def _result(
    verdict: Verdict,
    ratio: float | None = None,
    *,
    name: str = "one",
    size: int = 1,
    same: Equivalence = SAME,
) -> TrickResult:
    case = TrickCase(trick=name, size=size, title=name, size_means="rows")
    return TrickResult(case=case, comparison=_comparison(verdict, ratio), equivalence=same)


@pytest.mark.parametrize(
    ("verdict", "answer"),
    [
        ("IMPROVED", "helps"),
        ("REGRESSED", "hurts"),
        ("UNCHANGED", "no difference"),
        ("INCONCLUSIVE", "cannot tell"),
        ("NOT REACHED", "cannot tell"),
        ("FAILED", "failed"),
        ("TIMEOUT", "failed"),
    ],
)
def test_each_verdict_is_an_answer(verdict: Verdict, answer: str) -> None:
    assert answer == _result(verdict).answer


def test_sides_that_differ_have_no_answer() -> None:
    assert "not the same" == _result("IMPROVED", 0.5, same=Equivalence(equal=False, largest=7.0)).answer
    assert "failed" == _result("IMPROVED", 0.5, same=Equivalence(equal=False, problem="broken")).answer


def test_those_that_help_most_come_first() -> None:
    results = [
        _result("FAILED", name="g"),
        _result("INCONCLUSIVE", 1.1, name="f"),
        _result("NOT REACHED", name="e"),
        _result("REGRESSED", 1.3, name="c"),
        _result("UNCHANGED", 1.0, name="d"),
        _result("IMPROVED", 0.9, name="b"),
        _result("IMPROVED", 0.5, name="a"),
    ]

    assert list("abcdefg") == [one.case.trick for one in ranked(results)]


def test_where_the_answer_turns() -> None:
    results = [
        _result("REGRESSED", 2.0, size=4),
        _result("INCONCLUSIVE", 1.01, size=16),
        _result("IMPROVED", 0.5, size=64),
        _result("IMPROVED", 0.5, name="other", size=4),
        _result("IMPROVED", 0.4, name="other", size=64),
    ]

    (found,) = size_crossings(results)

    assert ("one", 4, 64, True) == (found.trick, found.below, found.above, found.helps_above)
    assert found.size == pytest.approx(16)


def _count(metric: str, base: float | None, head: float | None) -> ExactComparison:
    return ExactComparison(
        benchmark=Benchmark(name="one", version="1"),
        metric=Metric(name=metric, unit="B", exact=True),
        verdict="UNCHANGED",
        margin=0.05,
        gating=False,
        base=base,
        head=head,
    )


@pytest.mark.parametrize(
    ("counts", "moved"),
    [
        ([], None),
        ([_count("allocated", 7.0, 9.0)], None),
        ([_count("allocated", 7.0, 9.0), _count("peak", 100.0, 60.0)], -40.0),
        ([_count("peak", None, 60.0)], None),
        ([_count("peak", 100.0, None)], None),
    ],
)
def test_the_peak_is_reported_where_both_sides_have_one(
    counts: list[ExactComparison], moved: float | None
) -> None:
    assert moved == replace(_result("UNCHANGED", 1.0), exact=tuple(counts)).peak_moved


@pytest.mark.parametrize("sd", [0.005, 0.03])
def test_identical_sides_never_help_in_a_hundred_simulated_runs(sd: float) -> None:
    source = random.Random(7)  # noqa: S311 (a simulation)
    found = set()
    for _ in range(100):
        pairs: list[LaunchPair] = []
        for look in POLICY.looks:
            while len(pairs) < look:
                base, head = (
                    tuple(source.lognormvariate(0, sd) * drift for _ in range(9))
                    for drift in (source.lognormvariate(0, sd), source.lognormvariate(0, sd))
                )
                pairs.append(LaunchPair(launch=len(pairs), preloader=len(pairs), base_s=base, head_s=head))
            judged = compare(Benchmark(name="one", version="1"), pairs, POLICY, margin=0.02)
            found.add(TrickResult(case=_result("UNCHANGED").case, comparison=judged, equivalence=SAME).answer)
            if judged.verdict != "INCONCLUSIVE":
                break

    assert found <= {"no difference", "cannot tell"}


def _on_loop(
    verdict: Verdict, ratio: float, name: str, *, low: float | None = None, high: float | None = None
) -> TrickResult:
    estimate = Estimate(
        ratio=ratio, low=low or ratio, high=high or ratio, confidence=0.99, launches=10, launch_sd=0.01
    )
    found = replace(_comparison(verdict), estimate=estimate)
    return TrickResult(
        case=TrickCase(trick=name, loop="train", title=name), comparison=found, equivalence=SAME
    )


def test_only_what_helps_a_loop_is_suggested() -> None:
    results = [
        _on_loop("IMPROVED", 0.9, "b"),
        _on_loop("IMPROVED", 0.7, "a"),
        _on_loop("UNCHANGED", 1.0, "c"),
        _on_loop("IMPROVED", 0.6, "a+b"),
        _result("IMPROVED", 0.2, name="d"),
    ]

    assert ["a", "b"] == [one.case.trick for one in suggested(results)]
    tried = [(one.case, one.comparison) for one in results if "+" not in one.case.trick]
    assert ["a", "b"] == [case.trick for case in helping(tried)]


@pytest.mark.parametrize(("ratio", "verdict"), [(0.72, "UNCHANGED"), (0.8, "REGRESSED"), (0.6, "IMPROVED")])
def test_two_tricks_take_from_or_add_to_each_other(ratio: float, verdict: str) -> None:
    results = [
        _on_loop("IMPROVED", 0.8, "a"),
        _on_loop("IMPROVED", 0.9, "b"),
        _on_loop("IMPROVED", ratio, "a+b"),
    ]

    (found,) = interactions(results)

    assert pytest.approx((0.72, ratio / 0.72)) == (found.expected, found.ratio)
    assert verdict == found.verdict


def test_the_interval_of_an_interaction_is_made_of_all_three() -> None:
    results = [
        _on_loop("IMPROVED", 0.8, "a", low=0.7, high=0.9),
        _on_loop("IMPROVED", 0.9, "b", low=0.8, high=0.95),
        _on_loop("IMPROVED", 0.72, "a+b", low=0.7, high=0.75),
    ]

    (found,) = interactions(results)

    assert pytest.approx((0.7 / (0.9 * 0.95), 0.75 / (0.7 * 0.8))) == (found.low, found.high)
    assert "INCONCLUSIVE" == found.verdict


def test_tricks_without_a_time_of_their_own_have_no_interaction() -> None:
    both = _on_loop("IMPROVED", 0.72, "a+b")
    without = replace(_on_loop("IMPROVED", 0.9, "b"), comparison=_comparison("FAILED"))

    assert not interactions([both, _on_loop("IMPROVED", 0.8, "a")])
    assert not interactions([both, _on_loop("IMPROVED", 0.8, "a"), without])
    assert not interactions([_on_loop("IMPROVED", 0.8, name) for name in ("a", "b", "c", "a+b+c")])
