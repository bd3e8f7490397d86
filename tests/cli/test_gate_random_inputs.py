"""A gate of benchmarks that draw their inputs at random accuses no code that does not differ."""

from __future__ import annotations

from typing import Any

import pytest
from gating import Gated, GitProject, git_project

# Numbers of all three generators, drawn at import, in a fixture, and before the call.
BENCHMARKS = """
import random

import numpy as np
import pytest
import torch

SIZE = random.randint(1, 400) + np.random.randint(1, 400) + int(torch.randint(1, 400, (1,)))


def one(number):
    return number + 1


def add(size):
    return [one(number) for number in range(size)]


def rows(size):
    return [torch.ones(2) for _ in range(size)]


@pytest.fixture
def drawn():
    return np.random.randint(1, 400)


def test_import(benchmark):
    benchmark(add, SIZE)


def test_fixture(benchmark, drawn):
    benchmark(add, drawn + random.randint(1, 400))


def test_tensors(benchmark):
    benchmark(rows, random.randint(1, 40))
"""
CONFIGURATION = "[tool.perfkit]\nmargin = '50%'\n[tool.perfkit.gate]\nsame_code = false\n"
# Of a size that no seed can set, so that the sides draw differently.
UNSEEDED = """
import random

import numpy as np
import torch

SIZE = np.random.default_rng().integers(1, 10_000)


def test_rows(benchmark):
    benchmark(lambda: [torch.ones(2) for _ in range(SIZE % 50)])


def test_call(benchmark):
    benchmark.pedantic(lambda: sum(range(SIZE * 10)), rounds=5, iterations=2)
"""


def _project(tmp_path_factory: pytest.TempPathFactory, name: str, benchmarks: str) -> GitProject:
    files = {"pyproject.toml": CONFIGURATION, "demo.py": "", "benchmarks/test_random.py": benchmarks}
    return git_project(tmp_path_factory.mktemp(name), files)


def _counts(gated: Gated, metric: str) -> dict[str, dict[str, Any]]:
    found = [one for one in gated.report["exact"] if one["metric"]["name"] == metric]
    return {one["benchmark"]["name"].rpartition("::")[2]: one for one in found}


def test_both_sides_draw_the_same_inputs(tmp_path_factory: pytest.TempPathFactory) -> None:
    project = _project(tmp_path_factory, "alike", BENCHMARKS)
    project.commit({"demo.py": "NEW = 1\n"}, "Change code that no benchmark runs")

    gated = project.gate("--exact-only", "--base", "HEAD^", "--head", "HEAD")
    again = project.gate("--exact-only", "--base", "HEAD^", "--head", "HEAD")

    assert 0 == gated.exit_code
    calls, others = (_counts(one, "python_calls") for one in (gated, again))
    assert {"test_import", "test_fixture", "test_tensors"} == calls.keys()
    assert all(one["base"] == one["head"] for one in [*calls.values(), *others.values()])
    assert all(calls[name]["base"] != others[name]["base"] for name in ("test_import", "test_fixture"))


@pytest.fixture(scope="module")
def unseeded(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project whose inputs differ between the sides, with two commits after its first."""
    project = _project(tmp_path_factory, "unseeded", UNSEEDED)
    project.commit({"demo.py": "NEW = 1\n"}, "Change code that no benchmark runs")
    project.commit({"README.md": "A project\n"}, "Change no code")
    return project


def test_a_count_decides_only_where_other_processes_repeat_it(unseeded: GitProject) -> None:
    gated = unseeded.gate("--exact-only", "--base", "HEAD^^", "--head", "HEAD^")

    operators = _counts(gated, "operators")["test_rows"]
    assert 1 != gated.exit_code
    assert operators["verdict"] in {"INCONCLUSIVE", "UNCHANGED"}
    assert not operators["gating"] or operators["base"] == operators["head"]


def test_nothing_is_accused_where_no_code_differs(unseeded: GitProject) -> None:
    gated = unseeded.gate("--base", "HEAD^", "--head", "HEAD", "--budget", "10", "--alpha", "0.5")

    found = [one["verdict"] for one in (*gated.report["comparisons"], *gated.report["exact"])]
    assert found
    assert not {"REGRESSED", "IMPROVED"} & set(found)
    assert "no code differs between base and head" in gated.notes

    anew = unseeded.judge(gated.run_id)

    assert gated.verdicts == anew.verdicts
