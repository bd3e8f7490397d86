"""The rows of a gate hold all that its verdicts follow from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from synthetic import build_row

from perfkit.agent.clock import ColdStart
from perfkit.agent.counters.model import Cause, Count, Counts
from perfkit.errors import LedgerError
from perfkit.gating.judge import compare, joined_pairs
from perfkit.gating.rows import comparison_of, exact_comparisons_of, pairs_of, policy_of
from perfkit.ledger.recording import cold_start_values
from perfkit.model import TYPICAL_TIME, Benchmark, Metric, Placement, Row, Side, Status
from perfkit.model.comparisons import LaunchPair, Policy, Verdict
from perfkit.model.counters import count_outcomes, counts_of, is_count
from perfkit.model.policies import JudgedPolicy

POLICY = Policy(alpha=0.01, family=3, looks=(3, 5))
BENCHMARK = Benchmark(name="benchmarks/bench_a.py::test_a", version="v1")
COUNTS = Counts(
    counts=(
        Count(
            metric="python_calls",
            unit="1",
            values=(3.0, 3.0),
            causes=(Cause(what="f", place="a.py:1", amount=3.0, text="f()"),),
        ),
        Count(metric="resident", unit="B", values=(100.0, 104.0), causes=()),
    ),
    not_counted={"flops": "torch is not there"},
    training=True,
)


def _row(
    side: Side,
    launch: int,
    *values: float,
    group: int | None = 0,
    policy: JudgedPolicy | None = None,
    status: Status = "ok",
    message: str | None = None,
) -> Row:
    policy = policy or JudgedPolicy(rules=POLICY, margin=0.02, gating=True)
    row = build_row(*values, source="gate", policy=policy, status=status, message=message)
    return replace(row, placement=Placement(side=side, launch=launch, preloader=group))


def _rows(ratios: Sequence[float], *, policy: JudgedPolicy | None = None) -> list[Row]:
    return [
        row
        for launch, ratio in enumerate(ratios)
        for row in (
            _row("head", launch, ratio, 2 * ratio, policy=policy),
            _row("base", launch, 1.0, 2.0, policy=policy),
        )
    ]


def test_rows_that_do_not_state_their_rules_are_reported() -> None:
    with pytest.raises(LedgerError, match="a row of the pytest run-1 does not have the rules by which"):
        policy_of([build_row(1.0)])


def test_pairs_are_the_launches_that_timed_both_sides() -> None:
    faults = _row("base", 3, 7.0)
    outcome = replace(faults.outcome, metric=Metric(name="faults", unit="count"))
    rows = [
        _row("head", 2, 4.0, group=1),
        _row("base", 2, 3.0, group=1),
        _row("base", 0, 1.0, 1.5, group=None),
        _row("head", 0, 2.0, 2.5, group=None),
        _row("head", 1, 9.0),
        _row("head", 3, 9.0),
        replace(faults, outcome=outcome),
        _row("head", 4, 9.0),
        _row("base", 4, status="error", message="no"),
    ]

    assert (
        LaunchPair(launch=0, group=0, base_s=(1.0, 1.5), head_s=(2.0, 2.5)),
        LaunchPair(launch=2, group=1, base_s=(3.0,), head_s=(4.0,)),
    ) == pairs_of(rows)


@pytest.mark.parametrize(("order", "begins"), [(0, "head"), (1, "base"), (None, None)])
def test_the_side_that_was_timed_first_begins(order: int | None, begins: Side | None) -> None:
    rows = _rows([1.1])
    ordered = [replace(row, placement=replace(row.placement, order=order)) for row in rows[:1]]

    assert [begins] == [pair.begins for pair in pairs_of([*ordered, *rows[1:]])]


def test_typical_times_belong_to_the_launch_of_their_rows() -> None:
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
    first = [LaunchPair(launch=n, group=p, base_s=(1.0,), head_s=(2.0,)) for n, p in [(0, 1), (3, 2)]]
    second = [LaunchPair(launch=n, group=p, base_s=(3.0,), head_s=(4.0,)) for n, p in [(0, 1), (1, 1)]]

    joined = joined_pairs([first, [], second])

    assert [(0, 1, (1.0,)), (1, 2, (1.0,)), (2, 3, (3.0,)), (3, 3, (3.0,))] == [
        (pair.launch, pair.group, pair.base_s) for pair in joined
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
    policy = JudgedPolicy(rules=POLICY, margin=0.03, gating=False, verdict=verdict)
    rows = _rows(ratios, policy=policy)

    found = comparison_of(rows)

    benchmark = rows[0].outcome.benchmark
    assert compare(benchmark, pairs_of(rows), POLICY, margin=0.03, gating=False) == found
    assert verdict == found.verdict


def test_the_launches_of_continued_runs_come_first() -> None:
    prior, own = _rows([1.1, 1.1, 1.1]), _rows([1.2, 1.2])

    assert None is comparison_of(own).estimate
    found = comparison_of(own, [prior]).estimate
    assert found is not None
    assert 5 == found.launches
    assert pytest.approx(math.exp((3 * math.log(1.1) + 2 * math.log(1.2)) / 5)) == found.ratio


@pytest.mark.parametrize("verdict", ["NEW", "MISSING", "CHANGED", "FAILED", "TIMEOUT"])
def test_a_finding_is_what_its_row_states(verdict: Verdict) -> None:
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


def _count_rows(counts: Counts, side: Side | None = None) -> list[Row]:
    policy = JudgedPolicy(rules=POLICY, margin=0.05, gating=True)
    return [
        replace(build_row(source="gate", policy=policy), outcome=outcome, placement=Placement(side=side))
        for outcome in count_outcomes(BENCHMARK, counts)
    ]


def test_counts_are_kept_in_rows() -> None:
    rows = _count_rows(COUNTS)

    assert COUNTS == counts_of(rows)
    assert all(is_count(row) for row in rows)
    assert not is_count(_row("head", 0, 1.0))
    assert [
        ("python_calls", "1", True, "ok", 1, None),
        ("resident", "B", False, "ok", 1, None),
        ("flops", "1", False, "skipped", None, "not counted: torch is not there"),
    ] == [
        (
            row.outcome.metric.name,
            row.outcome.metric.unit,
            row.outcome.metric.exact,
            row.outcome.status,
            row.outcome.loops,
            row.outcome.message,
        )
        for row in rows
    ]


def _calls(number: float) -> Counts:
    return Counts(counts=(replace(COUNTS.counts[0], values=(number, number)),), not_counted={})


def _uncounted(why: str) -> Counts:
    return Counts(counts=(), not_counted={"python_calls": why})


@pytest.mark.parametrize(
    ("sides", "verdict", "values", "message"),
    [
        ({"base": _calls(100), "head": _calls(105)}, "UNCHANGED", (100.0, 105.0), None),
        ({"base": _calls(100), "head": _calls(106)}, "REGRESSED", (100.0, 106.0), None),
        ({"base": _calls(100)}, "MISSING", (100.0, None), "not counted on head"),
        ({"head": _calls(100)}, "INCONCLUSIVE", (None, 100.0), "not counted on base"),
        (
            {"base": _calls(100), "head": _uncounted("it broke")},
            "MISSING",
            (100.0, None),
            "not counted on head: it broke",
        ),
        (
            {"base": _uncounted("it broke"), "head": _calls(100)},
            "INCONCLUSIVE",
            (None, 100.0),
            "not counted on base: it broke",
        ),
        (
            {"base": _uncounted("no torch"), "head": _uncounted("no torch")},
            "INCONCLUSIVE",
            (None, None),
            "not counted: no torch",
        ),
        ({"base": _calls(100), "head": _uncounted("")}, "MISSING", (100.0, None), "not counted on head"),
    ],
)
def test_counts_are_compared_again_by_their_rows(
    sides: Mapping[Side, Counts],
    verdict: Verdict,
    values: tuple[float | None, float | None],
    message: str | None,
) -> None:
    rows = [row for side, counts in sides.items() for row in _count_rows(counts, side)]

    (found,) = exact_comparisons_of([*_rows([1.1]), *_count_rows(_calls(7)), *rows])

    assert (verdict, values, message) == (found.verdict, (found.base, found.head), found.message)
    assert ("python_calls", BENCHMARK) == (found.metric.name, found.benchmark)


@pytest.mark.parametrize(
    ("cold", "shown"),
    [
        (None, {}),
        (ColdStart(total_s=3.0), {"cold start": 3.0}),
        (
            ColdStart(total_s=3.0, compiling_s=2.0, autotuning_s=0.5),
            {"cold start": 3.0, "cold start: compiling": 2.0, "cold start: autotuning": 0.5},
        ),
        (
            ColdStart(total_s=3.0, compiling_s=2.0),
            {"cold start": 3.0, "cold start: compiling": 2.0, "cold start: autotuning": 0.0},
        ),
        (
            ColdStart(total_s=3.0, autotuning_s=0.5),
            {"cold start": 3.0, "cold start: compiling": 0.0, "cold start: autotuning": 0.5},
        ),
    ],
)
def test_a_first_call_is_reported_with_the_parts_that_torch_knows(
    cold: ColdStart | None, shown: Mapping[str, float]
) -> None:
    assert shown == {metric.name: values[0] for metric, values in cold_start_values(cold)}
