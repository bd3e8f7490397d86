"""`perfkit experiment` runs, can be stopped and resumed, reports again, and names mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from experiment_targets import TRAINING
from forked_commands import run_perfkit
from repositories import create_repository

from perfkit.ledger.recording import read_staged
from perfkit.ledger.store import Ledger
from perfkit.model import Row

PERFKIT = Path(sys.executable).with_name("perfkit")
DEFINITION = """
target = "training:train"
seed_argument = "seed"
blocks = 2
threads = 1
warmup = "0.01s"

[factors]
precision = ["default", "bf16"]

[fixed]
steps = 8

[returned]
accuracy = "accuracy"
"""
ARGUMENTS = ("run", "precision.toml", "--markdown", "report/precision.md", "--json", "-")


@dataclass(frozen=True)
class ExperimentProject:
    """A repository with a training program and an experiment on it."""

    root: Path

    @property
    def ledger(self) -> Ledger:
        """Its ledger."""
        return Ledger(self.root / "benchmarks/ledger")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command."""
        return subprocess.Popen(
            [str(PERFKIT), "experiment", *arguments],
            cwd=self.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run a command to its end."""
        done = run_perfkit("experiment", *arguments, cwd=self.root)
        return done.returncode, done.stdout, done.stderr


def _make_project(root: Path) -> ExperimentProject:
    """Return a project with one commit."""
    repository = create_repository(root)
    (root / "training.py").write_text(TRAINING)
    (root / "precision.toml").write_text(DEFINITION)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "Train")
    return ExperimentProject(root)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> ExperimentProject:
    """Return a project for an experiment that nobody stops, and for mistakes."""
    return _make_project(tmp_path_factory.mktemp("experiment"))


@pytest.fixture(scope="module")
def done(project: ExperimentProject) -> tuple[int, str, str]:
    """Return what a whole experiment gave."""
    return project.run(*ARGUMENTS)


@pytest.mark.slow
def test_a_killed_experiment_goes_on(tmp_path: Path) -> None:
    project = _make_project(tmp_path)
    with project.start(*ARGUMENTS) as process:
        unfinished = project.root / "benchmarks/ledger-unfinished"
        while not any(row.outcome.metric.name == "total_time" for row in _rows(unfinished)):
            assert process.poll() is None, process.communicate()
            time.sleep(0.2)
        process.kill()
    assert [] == project.ledger.files()

    code, out, err = project.run(*ARGUMENTS)

    assert code in {0, 3}, err
    assert "trials are kept" in err
    report = json.loads(out)
    assert 4 == len(report["trials"])
    assert {"precision=default", "precision=bf16"} == set(report["fingerprints"])
    rows = project.ledger.rows()
    assert ({"experiment"}, 1) == ({row.source for row in rows}, len({row.run_id for row in rows}))
    assert 4 == sum(row.outcome.metric.name == "step_time" for row in rows)
    assert [] == [*(project.root / "benchmarks/ledger-unfinished").glob("*/")]


def _rows(unfinished: Path) -> list[Row]:
    return [row for staged in unfinished.glob("*/*.jsonl") for row in read_staged(staged).rows]


def test_the_report_is_written(project: ExperimentProject, done: tuple[int, str, str]) -> None:
    code, out, err = done
    assert code in {0, 3}, err
    report, rows = json.loads(out), project.ledger.rows()
    assert 4 == len(report["trials"]) == sum(row.outcome.metric.name == "step_time" for row in rows)
    assert {"precision=default", "precision=bf16"} == set(report["fingerprints"])
    assert ({"experiment"}, 1) == ({row.source for row in rows}, len({row.run_id for row in rows}))
    written = (project.root / "report/precision.md").read_text()
    assert "Default precision training" in written
    assert "Mixed precision (bf16) training" in written
    assert "| Algorithm" in written
    assert (project.root / "report/precision.svg").read_text().startswith("<svg")
    run = rows[0].run_id

    code, out, _ = project.run("show", run, "--markdown", "report/precision.md")

    assert 0 == code
    assert "precision" in out
    assert written == (project.root / "report/precision.md").read_text()


SCRIPT = """
import argparse, json, os, struct, torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, required=True)
size = parser.parse_args().batch_size
layer = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for step in range(6):
    layer(torch.ones(size, 8)).sum().backward()
    optimizer.step()
    print(f"step {step}: accuracy {step / 10 + size}")
with open("results.json", "w") as file:
    json.dump({"tests": [{"recall": 0.5}]}, file)
os.makedirs("runs", exist_ok=True)
with open("runs/events.out.tfevents.1", "wb") as file:
    for value in (0.5, 0.25):
        # An event's time and step, and a summary of one value: its tag and number.
        one = b"\\x0a\\x04loss\\x15" + struct.pack("<f", value)
        summary = b"\\x0a" + bytes([len(one)]) + one
        event = b"\\x09" + bytes(8) + b"\\x10\\x07\\x2a" + bytes([len(summary)]) + summary
        file.write(struct.pack("<Q", len(event)) + bytes(4) + event + bytes(4))
"""
OF_SCRIPT = """
target = "main.py"
blocks = 2
factors.batch_size = [4, 8]
[returned]
accuracy = 'accuracy ([.0-9]+)'
recall = "results.json:tests.0.recall"
loss = "runs/*tfevents*:loss"
"""


def test_a_scripts_own_options_and_results_are_found(project: ExperimentProject) -> None:
    (project.root / "main.py").write_text(SCRIPT)
    (project.root / "script.toml").write_text(OF_SCRIPT)
    code, out, err = project.run("run", "script.toml", "--json", "-")

    assert code in {0, 3}, err
    names = ("accuracy", "recall", "loss")
    found = {tuple(one["responses"][name] for name in names) for one in json.loads(out)["trials"]}
    # An accuracy above 1 is a percentage.
    assert {(0.045, 0.5, 0.25), (0.085, 0.5, 0.25)} == found
