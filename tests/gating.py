"""These helpers make small real projects, and run gates on them as processes with exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forked_commands import run_perfkit
from repositories import Repository, create_repository

PERFKIT = Path(sys.executable).with_name("perfkit")
# Only the harness is shared. What is timed here does not depend on what a change touches.
CONFIGURATION = """
[tool.perfkit]
margin = "50%"
[tool.perfkit.gate]
same_code = false
preload = []
alpha = 0.2
[tool.perfkit.exact]
count = false
"""
# A benchmark that allows few rounds is measured in few: a launch of it takes milliseconds.
BENCHMARK = """
def test_{name}(benchmark):
    benchmark.pedantic({call}, rounds=5, iterations=20)
"""
SPIN = """
def spin(units):
    total = 0
    for number in range(units * 200):
        total += number
    return min(total, 1)
"""
SLOWER = 3  # times the work: far beyond the margin


def work(**doses: int) -> str:
    """Return the text of a module with a function for each dose, in units of work of some 10 us."""
    functions = (f"\ndef {name}():\n    return spin({units})\n" for name, units in doses.items())
    return SPIN + "".join(functions)


def benchmark(name: str, call: str, *marks: str) -> str:
    """Return the text of a benchmark called ``test_NAME`` of a call."""
    marked = "".join(f"\n@pytest.mark.{mark}" for mark in marks)
    return marked + BENCHMARK.format(name=name, call=call)


@dataclass(frozen=True, kw_only=True)
class Gated:
    """What a gate left: its exit code, both streams, and the JSON it wrote (empty where it wrote none)."""

    exit_code: int
    stdout: str
    stderr: str
    report: dict[str, Any]

    @property
    def comparisons(self) -> dict[str, dict[str, Any]]:
        """The comparisons by the name of the test function."""
        return {_short(one["benchmark"]["name"]): one for one in self.report["comparisons"]}

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdicts by the name of the test function."""
        return {name: one["verdict"] for name, one in self.comparisons.items()}

    @property
    def notes(self) -> str:
        """All notes, one a line."""
        return "\n".join(self.report["notes"])

    @property
    def run_id(self) -> str:
        """The id of its run."""
        return str(self.report["run_id"])


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder to gate in, and a ledger and a place for temporary files outside of it."""

    root: Path

    @property
    def ledger(self) -> Path:
        """The ledger of its gates."""
        return self.root.with_name(f"{self.root.name}-ledger")

    @property
    def temporary(self) -> Path:
        """Where its gates make temporary files: only their own are found there."""
        return self.root.with_name(f"{self.root.name}-tmp")

    def left_behind(self) -> set[str]:
        """Return what gates left among the temporary files."""
        return {path.name for path in self.temporary.iterdir()}

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of a gate."""
        return [str(PERFKIT), "gate", "--ledger", str(self.ledger), *arguments]

    def judge_command(self, run: str) -> list[str]:
        """Return the command line that judges a kept gate anew."""
        return [str(PERFKIT), "ledger", "judge", run, "--ledger", str(self.ledger)]

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables that a gate runs under."""
        self.temporary.mkdir(exist_ok=True)
        return {**os.environ, "TMPDIR": str(self.temporary), **(extra or {})}

    def gate(self, *arguments: str, cwd: Path | None = None, extra: Mapping[str, str] | None = None) -> Gated:
        """Run a gate to its end; its temporary files have to go with it."""
        return self._gated(self.command("--json", "-", *arguments), cwd=cwd, extra=extra)

    def judge(self, run: str, *, cwd: Path | None = None, extra: Mapping[str, str] | None = None) -> Gated:
        """Judge a kept gate anew."""
        return self._gated([*self.judge_command(run), "--json", "-"], cwd=cwd, extra=extra)

    def _gated(self, command: list[str], *, cwd: Path | None, extra: Mapping[str, str] | None) -> Gated:
        done = run_perfkit(*command[1:], cwd=cwd or self.root, env=self.environment(extra))
        assert set() == self.left_behind()
        return Gated(
            exit_code=done.returncode,
            stdout=done.stdout,
            stderr=done.stderr,
            report=json.loads(done.stdout) if done.stdout else {},
        )


@dataclass(frozen=True, kw_only=True)
class GitProject(Project):
    """A project that is a git repository of its own."""

    repository: Repository

    def commit(self, files: Mapping[str, str], subject: str = "Change things") -> str:
        """Write files, commit everything and return the commit."""
        return self.repository.commit(dict(files), subject)

    def worktrees(self) -> list[str]:
        """Return what git lists as worktrees, the project's own first."""
        return [str(line) for line in self.repository.git.git.worktree("list").splitlines()]


def git_project(place: Path, files: Mapping[str, str]) -> GitProject:
    """Return a new repository below a folder, with the files as its first commit."""
    root = place / "project"
    root.mkdir()
    project = GitProject(root=root, repository=Repository(root, create_repository(root)))
    project.commit({"pyproject.toml": CONFIGURATION, **files}, "Begin")
    return project


def _short(node: str) -> str:
    return node.rpartition("::")[2] or node
