"""A gate that finds less wall time shows first where head takes more CPU time for it."""

from __future__ import annotations

import pytest
from forked_commands import run_perfkit
from gating import git_project

CONFIGURATION = """
[tool.perfkit]
margin = "20%"
[tool.perfkit.gate]
alpha = 0.2
[tool.perfkit.exact]
count = false
"""
SPIN = """
def spin(number=2000):
    return sum(one * one for one in range(number))
"""
# A call leaves four times the work to somebody else, for whose result nobody waits.
BACKGROUND = """
from concurrent import futures

pools = {}


def leave(kind):
    if kind not in pools:
        pools[kind] = getattr(futures, kind)(1)
    pools[kind].submit(spin, 8000)
"""
FOREGROUND = """

def leave(kind):
    spin()
"""
BENCHMARKS = """
import pytest

from demo import leave


@pytest.mark.parametrize("kind", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_leave(benchmark, kind):
    benchmark(leave, kind)
"""


def test_work_that_was_moved_to_the_background_comes_first(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    files = {
        "pyproject.toml": CONFIGURATION,
        "demo.py": SPIN + FOREGROUND,
        "benchmarks/test_demo.py": BENCHMARKS,
    }
    project = git_project(tmp_path_factory.mktemp("cpu"), files)
    project.commit({"demo.py": SPIN + BACKGROUND}, "Leave it to a pool")

    gated = project.gate("--base", "HEAD^", "--head", "HEAD", "--budget", "20")
    shown = run_perfkit(*project.judge_command(gated.run_id)[1:], cwd=project.root, env=project.environment())

    moved = [one for name, one in gated.comparisons.items() if name.startswith("test_leave")]
    assert ["IMPROVED"] * 2 == [one["verdict"] for one in moved]
    assert all(one["cpu_ratio"] > 1.2 for one in moved)
    assert "MORE CPU TIME" in next(line for line in shown.stdout.splitlines() if line.strip())
