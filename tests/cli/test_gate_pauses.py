"""A gate sees what few calls take, such as collecting the garbage that all calls leave."""

from __future__ import annotations

import pytest
from gating import git_project

CONFIGURATION = """
[tool.perfkit]
margin = "25%"
[tool.perfkit.gate]
alpha = 0.2
[tool.perfkit.exact]
count = false
"""
WORK = """
def work(size=1000):
    return sum(one * one for one in range(size))
"""
# Each call leaves a cycle, whose finaliser takes as long as ten calls whenever it is collected.
CYCLES = """

class Cycle:
    def __init__(self):
        self.own = self

    def __del__(self):
        work(10_000)


def call():
    Cycle()
    return work()
"""
PLAIN = """

def call():
    return work()
"""
BENCHMARK = "from demo import call\n\n\ndef test_call(benchmark):\n    benchmark(call)\n"


def test_garbage_that_calls_leave_is_theirs(tmp_path_factory: pytest.TempPathFactory) -> None:
    files = {"pyproject.toml": CONFIGURATION, "demo.py": WORK + PLAIN, "benchmarks/test_demo.py": BENCHMARK}
    project = git_project(tmp_path_factory.mktemp("pauses"), files)
    project.commit({"demo.py": WORK + CYCLES}, "Leave cycles")

    gated = project.gate("--base", "HEAD^", "--head", "HEAD", "--budget", "20")

    found = gated.comparisons["test_call"]
    assert gated.exit_code in {1, 3}
    assert found["verdict"] in {"REGRESSED", "INCONCLUSIVE"}
    assert "all" == found["estimate"]["calls"]
    assert found["estimate"]["ratio"] > 2
    assert found["cpu_ratio"] > 2
    anew = project.judge(gated.run_id)
    assert found["verdict"] == anew.comparisons["test_call"]["verdict"]
