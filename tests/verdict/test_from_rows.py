"""A gate's rows hold all that its verdicts follow from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import build_row

from perfkit.records import TYPICAL_TIME, Metric, Placement, Row, Side, Status
from perfkit.records.comparisons import LaunchPair, Policy, Verdict
from perfkit.verdict.from_rows import comparison_of, joined_pairs, pairs_of, policy_entries, policy_of
from perfkit.verdict.judge import compare

POLICY = Policy(alpha=0.01, family=3, looks=(3, 5))
shares = st.floats(min_value=1e-9, max_value=1, exclude_max=True)
ascending = st.lists(st.integers(1, 500), min_size=1, unique=True).map(sorted).map(tuple)


def _row(
    side: Side,
    launch: int,
    *values: float,
    preloader: int | None = 0,
    policy: Mapping[str, str] | None = None,
    status: Status = "ok",
    message: str | None = None,
) -> Row:
    entries = policy or policy_entries(POLICY, margin=0.02, gating=True)
    row = build_row(*values, source="gate", policy=entries, status=status, message=message)
    return replace(row, placement=Placement(side=side, launch=launch, preloader=preloader))


def _rows(ratios: Sequence[float], *, policy: Mapping[str, str] | None = None) -> list[Row]:
    return [
        row
        for launch, ratio in enumerate(ratios)
        for row in (
            _row("head", launch, ratio, 2 * ratio, policy=policy),
            _row("base", launch, 1.0, 2.0, policy=policy),
        )
    ]


@given(alpha=shares, margin=shares, family=st.integers(1, 200), looks=ascending)
def test_the_rules_survive_in_a_row(alpha: float, margin: float, family: int, looks: tuple[int, ...]) -> None:
    """What a row says of its policy is that policy to the last digit."""
    policy = Policy(alpha=alpha, family=family, looks=looks)
    entries = policy_entries(policy, margin=margin, gating=True)

    assert policy == policy_of([_row("head", 0, 1.0, policy=entries)])
    assert margin == float(entries["margin"])


def test_a_verdict_is_written_where_it_is_known() -> None:
    """A row of an interrupted gate has the rules and no verdict."""
    rules = policy_entries(POLICY, margin=0.02, gating=False)

    assert ("false", False) == (rules["gating"], "verdict" in rules)
    assert {**rules, "verdict": "NEW"} == policy_entries(POLICY, margin=0.02, gating=False, verdict="NEW")


def test_pairs_are_the_launches_that_timed_both_sides() -> None:
    """In order of launches, whatever the order of rows; one-sided and untimed launches are no pairs."""
    faults = _row("base", 3, 7.0)
    outcome = replace(faults.outcome, metric=Metric(name="faults", unit="count"))
    rows = [
        _row("head", 2, 4.0, preloader=1),
        _row("base", 2, 3.0, preloader=1),
        _row("base", 0, 1.0, 1.5, preloader=None),
        _row("head", 0, 2.0, 2.5, preloader=None),
        _row("head", 1, 9.0),
        _row("head", 3, 9.0),
        replace(faults, outcome=outcome),
        _row("head", 4, 9.0),
        _row("base", 4, status="error", message="no"),
    ]

    assert (
        LaunchPair(launch=0, preloader=0, base_s=(1.0, 1.5), head_s=(2.0, 2.5)),
        LaunchPair(launch=2, preloader=1, base_s=(3.0,), head_s=(4.0,)),
    ) == pairs_of(rows)


def test_typical_times_belong_to_the_launch_of_their_rows() -> None:
    """They stand in rows of their own; a launch without them has none."""
    rows = _rows([1.1, 1.2])
    slower = [
        replace(row, outcome=replace(row.outcome, metric=TYPICAL_TIME, values=(0.5,)))
        for row in rows
        if row.placement.launch == 1
    ]

    first, second = pairs_of([*rows, *slower])

    assert (False, True) == (first.sliced, second.sliced)
    assert ((0.5,), (0.5,)) == second.sides("typical")
    assert ((1.0, 2.0), (1.2, 2.4)) == second.sides("all")
    assert first.sides("all") == first.sides("typical")


def test_runs_are_joined_to_one_series() -> None:
    """Launches are counted on, and preloaders of different runs stay different."""
    first = [LaunchPair(launch=n, preloader=p, base_s=(1.0,), head_s=(2.0,)) for n, p in [(0, 1), (3, 2)]]
    second = [LaunchPair(launch=n, preloader=p, base_s=(3.0,), head_s=(4.0,)) for n, p in [(0, 1), (1, 1)]]

    joined = joined_pairs([first, [], second])

    assert [(0, 1, (1.0,)), (1, 2, (1.0,)), (2, 3, (3.0,)), (3, 3, (3.0,))] == [
        (pair.launch, pair.preloader, pair.base_s) for pair in joined
    ]
    assert () == joined_pairs([])


@pytest.mark.parametrize(
    ("verdict", "ratios"),
    [
        ("REGRESSED", (1.1, 1.1, 1.1)),
        ("IMPROVED", (0.9, 0.9, 0.9)),
        ("UNCHANGED", (1.0, 1.0, 1.0)),
        ("INCONCLUSIVE", (0.9, 1.0, 1.1)),
        ("INCONCLUSIVE", (1.1, 1.1)),
    ],
)
def test_a_timed_verdict_follows_from_the_rows(verdict: Verdict, ratios: tuple[float, ...]) -> None:
    """It is that of the launches in them, under the margin and gating they state."""
    entries = policy_entries(POLICY, margin=0.03, gating=False, verdict=verdict)
    rows = _rows(ratios, policy=entries)

    found = comparison_of(rows)

    benchmark = rows[0].outcome.benchmark
    assert compare(benchmark, pairs_of(rows), POLICY, margin=0.03, gating=False) == found
    assert verdict == found.verdict


def test_the_launches_of_continued_runs_come_first() -> None:
    """Two launches alone decide nothing; after three earlier ones they reach the second look."""
    prior, own = _rows([1.1, 1.1, 1.1]), _rows([1.2, 1.2])

    assert None is comparison_of(own).estimate
    found = comparison_of(own, [prior]).estimate
    assert found is not None
    assert 5 == found.launches
    assert pytest.approx(math.exp((3 * math.log(1.1) + 2 * math.log(1.2)) / 5)) == found.ratio


@pytest.mark.parametrize("verdict", ["NEW", "MISSING", "CHANGED", "FAILED", "TIMEOUT"])
def test_a_finding_is_what_its_row_says(verdict: Verdict) -> None:
    """The cause comes from the finding's own row, also where launches were complete before it."""
    entries = policy_entries(POLICY, margin=0.05, gating=True, verdict=verdict)
    own = _row("head", 0, status="error", message="the cause", policy=entries)

    for rows in ([own], [*_rows([1.0, 1.0, 1.0], policy=entries), own]):
        found = comparison_of(rows)
        assert (verdict, "the cause", 0.05, True, None) == (
            found.verdict,
            found.message,
            found.margin,
            found.gating,
            found.estimate,
        )
