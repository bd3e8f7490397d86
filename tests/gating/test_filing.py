"""A gate files a row for each launch and side, and one for each finding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from synthetic import ENVIRONMENT, MACHINE, START, build_comparison

from perfkit.agent.clock import ColdStart, DeviceMemory, DeviceTimes
from perfkit.gating.rows import (
    RunContext,
    comparison_of,
    finding_row,
    finished_row,
    launch_rows,
    pairs_of,
)
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.run import MeasuredLaunch
from perfkit.ledger.store import Ledger
from perfkit.model import (
    DEVICE_TIME,
    HOST_TIME,
    TYPICAL_TIME,
    WALL_TIME,
    Benchmark,
    Commit,
    Row,
    Side,
    Status,
)
from perfkit.model.comparisons import Comparison, Policy, Verdict
from perfkit.model.policies import Disturbance, GatePolicy, judged_policy
from perfkit.runner.lockstep.launch import Slot
from perfkit.runner.lockstep.turns import LoopPlan, Timing

BENCHMARK = Benchmark(name="bench_a.py::test_a", version="v1", params={"n": "3"}, group="sums")
CONTEXT = RunContext(
    run_id="0199-gate",
    recorded_at=START,
    commits={"base": Commit(sha="a" * 40), "head": Commit(sha="b" * 40)},
    machine=MACHINE,
    environment=ENVIRONMENT,
    seed=7,
    policy=Policy(alpha=0.01, family=2, looks=(2, 4)),
    kind=partial(GatePolicy, base="a" * 40, budget_s=30.0, mode="forked", as_is=False),
)
COMPARED = {
    BENCHMARK.name: ComparedBenchmark(benchmark=BENCHMARK, margin=0.02, gating=True, limit_s=30.0),
}
PLAN = LoopPlan(loops=8, rounds=2, untimed=3, turns=1, most_turns=1, first_untimed=1)


def _measured(launch: int, *, begins: Side = "base") -> MeasuredLaunch:
    timing = Timing(
        base_s=(1.0, 2.0),
        head_s=(1.1, 2.2),
        plan=PLAN,
        faults_per_iteration={"base": 0.5, "head": 12.34},
    )
    slot = Slot(launch=launch, block=launch // 4, forked_first="base", begins=begins)
    return MeasuredLaunch(
        node=BENCHMARK.name, slot=slot, group=2, timing=timing, at=START + timedelta(seconds=launch)
    )


def _judged(measured: Sequence[MeasuredLaunch]) -> list[Row]:
    rows = launch_rows(measured, COMPARED, CONTEXT)
    found = {BENCHMARK.name: Comparison(benchmark=BENCHMARK, verdict="REGRESSED", margin=0.02)}
    return [finished_row(row, found, wall_s=12.345, continues=["r1", "r2"]) for row in rows]


def test_a_launch_is_a_row_for_each_side() -> None:
    base, head = _judged([_measured(5, begins="head")])

    assert [("base", "a" * 40, (1.0, 2.0)), ("head", "b" * 40, (1.1, 2.2))] == [
        (row.placement.side, row.commit.sha, row.outcome.values) for row in (base, head)
    ]
    assert (BENCHMARK, 3, 8, "ok") == (
        head.outcome.benchmark,
        head.outcome.warmup,
        head.outcome.loops,
        head.outcome.status,
    )
    assert (5, 2, 1, 7) == (
        head.placement.launch,
        head.placement.preloader,
        head.placement.block,
        head.placement.seed,
    )
    assert (1, 0) == (base.placement.order, head.placement.order)
    assert ("gate", "0199-gate", START + timedelta(seconds=5)) == (
        head.source,
        head.run_id,
        head.recorded_at,
    )


def test_typical_times_are_rows_of_their_own() -> None:
    plain = _measured(5)
    timing = replace(plain.timing, base_typical_s=(0.9, 1.9), head_typical_s=(1.0, 2.0))

    rows = list(launch_rows([replace(plain, timing=timing)], COMPARED, CONTEXT))

    assert [
        ("base", WALL_TIME, (1.0, 2.0)),
        ("base", TYPICAL_TIME, (0.9, 1.9)),
        ("head", WALL_TIME, (1.1, 2.2)),
        ("head", TYPICAL_TIME, (1.0, 2.0)),
    ] == [(row.placement.side, row.outcome.metric, row.outcome.values) for row in rows]
    assert {5} == {row.placement.launch for row in rows}


def test_times_on_an_accelerator_are_rows_of_their_own(tmp_path: Path) -> None:
    plain = _measured(5)
    devices: Mapping[Side, DeviceTimes] = {
        "head": DeviceTimes(host_s=(1.0, 2.1), device_s=(0.2, 0.3), marks=("launch-bound", "L2 flushed"))
    }
    timing = replace(plain.timing, devices=devices)
    rows = _judged([replace(plain, timing=timing)])

    ledger = Ledger(tmp_path)
    with ledger.run(source="gate", run_id="0199-gate", recorded_at=START) as run:
        run.add(rows)
    read = sorted(ledger.rows(), key=lambda row: (row.placement.side or "", row.outcome.metric.name))

    assert [
        ("base", WALL_TIME, (1.0, 2.0), ()),
        ("head", DEVICE_TIME, (0.2, 0.3), ("launch-bound", "L2 flushed")),
        ("head", HOST_TIME, (1.0, 2.1), ("launch-bound", "L2 flushed")),
        ("head", WALL_TIME, (1.1, 2.2), ("launch-bound", "L2 flushed")),
    ] == [
        (row.placement.side, row.outcome.metric, row.outcome.values, row.policy.marks)
        for row in sorted(read, key=lambda row: (row.placement.side or "", row.outcome.metric.name))
    ]
    assert isinstance(read[0].policy, GatePolicy)


def test_what_a_launch_alone_on_a_device_files(tmp_path: Path) -> None:
    plain = _measured(5)
    memory = DeviceMemory(index=0, total=80, free=40, reserved=30, peak=35)
    cold: Mapping[Side, ColdStart] = {
        "base": ColdStart(total_s=9.0, compiling_s=7.0, autotuning_s=0.0),
        "head": ColdStart(total_s=8.0, graphs=2),
    }
    timing = replace(plain.timing, cold=cold, memory={"base": (memory,), "head": ()}, alone=True)
    measured = replace(plain, timing=timing)
    aside = replace(measured, set_aside=True, marks=("no room for both sides",))

    with Ledger(tmp_path).run(source="gate", run_id="0199-gate", recorded_at=START) as run:
        run.add([*launch_rows([aside], COMPARED, CONTEXT), *launch_rows([measured], COMPARED, CONTEXT)])
    rows = list(Ledger(tmp_path).rows())

    filed = {(row.placement.side, row.outcome.metric.name): row for row in rows}
    assert {
        ("base", "time"): (1.0, 2.0),
        ("head", "time"): (1.1, 2.2),
        ("base", "time set aside"): (1.0, 2.0),
        ("head", "time set aside"): (1.1, 2.2),
        ("base", "cold start"): (9.0,),
        ("base", "cold start: compiling"): (7.0,),
        ("base", "cold start: autotuning"): (0.0,),
        ("head", "cold start"): (8.0,),
    } == {key: row.outcome.values for key, row in filed.items()}
    assert (0, 1) == (filed["base", "cold start"].outcome.warmup, filed["base", "cold start"].outcome.loops)
    assert "time of compiling not told" in filed["head", "cold start"].policy.marks
    assert ("alone on the device",) == filed["base", "time"].policy.marks
    assert "no room for both sides" in filed["base", "time set aside"].policy.marks
    assert "35" == filed["base", "time"].machine.facts["gpu0_reserved_bytes"]
    assert "gpu0_reserved_bytes" not in filed["head", "time"].machine.facts
    assert 1 == len(pairs_of(rows))


def test_a_row_states_under_which_rules_it_was_measured() -> None:
    base, head = _judged([_measured(0)])

    shared = GatePolicy(
        rules=CONTEXT.policy,
        margin=0.02,
        gating=True,
        verdict="REGRESSED",
        wall_s=12.35,
        continues=("r1", "r2"),
        base="a" * 40,
        budget_s=30.0,
        mode="forked",
        as_is=False,
    )
    assert replace(shared, faults=0.5) == base.policy
    assert replace(shared, faults=12.3) == head.policy


def test_a_launch_that_was_disturbed_is_marked_on_both_sides() -> None:
    happened = Disturbance(what="suspended", amount=12.5)
    rows = launch_rows([_measured(0), replace(_measured(1), disturbed=(happened,))], COMPARED, CONTEXT)

    assert [(), (), (happened,), (happened,)] == [judged_policy(row).disturbed for row in rows]


def test_an_interrupted_gate_has_rows_without_verdicts() -> None:
    rows = list(launch_rows([_measured(0), _measured(1)], COMPARED, CONTEXT))

    assert [0, 0, 1, 1] == [row.placement.launch for row in rows]
    assert [(None, None)] * 4 == [(judged_policy(row).verdict, judged_policy(row).wall_s) for row in rows]


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        ("FAILED", "error"),
        ("TIMEOUT", "timeout"),
        ("NEW", "skipped"),
        ("MISSING", "skipped"),
        ("CHANGED", "skipped"),
    ],
)
def test_a_finding_is_a_row_of_head(verdict: Verdict, status: Status, tmp_path: Path) -> None:
    comparison = build_comparison("test_a", verdict, margin=0.05, gating=False, message="the cause")
    row = finding_row(comparison, CONTEXT)
    Ledger(tmp_path).append([row])

    assert (status, "the cause", (), "head", "b" * 40) == (
        row.outcome.status,
        row.outcome.message,
        row.outcome.values,
        row.placement.side,
        row.commit.sha,
    )
    assert comparison == comparison_of(Ledger(tmp_path).rows())


def test_what_earlier_gates_had_decided_is_no_failure() -> None:
    row = finding_row(build_comparison("test_a", "UNCHANGED", 1.0, 0.99, 1.01), CONTEXT)

    assert ("ok", (), "UNCHANGED") == (row.outcome.status, row.outcome.values, judged_policy(row).verdict)


def test_a_launch_that_was_set_aside_is_kept_and_not_judged() -> None:
    spoilt = replace(
        _measured(5), set_aside=True, marks=("throttled",), facts={"gpu0_temperature_c_after": "90"}
    )

    rows = _judged([spoilt, _measured(5)])

    assert [("time set aside", ("throttled",), "90")] * 2 + [("time", (), None)] * 2 == [
        (row.outcome.metric.name, row.policy.marks, row.machine.facts.get("gpu0_temperature_c_after"))
        for row in rows
    ]
    assert 1 == len(pairs_of(rows))
