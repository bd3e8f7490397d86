"""Samples are summarised, and their ratios computed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.model import Benchmark, Outcome, Summary
from perfkit.model.history import Ratio
from perfkit.stats.summary import crossing, paired_ratio, summarise, summary_of

positive = st.floats(min_value=1e-9, max_value=1e3)
pairs = st.lists(st.tuples(positive, positive), min_size=1, max_size=20)


def _summary(values: Sequence[float]) -> Summary:
    found = summarise(values)
    assert found is not None
    return found


def _ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    found = paired_ratio(pairs)
    assert found is not None
    return found


@given(st.lists(positive, min_size=2, max_size=50))
def test_the_deviation_is_that_of_the_standard_library(values: list[float]) -> None:
    summary = _summary(values)
    equal = _summary([values[0]] * len(values))

    assert pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-15 * max(values)) == summary.sd
    assert 0.0 == equal.sd


@given(pairs)
def test_swapping_the_sides_inverts_the_ratio(sample: list[tuple[float, float]]) -> None:
    forward = _ratio(sample)
    backward = _ratio([(head, base) for base, head in sample])

    assert pytest.approx(1.0) == forward.value * backward.value


@given(pairs, st.floats(min_value=0.01, max_value=100))
def test_scaling_all_values_changes_no_ratio(sample: list[tuple[float, float]], factor: float) -> None:
    plain = _ratio(sample)
    scaled = _ratio([(factor * base, factor * head) for base, head in sample])

    assert pytest.approx(plain.value) == scaled.value


def test_the_error_of_a_ratio_shrinks_with_pairs() -> None:
    two = _ratio([(1.0, 2.0), (1.0, 8.0)])
    four = _ratio([(1.0, 2.0), (1.0, 8.0)] * 2)

    assert pytest.approx((4.0, 4.0)) == (two.value, four.value)
    assert pytest.approx(4 * 0.6931472) == two.standard_error
    assert pytest.approx(4 * 0.6931472 / 3**0.5) == four.standard_error


def test_an_outcome_is_summed_up_by_its_values_or_by_what_stands_in_their_place() -> None:
    benchmark = Benchmark(name="bench.py::test", version="v1")
    shown = summarise([1.0, 2.0])

    assert shown == summary_of(Outcome(benchmark=benchmark, values=(1.0, 2.0)))
    assert shown == summary_of(Outcome(benchmark=benchmark, summary=shown))
    assert None is summary_of(Outcome(benchmark=benchmark))


def test_single_values_have_no_deviation_and_none_have_no_summary() -> None:
    summary, ratio = _summary([2.0]), _ratio([(2.0, 3.0)])

    assert (1, 2.0, None, 2.0) == (summary.n, summary.mean, summary.sd, summary.median)
    assert pytest.approx(1.5) == ratio.value
    assert ratio.standard_error is None
    assert summarise([]) is None
    assert paired_ratio([]) is None


@pytest.mark.parametrize(
    ("size", "low", "high"),
    [
        # Ratios as far from one on both sides cross halfway between 10 and 1000.
        (100.0, (10.0, 2.0), (1000.0, 0.5)),
        (100.0, (10.0, 0.5), (1000.0, 2.0)),
        # Four is twice as far from one as a half: two thirds of the way.
        (40.0, (10.0, 4.0), (80.0, 0.5)),
        (20.0, (10.0, 0.5), (80.0, 4.0)),
        (0.25, (0.125, 0.5), (0.5, 2.0)),
    ],
)
def test_the_line_between_two_points_crosses_one(
    size: float, low: tuple[float, float], high: tuple[float, float]
) -> None:
    assert pytest.approx(size) == crossing(low, high)
    assert pytest.approx(size) == crossing(high, low)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        ((10.0, 2.0), (1000.0, 3.0)),
        ((10.0, 0.2), (1000.0, 0.3)),
        # A ratio of one itself is on no side.
        ((10.0, 1.0), (1000.0, 3.0)),
        ((10.0, 0.5), (1000.0, 1.0)),
        ((0.0, 2.0), (1000.0, 0.5)),
        ((10.0, 2.0), (0.0, 0.5)),
        ((-1.0, 2.0), (1000.0, 0.5)),
        ((10.0, 2.0), (-1.0, 0.5)),
    ],
)
def test_where_nothing_crosses_there_is_no_size(low: tuple[float, float], high: tuple[float, float]) -> None:
    assert None is crossing(low, high)
