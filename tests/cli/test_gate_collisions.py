"""Sides that need the same port or lock file are measured one after the other, and causes are shown."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from gating import git_project, work

HELD = """
import fcntl, os, pathlib, socket
import pytest
from work import steady

@pytest.fixture
def held():
    {taken}
    yield
    taken.close()

@pytest.mark.perfkit(limit=4)
def test_held(benchmark, held):
    benchmark.pedantic(steady, rounds=5, iterations=20)
"""
WAYS = {
    "port": "taken = socket.socket(); taken.bind(('127.0.0.1', {port})); taken.listen()",
    "lock": "taken = open('{lock}', 'w'); fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)",
    "wait": "taken = open('{lock}', 'w'); fcntl.flock(taken, fcntl.LOCK_EX)",
}
RAISES = """
def test_raises(benchmark):
    text = "-- Process 0 terminated with the following error:\\nTraceback (most recent call last):\\n"
    text += "  File 'somewhere/spawn.py', line 1, in run\\n    started = True\\n" * 20
    raise RuntimeError(text + "ValueError: the cause of it\\nframe #0: somewhere + 0x1\\n")
    benchmark(int)
"""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("option", [(), ("--exact-only",)], ids=["timed", "counted"])
def test_sides_that_need_the_same_run_one_after_the_other(
    tmp_path: Path, way: str, option: tuple[str, ...]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    taken = WAYS[way].format(port=port, lock=tmp_path / "suite.lock")
    project = git_project(tmp_path, {"work.py": work(steady=10), "test_held.py": HELD.format(taken=taken)})
    project.commit({"work.py": work(steady=60)})

    gated = project.gate("--budget", "60", *option)

    assert "FAILED" not in gated.verdicts.values(), gated.stderr
    assert "TIMEOUT" not in gated.verdicts.values(), gated.stderr
    if not option:
        assert {"test_held": "REGRESSED"} == gated.verdicts
        assert "as where both need the same port or lock file" in gated.notes


def test_the_cause_of_another_processes_error_is_shown(tmp_path: Path) -> None:
    project = git_project(tmp_path, {"work.py": "", "test_raises.py": RAISES})
    project.commit({"work.py": "x = 1\n"})

    gated = project.gate("--budget", "20")

    assert "ValueError: the cause of it" in gated.comparisons["test_raises"]["message"]
