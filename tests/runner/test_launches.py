"""Launches of several commits are made in a balanced order, and end with all that they started."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.agent.processes import read_process
from perfkit.runner.commands import ALLOCATOR
from perfkit.runner.launches import LaunchResult, SessionSlot, launch_environment, plan_launches, run_session

names = st.lists(st.text("abcdef", min_size=4, max_size=4), min_size=1, max_size=6, unique=True)


@given(names, st.integers(1, 12), st.integers(0, 99))
def test_each_block_holds_every_commit_once(shas: list[str], launches: int, seed: int) -> None:
    slots = plan_launches(shas, launches, seed=seed)

    blocks = [{slot.sha for slot in slots if slot.block == block} for block in range(launches)]
    assert [set(shas)] * launches == blocks
    assert len(shas) * launches == len(slots)
    assert plan_launches(shas, launches, seed=seed) == slots


def test_every_commit_stands_at_every_place_equally_often() -> None:
    slots = plan_launches(["a", "b", "c"], 6, seed=1)

    assert {2} == set(Counter((slot.sha, slot.order) for slot in slots).values())


def test_a_launch_sees_its_own_code_first_and_a_fixed_allocator() -> None:
    environment = launch_environment({"PYTHONPATH": "/mine", "HOME": "/h"}, root=Path("/root"), hash_seed=7)

    assert "/root:/root/src:/mine" == environment["PYTHONPATH"]
    assert ("7", "/h") == (environment["PYTHONHASHSEED"], environment["HOME"])
    assert ALLOCATOR.items() <= environment.items()


def _launch(root: Path, *, limit_s: float) -> LaunchResult:
    return run_session(
        SessionSlot(sha="a", launch=0, block=0, order=0, hash_seed=1),
        root=root,
        benchmarks=".",
        select=None,
        ledger=root / "ledger",
        environment=os.environ,
        limit_s=limit_s,
    )


def test_a_launch_without_benchmarks_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFKIT_COMMIT", "a" * 40)
    (tmp_path / "bench_x.py").write_text("def test_x(benchmark):\n    benchmark(int)\n")

    found = _launch(tmp_path, limit_s=60)

    assert "error" == found.status
    assert found.tail.startswith("pytest found no benchmark")
    assert "python_files" in found.tail


def test_a_launch_that_exceeds_its_limit_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(tmp_path / 'child')!r}).write_text(str(child.pid))\n"
        "time.sleep(600)\n"
    )

    result = _launch(tmp_path, limit_s=2)

    assert LaunchResult(status="timeout", tail="it took longer than 2 s, the limit") == result
    child = read_process(int((tmp_path / "child").read_text()))
    assert child is None or "Z" == child.state


@pytest.mark.parametrize(
    ("file", "text", "shown"),
    [
        (
            "pyproject.toml",
            "[tool.perfkit]\nmargins = '2%'\n",
            'pyproject.toml: unknown key "tool.perfkit.margins"',
        ),
        ("pyproject.toml", "[tool.perfkit\n", "pyproject.toml is not valid TOML"),
        ("asv.conf.json", "{", "asv.conf.json"),
    ],
)
def test_a_commit_whose_configuration_is_faulty_has_a_failed_launch(
    tmp_path: Path, file: str, text: str, shown: str
) -> None:
    (tmp_path / file).write_text(text)

    result = _launch(tmp_path, limit_s=60)

    assert "error" == result.status
    assert result.tail.startswith(shown)
