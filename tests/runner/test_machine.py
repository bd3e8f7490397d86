"""The machine's facts and conditions are read as the system has them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import cpuinfo
import pytest
import torch

from perfkit.model.calibration import Condition
from perfkit.model.surroundings import MACHINE_SPEEDS
from perfkit.runner.machine.conditions import read_conditions, usable_cpus
from perfkit.runner.machine.facts import read_environment, read_machine


def test_a_machine_is_itself_at_every_reading() -> None:
    first, second = read_machine(), read_machine(timed=True)

    assert first.machine_id == second.machine_id
    assert all(0 < float(second.facts[name]) < 100 for name in MACHINE_SPEEDS)
    assert {"cpu", "logical_cpus", "ram_gib", "gpus", "load_1min"} <= set(first.facts)


def test_the_name_of_the_cpu_is_that_of_cpuinfo() -> None:
    assert cpuinfo.get_cpu_info()["brand_raw"] == read_machine().facts["cpu"]


def test_threads_and_allocator_are_part_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = read_environment()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1073741824")
    after = read_environment()

    assert str(torch.get_num_threads()) == before.facts["threads"]
    assert torch.__version__.partition("+")[0] == before.facts["torch"].partition("+")[0]
    assert before.env_id != after.env_id


STEADY = {
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor": "performance\n",
    "sys/devices/system/cpu/intel_pstate/no_turbo": "1\n",
    "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count": "7\n",
    "sys/devices/system/cpu/smt/active": "0\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
    "proc/cpuinfo": "flags : fpu vme\n",
}
SHAKY = {
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    "sys/devices/system/cpu/cpufreq/boost": "1\n",
    "sys/devices/system/cpu/smt/active": "1\n",
    "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n",
    "proc/cpuinfo": "flags : fpu vme hypervisor\n",
}
FROM_FILES = ("governor", "turbo", "throttling", "hyperthreads", "huge pages", "virtual")


def _read(root: Path, files: Mapping[str, str], **variables: str) -> dict[str, Condition]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return {one.name: one for one in read_conditions(root=root, variables=variables, sample_s=0.01)}


def test_a_steady_machine_is_good(tmp_path: Path) -> None:
    found = _read(tmp_path, STEADY)

    assert dict.fromkeys(FROM_FILES, "good") == {name: found[name].state for name in FROM_FILES}
    assert not any(found[name].advice for name in FROM_FILES)


def test_a_shaky_machine_gets_advice(tmp_path: Path) -> None:
    found = _read(tmp_path, SHAKY)

    moving = [name for name in FROM_FILES if name != "throttling"]
    assert dict.fromkeys(moving, "notable") == {name: found[name].state for name in moving}
    assert all(found[name].advice for name in moving)


def test_what_is_hidden_is_unknown(tmp_path: Path) -> None:
    found = _read(tmp_path, {})

    assert dict.fromkeys(FROM_FILES, "unknown") == {name: found[name].state for name in FROM_FILES}


@pytest.mark.parametrize(("threads", "state"), [("1", "good"), ("64", "bad")])
def test_more_threads_than_cores_are_bad(tmp_path: Path, threads: str, state: str) -> None:
    found = _read(tmp_path, {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, OMP_NUM_THREADS=threads)["threads"]

    assert state == found.state
    assert ("OMP_NUM_THREADS=" in str(found.advice)) == (state == "bad")


@pytest.mark.parametrize(("quota", "cpus"), [("50000 100000", 0.5), ("150000 100000", 1.5)])
def test_a_containers_share_counts_as_cores(tmp_path: Path, quota: str, cpus: float) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(quota)

    assert min(cpus, usable_cpus(tmp_path / "nowhere")) == usable_cpus(tmp_path)


@pytest.mark.parametrize(("quota", "cpus"), [("50000", 0.5), ("150000", 1.5), ("-1", math.inf)])
def test_a_share_in_older_control_groups_counts_as_well(tmp_path: Path, quota: str, cpus: float) -> None:
    (tmp_path / "sys/fs/cgroup/cpu").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "sys/fs/cgroup/cpu/cpu.cfs_period_us").write_text("100000\n")

    assert min(cpus, usable_cpus(tmp_path / "nowhere")) == usable_cpus(tmp_path)


def test_this_machine_can_be_read() -> None:
    found = read_conditions(sample_s=0.05)

    assert len({one.name for one in found}) == len(found) > 8
    assert all(one.found for one in found)
    assert all(one.advice for one in found if one.state == "bad")
