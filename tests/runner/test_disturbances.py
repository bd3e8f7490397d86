"""What disturbs the machine between two moments is seen in its clocks, its counters and its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from processes_seen import wait_until

from perfkit.agent.processes import read_process
from perfkit.model.policies import Disturbance, What
from perfkit.runner.machine.conditions import (
    Moment,
    Watch,
    cores_of_group,
    disturbances,
    read_moment,
    throttled_s,
)

BEFORE = Moment(
    wall_s=1e9, monotonic_s=50.0, boot_s=60.0, stolen_s=3.0, others_s=7.0, cpu_s=200.0, throttled_s=1.0
)
# Ten seconds later on two cores, of which nobody else took more than usual.
QUIET = Moment(
    wall_s=1e9 + 10.2,
    monotonic_s=60.0,
    boot_s=70.0,
    stolen_s=3.5,
    others_s=10.0,
    cpu_s=220.0,
    throttled_s=1.4,
)


@pytest.mark.parametrize(
    ("what", "amount", "changes"),
    [
        ("clock set", 3600.2, {"wall_s": QUIET.wall_s + 3600}),
        ("clock set", -89.8, {"wall_s": QUIET.wall_s - 90}),
        ("suspended", 300.0, {"wall_s": QUIET.wall_s + 300, "boot_s": QUIET.boot_s + 300}),
        ("stolen", 0.2, {"stolen_s": 7.0}),
        ("other work", 0.5, {"others_s": 17.0}),
        ("throttled", 4.0, {"throttled_s": 5.0}),
    ],
)
def test_what_happened_is_reported_with_its_size(
    what: What, amount: float, changes: dict[str, float]
) -> None:
    assert [Disturbance(what=what, amount=amount)] == [*disturbances(BEFORE, replace(QUIET, **changes))]


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("sys/fs/cgroup/cpu.stat", "usage_usec 7\nthrottled_usec 2500000\n"),
        ("sys/fs/cgroup/cpu/cpu.stat", "nr_throttled 2\nthrottled_time 2500000000\n"),
    ],
)
def test_both_versions_of_control_groups_are_read(tmp_path: Path, place: str, text: str) -> None:
    assert read_moment(tmp_path).throttled_s is None

    (tmp_path / place).parent.mkdir(parents=True)
    (tmp_path / place).write_text(text)

    assert 2.5 == read_moment(tmp_path).throttled_s


@pytest.mark.parametrize(
    ("output", "own", "quota", "counter"),
    [
        ("0::/slice/job\n", "sys/fs/cgroup", ("cpu.max", "150000 100000"), "throttled_usec 1500000"),
        (
            "4:cpu,cpuacct:/slice/job\n3:cpuset:/\n0::/\n",
            "sys/fs/cgroup/cpu",
            ("cpu.cfs_quota_us", "150000"),
            "throttled_time 1500000000",
        ),
    ],
)
def test_groups_above_its_own_count(
    tmp_path: Path, output: str, own: str, quota: tuple[str, str], counter: str
) -> None:
    slice_, job = tmp_path / own / "slice", tmp_path / own / "slice/job"
    job.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(output)
    (slice_ / quota[0]).write_text(quota[1])
    for group in (slice_, job):
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.stat").write_text(f"nr_periods 9\n{counter}\n")

    assert 1.5 == cores_of_group(tmp_path)
    assert 3.0 == throttled_s(tmp_path)


@pytest.mark.parametrize("output", ["0::/docker/7f3a\n", "0::/../../job\n", "1:cpu:/docker/7f3a\n", ""])
def test_a_path_that_a_container_does_not_see_is_its_own_group(tmp_path: Path, output: str) -> None:
    for name, text in (("proc/self/cgroup", output), ("sys/fs/cgroup/cpu.max", "50000 100000")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)

    assert 0.5 == cores_of_group(tmp_path)


# It prints the number of a process that spins, and ends: that one then descends from nobody here.
NEIGHBOUR = """
import subprocess, sys
mute = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
print(subprocess.Popen([sys.executable, "-c", "while True: pass"], **mute).pid)
"""


def test_a_neighbour_is_other_work() -> None:
    before, own = read_moment(), read_process(os.getpid())
    output = subprocess.run(
        [sys.executable, "-c", NEIGHBOUR], capture_output=True, text=True, check=True, timeout=60
    )
    neighbour = psutil.Process(int(output.stdout))
    try:
        assert wait_until(lambda: neighbour.cpu_times().user > 0.5)
        after = read_moment()
    finally:
        neighbour.kill()

    assert after.others_s - before.others_s > 0.2
    assert own is not None
    assert read_process(os.getpid()).ended_s > own.ended_s  # type: ignore[union-attr]


def test_a_watch_reports_what_happened_since_it_was_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 7200)

    assert [7200.0] == [round(one.amount, -1) for one in watch() if one.what == "clock set"]
    assert [] == [one for one in watch() if one.what == "clock set"]
