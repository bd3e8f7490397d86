"""`perfkit tricks` on this machine files a run, shows it again, and names mistakes."""

from __future__ import annotations

import errno
import json
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from forked_commands import run_perfkit
from repositories import create_repository

from perfkit.config import load_project
from perfkit.features.tricks import command as tricks
from perfkit.features.tricks.trick import TrickCase
from perfkit.ledger import recording
from perfkit.ledger.recording import Run
from perfkit.ledger.schema import to_entries
from perfkit.ledger.store import Ledger
from perfkit.report.gate.terminal import GateProgress

LOOP = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=500)
steps = parser.parse_args().steps
parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(200)]
optimizer = torch.optim.Adam(parameters, foreach=False)
for _ in range(steps):
    torch.stack(parameters).square().sum().backward()
    optimizer.step()
    for _ in range(20):
        optimizer.zero_grad(set_to_none=False)
"""


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
        return run_perfkit("tricks", *arguments, cwd=self.root)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> TricksProject:
    """Return a project with a commit and a training loop."""
    root = tmp_path_factory.mktemp("tricks")
    (root / "loop.py").write_text(LOOP)
    repository = create_repository(root)
    repository.git.commit("--quiet", "--allow-empty", "-m", "Begin")
    return TricksProject(root)


@pytest.fixture(scope="module")
def done(project: TricksProject) -> subprocess.CompletedProcess[str]:
    """Return a run of two tricks, and of the pair that is none."""
    only = ["--only", "identical", "--only", "batching_small_operators"]
    return project.tricks(*only, "--margin", "40%", "--budget", "90", "--json", "-", "--markdown", "found.md")


def test_tricks_are_measured_and_filed(
    project: TricksProject, done: subprocess.CompletedProcess[str]
) -> None:
    assert 0 == done.returncode, done.stderr
    report = json.loads(done.stdout)
    by_trick = {one["case"]["trick"]: one for one in report["results"]}
    assert {"identical", "batching_small_operators"} == set(by_trick)
    assert all(one["equivalence"]["equal"] for one in by_trick.values())
    assert by_trick["identical"]["comparison"]["verdict"] in {"UNCHANGED", "INCONCLUSIVE"}
    counts = {one["metric"]["name"]: one for one in by_trick["batching_small_operators"]["exact"]}
    assert counts["operators"]["base"] > counts["operators"]["head"]
    rows = project.ledger.rows()
    assert {"tricks"} == {row.source for row in rows}
    assert {"base", "head"} == {row.placement.side for row in rows}


@pytest.fixture(scope="module")
def applied(project: TricksProject) -> subprocess.CompletedProcess[str]:
    """Return a run on a loop that two tricks help, and to which a third means nothing."""
    only = [
        word for name in ("adam_fused", "zero_grad_set_to_none", "sgd_fused") for word in ("--only", name)
    ]
    message = "--set steps=30 --margin 5% --alpha 0.2 --budget 150 --json - --markdown loop.md"
    return project.tricks("--apply-to", "loop.py", *only, *message.split())


@pytest.mark.alone
@pytest.mark.slow
def test_tricks_are_applied_to_a_loop(
    project: TricksProject, applied: subprocess.CompletedProcess[str]
) -> None:
    assert 0 == applied.returncode, applied.stderr
    report = json.loads(applied.stdout)
    by_trick = {one["case"]["trick"]: one for one in report["results"]}
    fused, dropped = by_trick["adam_fused"], by_trick["zero_grad_set_to_none"]
    assert "IMPROVED" == fused["comparison"]["verdict"] == dropped["comparison"]["verdict"]
    (joined,) = set(by_trick) - {"adam_fused", "zero_grad_set_to_none"}
    assert {"adam_fused", "zero_grad_set_to_none"} == set(joined.split("+"))
    ratios = [one["comparison"]["estimate"]["ratio"] for one in (fused, dropped, by_trick[joined])]
    assert ratios[2] < min(ratios[:2])
    assert {"sgd_fused": "loop.py has nothing that it changes"} == report["left_out"]
    assert {"steps": 30} == report["arguments"]
    assert all(
        str(project.root) not in text
        for row in project.ledger.rows()
        for text in to_entries(row.policy).values()
    )


@pytest.mark.alone
@pytest.mark.slow
def test_a_loops_run_ends_in_what_to_change(
    project: TricksProject, applied: subprocess.CompletedProcess[str]
) -> None:
    written = (project.root / "loop.md").read_text()
    for text in (applied.stderr, written):
        message = " ".join(text.split())
        assert "To make loop.py faster:" in message
        assert "torch.optim.Adam(parameters, fused=True)" in message
        assert "optimizer.zero_grad(set_to_none=True)" in message
        assert " together: " in message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--apply-to", "loop.py", "--only", "sgd_fused"), "loop.py has nothing that it changes"),
        (("--apply-to", "json:dumps", "--set", "steps=3"), "json:dumps"),
    ],
)
def test_a_loop_that_no_trick_fits_is_refused(
    project: TricksProject, arguments: tuple[str, ...], message: str
) -> None:
    failed = project.tricks(*arguments)

    assert (2, "") == (failed.returncode, failed.stdout)
    assert message in failed.stderr
    assert "Traceback" not in failed.stderr


@pytest.mark.usefixtures("done")
def test_a_full_ledger_takes_no_result_away(
    project: TricksProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = [row for row in project.ledger.rows() if row.source == "tricks"]
    measured = [row for row in recorded if row.run_id == recorded[0].run_id]

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def measure(_: object, __: object, ___: Path, run: Run, **____: float) -> list[TrickCase]:
        run.add([replace(row, run_id=run.run_id) for row in measured])
        return []

    monkeypatch.setattr(tricks._Run, "_checked", lambda *_, **__: SimpleNamespace(cases=(None,)))
    monkeypatch.setattr(tricks._Run, "_measure", measure)
    monkeypatch.setattr(recording, "_write_run", fail)
    request = tricks.TricksRequest(
        only=("no_grad",),
        sizes=(),
        sweep=False,
        margin=None,
        alpha=None,
        budget_s=1.0,
        ledger=tmp_path,
        seed=0,
    )

    report = tricks.run_tricks(
        request, project=load_project(project.root), progress=GateProgress(enabled=False)
    )

    (staged,) = (tmp_path / ".staged").glob("*.jsonl")
    assert report.results
    assert report.unrecorded is not None
    assert f"(No space left on device); its {len(measured)} rows are kept in {staged}" in report.unrecorded
