"""`perfkit tricks` on this machine: a run that is filed, told again, and mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from repositories import create_repository

from perfkit.ledger.store import Ledger

PERFKIT = Path(sys.executable).with_name("perfkit")


@dataclass(frozen=True)
class TricksProject:
    """A repository to file results in."""

    root: Path

    @property
    def ledger(self) -> Ledger:
        """Its ledger."""
        return Ledger(self.root / "benchmarks/ledger")

    def tricks(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command."""
        return subprocess.run(
            [str(PERFKIT), "tricks", *arguments],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TricksProject:
    """Return a project with a commit."""
    root = tmp_path_factory.mktemp("tricks")
    repository = create_repository(root)
    repository.git.commit("--quiet", "--allow-empty", "-m", "Begin")
    return TricksProject(root)


@pytest.fixture(scope="module")
def done(project: TricksProject) -> subprocess.CompletedProcess[str]:
    """Return a run of two tricks, and of the pair that is none."""
    only = [
        word for name in ("identical", "no_grad", "batching_small_operators") for word in ("--only", name)
    ]
    return project.tricks(*only, "--margin", "40%", "--budget", "60", "--json", "-", "--markdown", "found.md")


def test_tricks_are_measured_and_filed(
    project: TricksProject, done: subprocess.CompletedProcess[str]
) -> None:
    """Both sides of each, with their counts; what is no trick neither helps nor hurts."""
    assert 0 == done.returncode, done.stderr
    report = json.loads(done.stdout)
    by_trick = {one["case"]["trick"]: one for one in report["results"]}
    assert {"identical", "no_grad", "batching_small_operators"} == set(by_trick)
    assert all(one["equivalence"]["equal"] for one in by_trick.values())
    assert by_trick["identical"]["comparison"]["verdict"] in {"UNCHANGED", "INCONCLUSIVE"}
    counts = {one["metric"]["name"]: one for one in by_trick["batching_small_operators"]["exact"]}
    assert counts["operators"]["base"] > counts["operators"]["head"]
    rows = project.ledger.rows()
    assert {"tricks"} == {row.source for row in rows}
    assert {"base", "head"} == {row.placement.side for row in rows}


def test_a_run_is_told_again_from_the_ledger(
    project: TricksProject, done: subprocess.CompletedProcess[str]
) -> None:
    """To the letter."""
    written = (project.root / "found.md").read_text()
    again = project.tricks("--from-ledger", "--json", "-", "--markdown", "found.md")

    assert (0, done.stdout) == (again.returncode, again.stdout)
    assert written == (project.root / "found.md").read_text()
    assert "| The same code twice (128 rows in a batch) |" in written


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "chanels_last"), "did you mean 'channels_last'"),
        (("--budget", "0"), "--budget must be above zero"),
        (("--margin", "none"), "--margin must be a percentage"),
        (("--from-ledger", "--ledger", "nowhere"), "no run of tricks"),
    ],
)
def test_mistakes_are_one_line(project: TricksProject, arguments: tuple[str, ...], said: str) -> None:
    """With exit code 2."""
    failed = project.tricks(*arguments)

    assert (2, "") == (failed.returncode, failed.stdout)
    assert said in failed.stderr
    assert "Traceback" not in failed.stderr
