"""In a recorded session a benchmark on an accelerator warms up, and its first call is a row of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from forked_commands import run
from repositories import create_repository
from shared_device import SHARED_DEVICE
from synthetic import ENVIRONMENT, MACHINE

from perfkit.agent.benchmark_fixture import Reading
from perfkit.agent.clock import NOT_WARM, ColdStart, DeviceTimes
from perfkit.identity import utc_now
from perfkit.ledger.recording import RunFacts
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Commit
from perfkit.plugin.recorder import SessionRecord, WarmedUp

SUITE = """
import fake_device, itertools, pytest

def test_host(benchmark):
    benchmark(sum, range(1000))

@pytest.mark.benchmark(timer=fake_device.clock)
def test_device(benchmark):
    fake_device.allocate(1)
    benchmark.pedantic(fake_device.work, rounds=2)

def test_warms_up(benchmark):
    fake_device.allocate(1)
    calls = itertools.count()
    def call():
        if next(calls) == 0:
            sum(range(300_000))
        sum(range(1000))
    benchmark(call)
    print("calls", next(calls))
"""


@pytest.mark.slow
def test_a_session_on_a_device_warms_up(tmp_path: Path) -> None:
    for name, text in (
        ("test_suite.py", SUITE),
        ("fake_device.py", SHARED_DEVICE),
        ("pytest.ini", "[pytest]"),
    ):
        (tmp_path / name).write_text(text)
    repository = create_repository(tmp_path)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "All of it")
    place = tmp_path / "device"
    place.mkdir()

    command = [sys.executable, "-m", "pytest", "-q", "--perfkit-ledger=rows", "--benchmark-max-time=0.01"]
    done = run(command, cwd=tmp_path, env={**os.environ, "FAKE_DEVICE": str(place)})

    assert 0 == done.returncode, done.stdout
    rows = {
        (row.outcome.benchmark.name.partition("::")[2], row.outcome.metric.name): row
        for row in Ledger(tmp_path / "rows").rows()
    }
    assert {"test_warms_up"} == {name for name, metric in rows if metric == "cold start"}
    cold, timed = rows["test_warms_up", "cold start"].outcome, rows["test_warms_up", "time"].outcome
    assert cold.values[0] > 2 * min(timed.values)
    assert (0, 1) == (cold.warmup, cold.loops)
    assert timed.warmup is not None
    assert timed.warmup >= 11
    assert {False} == {NOT_WARM in row.policy.marks for row in rows.values()}
    assert () == rows["test_host", "time"].policy.marks


def test_a_warm_up_without_end_marks_the_times() -> None:
    record = SessionRecord()
    reading = Reading(
        values=(1.0, 2.0),
        loops=1,
        warmup=3,
        mode="benchmark(...)",
        disable_gc=None,
        min_rounds=None,
        max_time_s=None,
        min_time_s=None,
        device=DeviceTimes(host_s=(0.1, 0.1)),
    )
    warmed = WarmedUp(cold=ColdStart(total_s=9.0), calls=200, warm=False)
    record.add(Benchmark(name="a", version="v"), reading, status="ok", message=None, warmed=warmed)

    facts = RunFacts(
        run_id="r",
        recorded_at=utc_now(),
        source="pytest",
        commit=Commit(sha="a" * 40),
        machine=MACHINE,
        environment=ENVIRONMENT,
    )
    rows = record.rows(facts)

    assert {"time": 203, "host time": 203, "cold start": 0} == {
        row.outcome.metric.name: row.outcome.warmup for row in rows
    }
    assert {(NOT_WARM,)} == {row.policy.marks for row in rows}
