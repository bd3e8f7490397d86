"""Where nothing is timed some count has to decide, or else nothing was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from gating import Gated, git_project

BENCHMARK = "import work\n\n\ndef test_work(benchmark):\n    benchmark(work.work)\n"
PLAIN = """
def helper(number):
    return number * number


def work():
    return sum(helper(number) for number in range(100))
"""
COMPILED = """
import torch


def _step(values):
    return (values.relu() * 2 + 1).sum()


step = torch.compile(_step, backend="eager", dynamic=True)


def work():
    return [step(torch.ones(number, 8)).item() for number in (4, 5, 6, 7)]
"""
BEFORE = COMPILED + "\n\nwork()\n"


def _gate(place: Path, base: str, head: str) -> Gated:
    project = git_project(
        place, {"pyproject.toml": "", "test_work.py": BENCHMARK, "work.py": base, "lib.py": ""}
    )
    project.commit({"work.py": head}, "Do more")
    return project.gate("--exact-only")


def _count(gated: Gated, metric: str) -> tuple[str, bool]:
    (found,) = (one for one in gated.report["exact"] if one["metric"]["name"] == metric)
    return found["verdict"], found["gating"]


def test_python_calls_decide_without_torch(tmp_path: Path) -> None:
    gated = _gate(tmp_path, PLAIN, PLAIN.replace("helper(number) for", "helper(helper(number)) for"))

    assert (1, ("REGRESSED", True)) == (gated.exit_code, _count(gated, "python_calls")), gated.stderr


def test_equal_python_calls_pass(tmp_path: Path) -> None:
    gated = _gate(tmp_path, PLAIN, PLAIN.replace("number * number", "number + number"))

    assert (0, ("UNCHANGED", True)) == (gated.exit_code, _count(gated, "python_calls")), gated.stderr


@pytest.mark.slow
def test_more_compiled_graphs_fail(tmp_path: Path) -> None:
    gated = _gate(tmp_path, COMPILED, COMPILED.replace("dynamic=True", "dynamic=False"))

    assert (1, ("REGRESSED", True)) == (gated.exit_code, _count(gated, "graphs")), gated.stderr


@pytest.mark.slow
def test_where_no_count_decides_nothing_was_measured(tmp_path: Path) -> None:
    gated = _gate(tmp_path, BEFORE, BEFORE + "\n# more\n")

    assert 4 == gated.exit_code, gated.stderr
    assert not any(one["gating"] for one in gated.report["exact"])
