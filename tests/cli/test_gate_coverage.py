"""A gate times only the benchmarks that run changed code, and names changed functions that none runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from gating import CONFIGURATION, SLOWER, GitProject, benchmark, git_project, work

from perfkit.ledger.store import Ledger
from perfkit.model.policies import JudgedPolicy

BENCH = "benchmarks/test_it.py"
BENCHMARKS = "import pytest\nfrom app import near, far\n" + "".join(
    benchmark(name, name) for name in ("near", "far")
)
CACHED = """
from functools import lru_cache

@lru_cache
def vocabulary():
    return spin(20)

class Net:
    def __init__(self):
        self.size = spin(1)

    def run(self):
        return vocabulary()
"""
FAST = ("--budget", "8")


def _app(**doses: int) -> dict[str, str]:
    return {"app.py": work(**{"near": 20, "far": 20, "other": 20, **doses})}


def _project(place: Path, files: dict[str, str]) -> GitProject:
    return git_project(place, {"pyproject.toml": CONFIGURATION.replace("same_code = false", ""), **files})


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    return _project(tmp_path, {BENCH: BENCHMARKS, **_app()})


def test_a_benchmark_without_changed_code_is_not_timed(project: GitProject) -> None:
    project.commit(_app(near=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", *FAST)

    assert {"test_near": "REGRESSED", "test_far": "SAME CODE"} == gated.verdicts
    assert 1 == gated.exit_code
    # The error is shared among the benchmarks that are timed.
    assert 1 == gated.report["policy"]["family"]
    assert 1 == gated.report["coverage"]["same"]
    assert "1 of 2 benchmarks runs no changed code" in " ".join(gated.stderr.split())
    found = {
        row.outcome.benchmark.name.rpartition("::")[2]: row.policy.verdict
        for row in Ledger(project.ledger).rows()
        if isinstance(row.policy, JudgedPolicy)
    }
    assert {"test_near": "REGRESSED", "test_far": "SAME CODE"} == found
    judged = project.judge(gated.run_id)
    assert gated.verdicts == judged.verdicts
    assert gated.exit_code == judged.exit_code


def test_where_nothing_changed_runs_the_first_line_states_it(project: GitProject) -> None:
    project.commit(_app(other=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", *FAST)

    assert {"SAME CODE"} == {*gated.verdicts.values()}
    assert 0 == gated.exit_code
    (one,) = gated.report["coverage"]["functions"]
    assert ("other", "app.py", "never") == (one["name"], one["file"], one["runs"])


def test_uncovered_fails_where_that_is_asked_for(project: GitProject) -> None:
    project.commit(_app(other=20 * SLOWER))

    assert 4 == project.gate("--base", "HEAD^", "--uncovered", "fail", *FAST).exit_code


def test_time_all_times_all(project: GitProject) -> None:
    project.commit(_app(other=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", "--time-all", *FAST)

    assert not {"SAME CODE"} & {*gated.verdicts.values()}
    assert 2 == gated.report["coverage"]["same"]


def test_a_setting_times_all(tmp_path: Path) -> None:
    project = git_project(tmp_path, {BENCH: BENCHMARKS, **_app()})
    project.commit(_app(other=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", *FAST)

    assert not {"SAME CODE"} & {*gated.verdicts.values()}


def test_equal_trees_are_timed(project: GitProject) -> None:
    project.repository.git.git.commit("--allow-empty", "-m", "Nothing")

    gated = project.gate("--base", "HEAD^", *FAST)

    assert not {"SAME CODE"} & {*gated.verdicts.values()}
    assert gated.report["coverage"] is None


def test_a_changed_conftest_is_timed(project: GitProject) -> None:
    project.commit({"conftest.py": "import os\nos.environ['N'] = '1'\n", **_app(other=21)})

    gated = project.gate("--base", "HEAD^", *FAST)

    assert not {"SAME CODE"} & {*gated.verdicts.values()}


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the trace is no trace function there")
def test_a_lost_trace_leaves_the_gate_as_it_is(project: GitProject) -> None:
    traced = "getattr(sys, 'monitoring', None) and sys.monitoring.get_tool(4) or sys.getprofile()"
    ends = f"\n\ndef far():\n    import os\n    import sys\n\n    if {traced}:\n        os._exit(3)\n"
    project.commit({"app.py": work(near=20 * SLOWER) + ends + "\n\ndef other():\n    return spin(20)\n"})

    gated = project.gate("--base", "HEAD^", *FAST)

    assert "REGRESSED" == gated.verdicts["test_near"]
    why = gated.report["coverage"]["affected"]["benchmarks/test_it.py::test_far"]
    assert "it did not pass while it was traced" == why


def test_where_functions_run_is_reported(tmp_path: Path) -> None:
    text = "from app import Net\n" + benchmark("net", "Net().run")
    project = _project(tmp_path, {BENCH: text, "app.py": work() + CACHED})
    project.commit({"app.py": work() + CACHED.replace("spin(20)", "spin(21)").replace("spin(1)", "spin(2)")})

    gated = project.gate("--base", "HEAD^", *FAST)

    runs = {one["name"]: one["runs"] for one in gated.report["coverage"]["functions"]}
    assert {"vocabulary": "first call", "Net.__init__": "set-up"} == runs
    assert "SAME CODE" != gated.verdicts["test_net"]


def test_a_suite_of_asv_is_traced(tmp_path: Path) -> None:
    suite = {
        "asv.conf.json": '{"version": 1, "project": "x", "benchmark_dir": "bench"}',
        "bench/__init__.py": "",
        "bench/suite.py": "from app import *\n\ndef time_near():\n    near()\n\ndef time_far():\n    far()\n",
    }
    project = _project(tmp_path, {**suite, **_app()})
    project.commit(_app(near=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", "--benchmarks", "bench", *FAST)

    assert ["REGRESSED", "SAME CODE"] == sorted(gated.verdicts.values())
