"""A plan rests on what earlier gates on this machine showed, and shares its time out as a gate does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from noise import POLICY, decide, normal
from synthetic import MACHINE, START, build_row

from perfkit.gating.counter_verdicts import CounterPolicy
from perfkit.gating.design import USUAL_SD, Method
from perfkit.gating.plan import USUAL_LAUNCH_S, Experience, Foresight, Key, experience_from, foresee
from perfkit.gating.rules import ComparedBenchmark, Rules
from perfkit.model import Benchmark, Machine, Placement, Row, Side
from perfkit.model.comparisons import LaunchPair, PlannedBenchmark, Policy
from perfkit.stats.interval import trimmed_variance, widening

MARGIN = 0.02
SIDES: tuple[Side, ...] = ("base", "head")


def _rows(
    logs: Sequence[float],
    *,
    name: str = "b.py::test_a",
    run: str = "r1",
    each_s: float = 2.0,
    version: str = "v1",
    machine: Machine = MACHINE,
) -> list[Row]:
    """Return the rows of a gate whose launches have these log ratios, one every so many seconds."""
    rows = []
    for launch, log in enumerate(logs):
        for side in SIDES:
            value = 0.01 * (math.exp(log) if side == "head" else 1.0)
            row = build_row(*[value] * 5, name=name, run=run, source="gate", version=version, machine=machine)
            rows.append(
                replace(
                    row,
                    recorded_at=START + timedelta(seconds=launch * each_s),
                    placement=Placement(side=side, launch=launch, preloader=launch // 4),
                )
            )
    return rows


def _known(rows: Sequence[Row], name: str = "b.py::test_a", version: str = "v1") -> Experience:
    return experience_from(rows, MACHINE.machine_id)[name, version]


def _scatter(launches: int, sd: float, *, around: float = 0.0, seed: int = 3) -> list[float]:
    values = np.random.default_rng(seed).normal(0, 1, launches)
    values *= sd / math.sqrt(trimmed_variance(values))
    return [around + float(value - values.mean()) for value in values]


def test_the_scatter_is_that_within_gates() -> None:
    rows = _rows(_scatter(20, 0.01)) + _rows(_scatter(20, 0.01, around=0.5, seed=4), run="r2")
    known = _known(rows)

    wide = widening([pair.group for pair in known.pairs], POLICY.shared_variance)
    assert 2 == len(known.gates)
    assert pytest.approx(0.01 * wide) == known.wide_sd(POLICY)
    assert wide > 1.2


def test_only_gates_on_this_machine_of_this_version_count() -> None:
    rows = [
        *_rows(_scatter(20, 0.01)),
        *_rows(_scatter(20, 0.3), run="r0", machine=Machine(machine_id="m0", facts={})),
        *_rows(_scatter(20, 0.3), run="r2", machine=Machine(machine_id="m2", facts={})),
        *_rows(_scatter(20, 0.3), run="r3", version="v2"),
        *(replace(row, source="calibrate") for row in _rows(_scatter(20, 0.3), run="r4")),
    ]

    assert 1 == len(_known(rows).gates)
    assert 1 == len(_known(rows, version="v2").gates)


def test_a_launch_costs_what_passed_since_the_one_before() -> None:
    rows = [
        *_rows([0.0] * 6, each_s=3.0),
        *_rows([0.0] * 6, each_s=3.0, name="b.py::test_b"),
        *_rows([0.0] * 3, each_s=1.0, run="r2"),
        *_rows([0.0] * 3, each_s=1.0, run="r3"),
    ]

    own_s = 3.0 / 2  # both had the same timed in each launch
    assert pytest.approx(own_s) == _known(rows, "b.py::test_b").launch_s
    assert pytest.approx(1.0) == _known(rows).launch_s, "the median gate counts"


def _compared(
    name: str, *, changed: bool = True, margin: float = MARGIN, prior: tuple[LaunchPair, ...] = ()
) -> ComparedBenchmark:
    return ComparedBenchmark(
        benchmark=Benchmark(name=name, version="v1"),
        margin=margin,
        gating=True,
        limit_s=30.0,
        changed=changed,
        prior=prior,
    )


def _method(budget_s: float, *, policy: Policy = POLICY, counted: bool = False) -> Method:
    return Method(
        policy=policy,
        counter_policy=CounterPolicy(gating=(), tolerance=0.05),
        rules=Rules(margin=MARGIN, limit_s=30.0, globs=()),
        budget_s=budget_s,
        seed=0,
        timed=True,
        counted=counted,
        targets=(),
        instructions=False,
    )


def _pairs(logs: Sequence[float]) -> tuple[LaunchPair, ...]:
    return tuple(
        LaunchPair(launch=launch, group=launch, base_s=(0.01,) * 5, head_s=(0.01 * math.exp(log),) * 5)
        for launch, log in enumerate(logs)
    )


def _experience(sd: float, launch_s: float) -> Experience:
    return Experience(gates=[_pairs(_scatter(40, sd))], seconds=[launch_s])


def _foreseen(
    budget_s: float,
    known: dict[str, Experience],
    *benchmarks: ComparedBenchmark,
    policy: Policy = POLICY,
    counted: bool = False,
) -> Foresight:
    by_key: dict[Key, Experience] = {(name, "v1"): one for name, one in known.items()}
    compared = benchmarks or tuple(_compared(name) for name in known)
    return foresee(compared, by_key, _method(budget_s, policy=policy, counted=counted), set_up_s=5.0)


def _one(found: Foresight, name: str) -> PlannedBenchmark:
    return next(one for one in found.benchmarks if one.benchmark.name == name)


def test_each_benchmark_states_where_its_scatter_is_known_from() -> None:
    known = {"a": _experience(0.01, 0.5), "b": _experience(0.03, 1.5)}
    found = _foreseen(600, known, _compared("a"), _compared("new"))
    nothing = _foreseen(600, {}, _compared("a"))

    own, other, usual = _one(found, "a"), _one(found, "new"), _one(nothing, "a")
    assert ("its gates", 1, 0.5) == (own.known_from, own.gates, own.launch_s)
    assert pytest.approx(0.01) == own.launch_sd
    assert ("other benchmarks", 0, 1.0) == (other.known_from, other.gates, other.launch_s)
    assert pytest.approx(0.02) == other.launch_sd
    assert ("usual", 0, USUAL_SD, USUAL_LAUNCH_S) == (
        usual.known_from,
        usual.gates,
        usual.launch_sd,
        usual.launch_s,
    )
    assert 0.1 < usual.launch_s < 1.0, "short calls take some tenths of a second"


def test_with_time_enough_each_has_the_last_look() -> None:
    found = _foreseen(1e5, {"a": _experience(0.01, 0.5), "b": _experience(0.01, 0.5)})

    assert {(POLICY.looks[-1], POLICY.looks[-1] * 0.5)} == {
        (one.launches, one.seconds) for one in found.benchmarks
    }
    assert 5 < found.unchanged_s < 5 + 2 * POLICY.looks[-1] * 0.5
    assert None is found.enough_s


@pytest.mark.parametrize("sd", [0.01, 0.03])
def test_what_a_plan_predicts_is_found_19_times_of_20(sd: float) -> None:
    one = _one(_foreseen(30, {"a": _experience(sd, 0.5)}), "a")
    assert one.effect is not None

    def found(slowdown: float) -> float:
        logs = normal(sd)(np.random.default_rng(8), (2000, one.launches)) + math.log1p(slowdown)
        policy = replace(POLICY, looks=POLICY.looks[: POLICY.looks.index(one.launches) + 1])
        return float((decide(logs, margin=MARGIN, policy=policy).regressed > 0).mean())

    assert 0.93 <= found(one.effect)
    assert found(MARGIN + (one.effect - MARGIN) / 2) < 0.8


def test_more_time_sees_smaller_slowdowns() -> None:
    policy = Policy(alpha=0.01, family=1, looks=(5, 80), shares=(0.1, 0.9))
    plans = [
        _one(_foreseen(budget_s, {"a": _experience(0.02, 1.0)}, policy=policy), "a")
        for budget_s in (9, 10.5, 85.5)
    ]

    assert [0, 5, 80] == [one.launches for one in plans]
    assert None is plans[0].effect
    assert (plans[1].effect or 0) > (plans[2].effect or 1) > MARGIN


def test_too_little_time_goes_to_changed_code_first() -> None:
    known = {name: _experience(0.01, 1.0) for name in "abcdef"}
    compared = [_compared(name, changed=name in "ef") for name in known]
    found = _foreseen(30, known, *compared)

    reached = {one.benchmark.name for one in found.benchmarks if one.launches}
    assert {"e", "f"} <= reached < set(known)
    assert found.enough_s is not None
    whole = _foreseen(found.enough_s, known, *compared)
    assert set(known) == {one.benchmark.name for one in whole.benchmarks if one.launches}


def test_counting_keeps_its_time() -> None:
    known = {("a", "v1"): _experience(0.01, 1.0)}
    plain, counting = (
        foresee([_compared("a")], known, _method(33, counted=counted), set_up_s=5.0).benchmarks[0]
        for counted in (False, True)
    )

    assert (26, 20) == (plain.launches, counting.launches)


def test_launches_of_earlier_gates_on_the_pair_count() -> None:
    known = {"open": _experience(0.01, 1.0), "done": _experience(0.01, 1.0)}
    begun = _compared("open", prior=_pairs(_scatter(10, 0.05)))
    decided = _compared("done", prior=_pairs(_scatter(60, 0.001, around=0.5)))

    found = _foreseen(16, known, begun, decided)

    going_on, done = _one(found, "open"), _one(found, "done")
    assert (20, 10.0, None) == (going_on.launches, going_on.seconds, going_on.decided)
    assert (58, 0.0, "REGRESSED", None) == (done.launches, done.seconds, done.decided, done.effect)
