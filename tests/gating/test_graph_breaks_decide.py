"""Graph breaks are counted without a GPU, and decide a gate that is set to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from gating import CONFIGURATION, git_project

SUITE = """
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
    files = {"pyproject.toml": settings, "benchmarks/test_it.py": SUITE, "model.py": WHOLE}
    project = git_project(tmp_path, files)
    project.commit({"model.py": BROKEN}, "Print what is lost")

    done = project.gate("--base", "HEAD~1", "--exact-only")

    assert 1 == done.exit_code, done.stderr
    (found,) = (one for one in done.report["exact"] if one["metric"]["name"] == "graph_breaks")
    assert (0, 1, "REGRESSED", True) == (found["base"], found["head"], found["verdict"], found["gating"])
    assert found["metric"]["exact"]
    assert ["model.py:4"] == [cause["place"] for cause in found["causes"]]
