"""`perfkit gate --instructions` on a real project finds which functions run more instructions."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from gating import CONFIGURATION, Gated, GitProject, git_project

WORK = """
def total(values):
    return sum(sorted(values))
"""
BENCHMARKS = """
from work import total

def test_total(benchmark):
    benchmark(total, list(range(1000, 0, -7)))
"""
FILES = {
    "pyproject.toml": CONFIGURATION.replace("count = false", 'count = false\ngate = ["instructions"]'),
    "work.py": WORK,
    "benchmarks/test_work.py": BENCHMARKS,
}
needs_valgrind = pytest.mark.skipif(shutil.which("valgrind") is None, reason="Valgrind is not installed")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project whose second commit sorts twice."""
    project = git_project(tmp_path_factory.mktemp("instructions"), FILES)
    project.commit({"work.py": WORK.replace("sorted(values)", "sorted(sorted(values, key=abs))")})
    return project


@pytest.fixture(scope="module")
def gated(project: GitProject) -> Gated:
    """Return a gate that times nothing."""
    return project.gate("--instructions", "--exact-only", "--base", "HEAD~1", "--head", "HEAD")


@needs_valgrind
@pytest.mark.slow
def test_more_instructions_fail_a_gate_that_names_them(gated: Gated) -> None:
    (total,) = (one for one in gated.report["exact"] if one["metric"]["name"] == "instructions")

    assert 1 == gated.exit_code, gated.stderr
    assert ("instructions", True) == (total["metric"]["unit"], total["metric"]["exact"])
    assert ("REGRESSED", True) == (total["verdict"], total["gating"])
    assert total["head"] > 1.5 * total["base"]
    assert {"list_sort_impl", "builtin_abs"} & {cause["what"] for cause in total["causes"]}


def test_without_valgrind_there_is_one_clear_error(
    project: GitProject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    commands = tmp_path_factory.mktemp("commands")
    git = shutil.which("git")
    assert git is not None
    Path(commands, "git").symlink_to(git)
    refused = project.gate("--instructions", extra={"PATH": str(commands)})

    assert (2, "") == (refused.exit_code, refused.stdout)
    assert "there is no valgrind and no callgrind_control on PATH: install Valgrind" in refused.stderr
