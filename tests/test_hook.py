"""The pre-push hook gates real pushes to a real bare repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import git
import pytest
from forked_commands import run
from repositories import Repository

from perfkit.ledger.store import Ledger

ROOT = Path(__file__).parent.parent
CODE = """
def work():
    return sum(range({n}))
"""
BENCHMARK = """
from code_under_test import work

def test_work(benchmark):
    assert benchmark.pedantic(work, rounds=5, iterations=20) > 0
"""
# No torch, no counts, and a margin that the noisiest machine decides soon.
SETTINGS = """
[tool.perfkit]
margin = "25%"
[tool.perfkit.gate]
preload = []
alpha = 0.2
[tool.perfkit.exact]
count = false
"""


@pytest.fixture
def pushed(repository: Repository, tmp_path: Path) -> Repository:
    """Return a project with this repository's hook, whose main branch is at its remote already."""
    shutil.copytree(ROOT / ".githooks", repository.root / ".githooks")
    repository.commit(
        {
            "code_under_test.py": CODE.format(n=20_000),
            "tests/test_speed.py": BENCHMARK,
            "pyproject.toml": SETTINGS,
            ".gitignore": "benchmarks/\n__pycache__/\n",
        },
        "Begin",
    )
    repository.git.git.config("core.hooksPath", ".githooks")
    git.Repo.init(tmp_path / "remote.git", bare=True, initial_branch="main")
    repository.git.create_remote("origin", str(tmp_path / "remote.git"))
    assert 0 == _push(repository, "main").returncode
    return repository


def _push(repository: Repository, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    return run(["git", "push", "origin", *arguments], cwd=repository.root, env=environment)


def _gates(repository: Repository) -> list[set[str]]:
    """Return the commits that each gate in the ledger compared."""
    gates: dict[str, set[str]] = {}
    for row in Ledger(repository.root / "benchmarks/ledger").rows():
        gates.setdefault(row.run_id, set()).add(row.commit.sha)
    return list(gates.values())


def _remote_branches(repository: Repository) -> set[str]:
    listed = str(repository.git.git.ls_remote("--heads", "origin"))
    return {line.rpartition("/")[2] for line in listed.splitlines()}


def test_a_slower_branch_is_not_pushed(pushed: Repository) -> None:
    pushed.git.git.switch("--create", "slower")
    pushed.commit({"code_under_test.py": CODE.format(n=60_000)}, "Work more")

    done = _push(pushed, "slower")

    assert 1 == done.returncode
    assert "REGRESSED" in done.stdout + done.stderr
    assert {"main"} == _remote_branches(pushed)


def test_an_unchanged_branch_is_pushed_after_its_gate(pushed: Repository) -> None:
    base = pushed.git.head.commit.hexsha
    pushed.git.git.switch("--create", "same")
    head = pushed.commit({"code_under_test.py": CODE.format(n=20_000) + "\n# the same\n"}, "Comment")

    done = _push(pushed, "same", "same:twin")

    assert 0 == done.returncode, done.stderr
    assert {"main", "same", "twin"} == _remote_branches(pushed)
    assert [{base, head}] == _gates(pushed)


def test_what_changes_no_code_is_pushed_without_a_gate(pushed: Repository) -> None:
    pushed.git.git.switch("--create", "words")
    pushed.commit({"README.md": "Words"}, "Write more")

    assert 0 == _push(pushed, "words").returncode
    assert 0 == _push(pushed, "--delete", "words").returncode
    assert {"main"} == _remote_branches(pushed)
    assert [] == _gates(pushed)


def test_the_exit_code_of_the_gate_decides(pushed: Repository) -> None:
    perfkit = pushed.root / ".venv/bin/perfkit"
    perfkit.parent.mkdir(parents=True)
    perfkit.touch(0o755)
    pushed.git.git.switch("--create", "branch")
    pushed.commit({"code_under_test.py": "# other\n"})

    pushes = {}
    for code in range(5):
        perfkit.write_text(f"#!/bin/sh\nexit {code}\n")
        pushed.git.git.switch("--create", f"branch-{code}")
        pushes[code] = _push(pushed, f"branch-{code}").returncode == 0

    assert {0: True, 1: False, 2: False, 3: True, 4: False} == pushes
    assert {"main", "branch-0", "branch-3"} == _remote_branches(pushed)
    assert 0 == _push(pushed, "--no-verify", "branch-1").returncode
