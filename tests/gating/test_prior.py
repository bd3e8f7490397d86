"""A new gate continues earlier gates on the same pair, under the same rules, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest
from synthetic import ENVIRONMENT, MACHINE, START, build_row

from perfkit.gating.rows import RunContext, continued_seed, earlier_rows, find_prior
from perfkit.gating.rules import ComparedBenchmark
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Commit, Environment, Machine, Placement, Row, Side
from perfkit.model.comparisons import Policy
from perfkit.model.policies import JudgedPolicy, judged_policy
from perfkit.repo import sides

BASE, HEAD = "a" * 40, "b" * 40
POLICY = Policy(alpha=0.01, family=2, looks=(10, 15))
CONTEXT = RunContext(
    run_id="new",
    recorded_at=START,
    commits={"base": Commit(sha=BASE), "head": Commit(sha=HEAD)},
    machine=MACHINE,
    environment=ENVIRONMENT,
    seed=0,
    policy=POLICY,
)
SIDES: tuple[tuple[Side, str], ...] = (("base", BASE), ("head", HEAD))


def _gate(run: str, *, value: float = 1.0, launches: int = 2) -> list[Row]:
    policy = JudgedPolicy(rules=POLICY, margin=0.02, gating=True, verdict="INCONCLUSIVE")
    return [
        replace(
            build_row(value, sha=sha, run=run, source="gate", policy=policy),
            placement=Placement(side=side, launch=launch, preloader=launch + 1),
        )
        for launch in range(launches)
        for side, sha in SIDES
    ]


def _compared(version: str = "v1") -> ComparedBenchmark:
    benchmark = Benchmark(name="benchmarks/bench_a.py::test_a", version=version)
    return ComparedBenchmark(benchmark=benchmark, margin=0.02, gating=True, limit_s=30.0)


def test_launches_of_earlier_gates_come_first() -> None:
    prior = find_prior([*_gate("r1", value=1.0), *_gate("r2", value=2.0)], CONTEXT)

    assert ["r1", "r2"] == list(prior.runs)
    assert [(0, 1, (1.0,)), (1, 2, (1.0,)), (2, 3, (2.0,)), (3, 4, (2.0,))] == [
        (pair.launch, pair.group, pair.base_s) for pair in prior.pairs_for(_compared())
    ]


def test_another_version_of_a_benchmark_starts_anew() -> None:
    prior = find_prior(_gate("r1"), CONTEXT)

    assert 2 == len(prior.pairs_for(_compared()))
    assert () == prior.pairs_for(_compared("v2"))


def _each(change: Callable[[Row], Row]) -> Callable[[Sequence[Row]], list[Row]]:
    return lambda rows: [change(row) for row in rows]


def _on_machine(name: str) -> Callable[[Sequence[Row]], list[Row]]:
    return _each(lambda row: replace(row, machine=Machine(machine_id=name, facts={})))


def _in_environment(name: str) -> Callable[[Sequence[Row]], list[Row]]:
    return _each(lambda row: replace(row, environment=Environment(env_id=name, facts={})))


def _under(row: Row, rules: Policy) -> Row:
    return replace(row, policy=replace(judged_policy(row), rules=rules))


def _one_side_dirty(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, commit=replace(row.commit, dirty=row.placement.side == "head")) for row in rows]


def _without_values(row: Row) -> Row:
    return replace(row, outcome=replace(row.outcome, values=(), status="error"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_each(lambda row: replace(row, source="pytest")), id="no gate"),
        *(pytest.param(_on_machine(name), id=f"other machine {name}") for name in ("m0", "m2")),
        *(pytest.param(_in_environment(name), id=f"other environment {name}") for name in ("e0", "e2")),
        pytest.param(_each(lambda row: _under(row, replace(POLICY, alpha=0.05))), id="alpha"),
        pytest.param(_each(lambda row: _under(row, replace(POLICY, family=3))), id="family"),
        pytest.param(_each(lambda row: _under(row, replace(POLICY, looks=(10,)))), id="looks"),
        pytest.param(_each(lambda row: _under(row, replace(POLICY, least_sd=0.01))), id="least scatter"),
        pytest.param(_each(_without_values), id="nothing measured"),
        pytest.param(_one_side_dirty, id="uncommitted changes"),
        pytest.param(lambda rows: [row for row in rows if row.placement.side == "head"], id="one side"),
        pytest.param(
            _each(lambda row: replace(row, commit=Commit(sha=BASE if row.commit.sha == HEAD else HEAD))),
            id="sides swapped",
        ),
        pytest.param(
            lambda rows: [
                replace(row, commit=Commit(sha="c" * 40)) if row.placement.side == "base" else row
                for row in rows
            ],
            id="other base",
        ),
        pytest.param(
            lambda rows: [*rows, *(replace(row, commit=Commit(sha="c" * 40)) for row in rows)],
            id="a third commit",
        ),
    ],
)
def test_another_question_is_not_continued(change: Callable[[Sequence[Row]], list[Row]]) -> None:
    rows = _gate("r1")

    assert {} == find_prior(change(rows), CONTEXT).runs
    assert ["r1"] == list(find_prior(rows, CONTEXT).runs)


def test_another_answer_to_the_same_launches_is_continued() -> None:
    answer = replace(POLICY, fail_on="proven", noise_floor=0.005, inconclusive="pass")
    rows = [_under(row, answer) for row in _gate("r1")]

    assert ["r1"] == list(find_prior(rows, CONTEXT).runs)


def test_a_gate_that_continues_others_draws_anew() -> None:
    one, two = _gate("r1"), [*_gate("r1"), *_gate("r2")]

    assert 7 == continued_seed(7, [])
    assert 3 == len({7, continued_seed(7, one), continued_seed(7, two)})
    assert continued_seed(7, one) == continued_seed(7, one)
    assert continued_seed(7, one) != continued_seed(8, one)


def _pair(base: str, head: str) -> sides.SidePair:
    first, second = (sides.Side(kind="commit", commit=Commit(sha=sha), source=Path()) for sha in (base, head))
    return sides.SidePair(base=first, head=second)


def test_the_gates_of_a_pair_are_those_that_measured_both_of_its_commits_on_their_sides(
    tmp_path: Path,
) -> None:
    third = "c" * 40
    gates = {
        "of the pair": _gate("r1"),
        "again": _gate("r2"),
        "of environments": [replace(row, source="environments") for row in _gate("r3")],
        "by hand": [replace(row, source="backfill") for row in _gate("r4")],
        "other base": _with_commits(_gate("r5"), {BASE: third}),
        "swapped": _with_commits(_gate("r6"), {BASE: HEAD, HEAD: BASE}),
        "head alone": [row for row in _gate("r7") if row.placement.side == "head"],
        "both ways": [*_gate("r8"), *_with_commits(_gate("r8"), {BASE: HEAD, HEAD: BASE})],
    }
    ledger = Ledger(tmp_path)
    ledger.append([*chain.from_iterable(gates.values())])

    found = earlier_rows(ledger, _pair(BASE, HEAD))

    assert [*gates["of the pair"], *gates["again"]] == found
    assert gates["of environments"] == earlier_rows(ledger, _pair(BASE, HEAD), source="environments")
    assert [] == earlier_rows(ledger, _pair(third, BASE))


def _with_commits(rows: Sequence[Row], others: Mapping[str, str]) -> list[Row]:
    return [replace(row, commit=Commit(sha=others.get(row.commit.sha, row.commit.sha))) for row in rows]


@pytest.mark.parametrize("side", ["base", "head"])
def test_uncommitted_changes_continue_nothing(side: Side) -> None:
    commits = {**CONTEXT.commits, side: replace(CONTEXT.commits[side], dirty=True)}

    assert {} == find_prior(_gate("r1"), replace(CONTEXT, commits=commits)).runs


def test_a_gate_of_environments_goes_on_where_both_were_the_same() -> None:
    other = Environment(env_id="e2", facts={"package x": "2"})
    commits: dict[Side, Commit] = {"base": Commit(sha=BASE), "head": Commit(sha=BASE)}
    context = replace(CONTEXT, source="environments", commits=commits, base_environment=other)
    rows = [
        replace(
            row,
            source="environments",
            commit=Commit(sha=BASE),
            environment=other if row.placement.side == "base" else row.environment,
        )
        for row in _gate("r1")
    ]

    assert ["r1"] == list(find_prior(rows, context).runs)
    assert {} == find_prior(rows, replace(context, base_environment=None)).runs
    assert {} == find_prior(rows, replace(context, source="gate")).runs
    swapped = replace(context, environment=other, base_environment=ENVIRONMENT)
    assert {} == find_prior(rows, swapped).runs
