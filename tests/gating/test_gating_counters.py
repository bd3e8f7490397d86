"""Counters decide a gate by themselves: a slower import, a larger peak of memory, one more graph break."""

from __future__ import annotations

from pathlib import Path

import pytest
from gating import CONFIGURATION, git_project

MODULE = """
held = b"1" * (1 << 20)
def work(number):
    return sum(range(number))
"""
SUITE = """
from demo import work
def test_work(benchmark):
    benchmark(work, 20_000)
"""


@pytest.mark.slow
def test_a_slower_import_and_a_larger_peak_end_a_gate(tmp_path: Path) -> None:
    settings = CONFIGURATION.replace("count = false", "count = true")
    project = git_project(
        tmp_path, {"pyproject.toml": settings, "benchmarks/test_it.py": SUITE, "demo.py": MODULE}
    )
    slower = f"import time\ntime.sleep(0.15)\n{MODULE.replace('1 << 20', '64 << 20')}"
    project.commit({"demo.py": slower}, "Hold more, begin later")

    done = project.gate("--base", "HEAD~1")

    assert 1 == done.exit_code, done.stderr
    found = {one["metric"]["name"]: one for one in done.report["exact"]}
    for metric, least in (("import_time", 0.1), ("peak_resident", 48 << 20)):
        one = found[metric]
        assert ("REGRESSED", True) == (one["verdict"], one["gating"])
        assert one["head"] - one["base"] > least
    again = project.judge(done.run_id)
    kept = {one["metric"]["name"]: one["verdict"] for one in again.report["exact"]}
    assert "REGRESSED" == kept["import_time"] == kept["peak_resident"]


COMPILED = """
import torch, model
step = torch.compile(model.step, backend="eager")
def test_step(benchmark):
    benchmark(step, torch.ones(3))
"""
WHOLE = """
def step(given):
    return (given * 2).sum() + 1
"""
BROKEN = """
def step(given):
    total = (given * 2).sum()
    print("total", end="")
    return total + 1
"""


@pytest.mark.slow
def test_one_more_graph_break_ends_a_gate_with_its_line(tmp_path: Path) -> None:
    settings = CONFIGURATION.replace("preload = []", 'preload = ["torch"]').replace(
        "count = false", 'gate = ["graph_breaks"]'
    )
    files = {"pyproject.toml": settings, "benchmarks/test_it.py": COMPILED, "model.py": WHOLE}
    project = git_project(tmp_path, files)
    project.commit({"model.py": BROKEN}, "Print what is lost")

    done = project.gate("--base", "HEAD~1", "--exact-only")

    assert 1 == done.exit_code, done.stderr
    (found,) = (one for one in done.report["exact"] if one["metric"]["name"] == "graph_breaks")
    assert (0, 1, "REGRESSED", True) == (found["base"], found["head"], found["verdict"], found["gating"])
    assert found["metric"]["exact"]
    assert ["model.py:4"] == [cause["place"] for cause in found["causes"]]
