"""A gate on a device reports how its sides shared it, what first calls took, and files both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from gating import CONFIGURATION, GitProject, git_project
from shared_device import SHARED_DEVICE
from synthetic import ENVIRONMENT, MACHINE, START

from perfkit.agent.clock import ALONE, UNREPORTED
from perfkit.gating.explain import cold_starts, on_the_device
from perfkit.ledger.store import Ledger
from perfkit.model import (
    COLD_AUTOTUNING,
    COLD_COMPILING,
    COLD_START,
    WALL_TIME,
    Benchmark,
    Commit,
    Metric,
    Outcome,
    Placement,
    Row,
    RowPolicy,
    Side,
)
from perfkit.runner.lockstep.residency import Effect, Presence, Residents

SUITE = """
import fake_device, need, pytest
def test_host(benchmark):
    benchmark.pedantic(sum, args=(range(1000),), rounds=5, iterations=20)
@pytest.mark.benchmark(timer=fake_device.clock)
def test_device(benchmark):
    fake_device.allocate(need.GIB)
    benchmark(fake_device.work)
"""


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    """Return a project with a benchmark of the host and one of a device."""
    files = {
        "pyproject.toml": CONFIGURATION.replace("preload = []", 'preload = ["torch"]'),
        "benchmarks/test_it.py": SUITE,
        "fake_device.py": SHARED_DEVICE,
        "need.py": "GIB = 30\n",
    }
    return git_project(tmp_path, files)


@pytest.mark.slow
def test_a_gate_alternates_launches_where_sides_have_no_room(project: GitProject, tmp_path: Path) -> None:
    project.commit({"need.py": "GIB = 60\n"}, "Hold more")
    place = tmp_path / "device"
    place.mkdir()

    done = project.gate("--base", "HEAD~1", "--budget", "60", extra={**os.environ, "FAKE_DEVICE": str(place)})

    assert 0 == done.exit_code, done.stderr
    assert {"test_host": "UNCHANGED", "test_device": "UNCHANGED"} == done.verdicts
    assert (
        "test_device: each side had the device to itself, and the launches of both alternated" in done.notes
    )
    (first,) = (
        one["first_call"] for one in done.report["comparisons"] if "test_device" in one["benchmark"]["name"]
    )
    assert [0.061, 0.061] == [round(first[f"{side}_s"], 6) for side in ("base", "head")]
    rows = list(Ledger(project.ledger).rows())
    timed = [row for row in rows if row.outcome.metric == WALL_TIME and row.outcome.values]
    assert {"test_host": False, "test_device": True} == {
        row.outcome.benchmark.name.partition("::")[2]: ALONE in row.policy.marks for row in timed
    }
    assert {str(30 << 30), str(60 << 30)} == {
        row.machine.facts["gpu0_reserved_bytes"] for row in timed if ALONE in row.policy.marks
    }
    assert {(0.061,)} == {
        tuple(round(one, 6) for one in row.outcome.values) for row in rows if row.outcome.metric == COLD_START
    }


@pytest.mark.slow
def test_a_gate_proves_that_sides_do_not_disturb_one_another(project: GitProject, tmp_path: Path) -> None:
    project.commit({"need.py": "GIB = 31\n"}, "Hold a little more")
    place = tmp_path / "device"
    place.mkdir()

    done = project.gate(
        *("--base", "HEAD~1", "--budget", "300", "--select", "test_device"),
        extra={**os.environ, "FAKE_DEVICE": str(place)},
    )

    assert 0 == done.exit_code, done.stderr
    assert (
        "rounds of test_device beside the other side on the device took longer by +0.00 to +0.00 % on base;"
        " +0.00 to +0.00 % on head: it does not disturb"
    ) in done.notes.replace("-0.00", "+0.00")
    assert ALONE not in {mark for row in Ledger(project.ledger).rows() for mark in row.policy.marks}


def test_each_reason_for_turns_is_reported_once() -> None:
    residents = Residents(
        alone={"a.py::test_a": "full", "a.py::test_b": "full"}, not_checked="it would take 1 min"
    )

    assert [
        "test_a, test_b: each side had the device to itself, and the launches of both alternated, since full",
        "it was not checked whether the sides disturb one another on the device: it would take 1 min",
    ] == list(on_the_device(residents))
    assert [] == list(on_the_device(Residents()))


@pytest.mark.parametrize(
    ("low", "high", "meant"),
    [
        (0.2, 0.3, "it disturbs"),
        (-0.001, 0.002, "it does not disturb"),
        (-0.1, 0.2, "so few rounds do not show whether it disturbs"),
    ],
)
def test_what_a_check_found_is_reported(low: float, high: float, meant: str) -> None:
    small = Effect(low=-0.001, high=0.001)
    effects: Mapping[Side, Effect] = {"base": Effect(low=low, high=high), "head": small}

    (note,) = on_the_device(Residents(presence=Presence(node="a.py::test_a", effects=effects)))

    assert f"{100 * low:+.2f} to {100 * high:+.2f} % on base; -0.10 to +0.10 % on head: {meant}" in note


def test_first_calls_are_reported_with_the_parts_that_are_known() -> None:
    def row(side: Side, metric: Metric, seconds: float) -> Row:
        return Row(
            run_id="r1",
            recorded_at=START,
            source="gate",
            commit=Commit(sha="a" * 40),
            machine=MACHINE,
            environment=ENVIRONMENT,
            outcome=Outcome(
                benchmark=Benchmark(name="a.py::test_a", version="v"), metric=metric, values=(seconds,)
            ),
            placement=Placement(side=side),
        )

    rows = [
        *(row("base", COLD_START, seconds) for seconds in (1.0, 2.0, 9.0)),
        row("head", COLD_START, 8.0),
        row("head", COLD_COMPILING, 7.0),
        row("head", COLD_AUTOTUNING, 0.0),
        row("head", WALL_TIME, 0.1),
    ]
    untold = replace(row("head", COLD_START, 8.0), policy=RowPolicy(marks=(UNREPORTED,)))

    (note,) = cold_starts(rows)
    assert note == (
        "first call of test_a: base 2.00 s (median of 3 launches);"
        " head 8.00 s (median of 1 launch; compiling 7.00 s)"
    )
    assert [] == list(cold_starts(rows[:4]))
    (sentence,) = cold_starts([untold])
    assert "head 8.00 s (median of 1 launch; time of compiling not told)" in sentence
