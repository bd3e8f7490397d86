"""Facts of a machine and its software are recorded."""

from __future__ import annotations

import cpuinfo
import pytest
import torch

from perfkit.runner.machine.facts import read_environment, read_machine


def test_a_machine_is_itself_at_every_reading() -> None:
    first, second = read_machine(), read_machine()

    assert first.machine_id == second.machine_id
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
