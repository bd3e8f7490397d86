"""The rows of a gate hold all that its verdicts follow from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from synthetic import build_row

from perfkit.errors import LedgerError
from perfkit.records import TYPICAL_TIME, Metric, Placement, Row, Side, Status
from perfkit.records.comparisons import LaunchPair, Policy, Verdict
from perfkit.records.policies import JudgedPolicy
from perfkit.verdict.from_rows import comparison_of, joined_pairs, pairs_of, policy_of
from perfkit.verdict.judge import compare

POLICY = Policy(alpha=0.01, family=3, looks=(3, 5))


def _row(
    side: Side,
    launch: int,
    *values: float,
    preloader: int | None = 0,
    policy: JudgedPolicy | None = None,
    status: Status = "ok",
    message: str | None = None,
) -> Row:
    policy = policy or JudgedPolicy(rules=POLICY, margin=0.02, gating=True)
    row = build_row(*values, source="gate", policy=policy, status=status, message=message)
    return replace(row, placement=Placement(side=side, launch=launch, preloader=preloader))


def _rows(ratios: Sequence[float], *, policy: JudgedPolicy | None = None) -> list[Row]:
    return [
        row
        for launch, ratio in enumerate(ratios)
        for row in (
            _row("head", launch, ratio, 2 * ratio, policy=policy),
            _row("base", launch, 1.0, 2.0, policy=policy),
        )
    ]


def test_rows_that_do_not_say_their_rules_are_told() -> None:
    """In one line with the run: they are of no comparison."""
    with pytest.raises(LedgerError, match="a row of the pytest run-1 does not say by which rules"):
        policy_of([build_row(1.0)])


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
        ("NOT REACHED", (1.1, 1.1)),
    ],
)
def test_a_timed_verdict_follows_from_the_rows(verdict: Verdict, ratios: tuple[float, ...]) -> None:
    """It is that of the launches in them, under the margin and gating they state."""
    policy = JudgedPolicy(rules=POLICY, margin=0.03, gating=False, verdict=verdict)
    rows = _rows(ratios, policy=policy)

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
    policy = JudgedPolicy(rules=POLICY, margin=0.05, gating=True, verdict=verdict)
    own = _row("head", 0, status="error", message="the cause", policy=policy)

    for rows in ([own], [*_rows([1.0, 1.0, 1.0], policy=policy), own]):
        found = comparison_of(rows)
        assert (verdict, "the cause", 0.05, True, None) == (
            found.verdict,
            found.message,
            found.margin,
            found.gating,
            found.estimate,
        )
