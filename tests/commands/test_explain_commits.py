"""``perfkit explain`` between two commits of a small repository names the injected slowdowns."""

from __future__ import annotations

import cProfile
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_here
from repositories import Repository, create_repository

pytestmark = pytest.mark.usefixtures("one_launcher")

PYPROJECT = """
[tool.perfkit]
own = ["demo"]
[tool.perfkit.targets]
train = "demo.training:main"
"""
# Two loaders, one for training and a slow one whose batches are asked for now and then.
TRAINING = """
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from demo.loss import distance
from demo.transform import brighten


class Images(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, place):
        return brighten(torch.full((16,), float(place)))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Linear(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(2):
        for batch in DataLoader(Images(), batch_size=8, num_workers=1):
            optimizer.zero_grad()
            loss = distance(model(batch))
            loss.backward()
            optimizer.step()
            note(loss)


def note(loss):
    return [loss.item() for _ in range({items})]
"""
LOSS = """
def distance(values):
    return sum((values * values).sum() for _ in range({repeats}))
"""
TRANSFORM = """
import time


def brighten(image):
    until = time.perf_counter() + {seconds}
    while time.perf_counter() < until:
        pass
    return image + 1
"""
BASE = {"items": 1, "repeats": 5, "seconds": 0.0001}
HEAD = {"items": 4, "repeats": 400, "seconds": 0.003}


@dataclass(frozen=True, kw_only=True)
class Explained:
    """What the command found between two commits, as JSON and to a person."""

    exit_code: int
    report: dict[str, Any]
    shown: str

    @property
    def findings(self) -> str:
        """The sentences, one a line."""
        return "\n".join(self.report["findings"])

    def part(self, section: str, name: str) -> dict[str, Any]:
        """Return a part of a section by the beginning of its name."""
        found = next(one for one in self.report["sections"] if one["title"] == section)
        part: dict[str, Any] = next(one for one in found["parts"] if one["name"].startswith(name))
        return part


def _files(items: int, repeats: int, seconds: float) -> dict[str, str]:
    return {
        "demo/__init__.py": "",
        "demo/training.py": TRAINING.replace("{items}", str(items)),
        "demo/loss.py": LOSS.format(repeats=repeats),
        "demo/transform.py": TRANSFORM.format(seconds=seconds),
    }


def _explain(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_here("explain", *arguments, cwd=root)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Return a repository whose second commit has four slowdowns, each of its own kind."""
    root = tmp_path_factory.mktemp("explain") / "project"
    root.mkdir()
    repository = Repository(root, create_repository(root))
    repository.commit({"pyproject.toml": PYPROJECT, **_files(**BASE)}, "Begin")  # type: ignore[arg-type]
    repository.commit(_files(**HEAD), "Slow everything down")  # type: ignore[arg-type]
    return repository


@pytest.fixture(scope="module")
def explained(one_launcher: None, project: Repository) -> Explained:  # noqa: ARG001
    """Return what the command finds between the two commits."""
    done = _explain(project.root, "HEAD~1", "HEAD", "--steps", "12", "--json", "-")
    assert 0 == done.returncode, done.stderr
    return Explained(exit_code=done.returncode, report=json.loads(done.stdout), shown=done.stderr)


def test_a_slow_function_is_named(explained: Explained) -> None:
    part = explained.part("functions", "distance")
    assert part["amount"]["head_s"] > 5 * part["amount"]["base_s"] > 0
    assert "distance (demo/loss.py:" in explained.findings


def test_a_new_item_is_named(explained: Explained) -> None:
    assert "note (demo/training.py:" in explained.findings
    # Each pass ends with its last step: of 12 steps 11 are followed by a note.
    assert "calls Tensor.item 3.67 times a step, on base 0.917" in explained.findings


def test_a_slower_transform_is_named(explained: Explained) -> None:
    part = explained.part("the loader's workers", "brighten")
    assert part["amount"]["head_s"] > 4 * part["amount"]["base_s"] > 0
    assert "in the loader's workers, brighten (demo/transform.py:" in explained.findings


def test_a_longer_wait_for_the_loader_is_named(explained: Explained) -> None:
    wait = explained.part("functions", "waiting for the loader's workers")["amount"]
    phase = explained.part("phases", "data wait")["amount"]
    assert wait["head_s"] > wait["base_s"]
    assert phase["head_s"] > phase["base_s"]
    assert "the data wait moved by +" in explained.findings


def test_parts_add_up(explained: Explained) -> None:
    for section in explained.report["sections"]:
        for side in ("base_s", "head_s"):
            parts = sum(part["amount"][side] for part in section["parts"])
            assert pytest.approx(section["whole"][side], rel=1e-6) == parts, section["title"]


def test_steps_are_compared_by_turns(explained: Explained) -> None:
    ratio = explained.report["ratio"]
    assert ratio["low"] < ratio["ratio"] < ratio["high"]
    assert ratio["ratio"] > 1
    assert "by turns" in explained.findings

    assert '"Begin" -> ' in explained.shown
    assert '"Slow everything down"' in explained.shown


def test_nothing_is_left_behind(project: Repository, explained: Explained) -> None:
    assert 0 == explained.exit_code
    assert 1 == len(project.git.git.worktree("list").splitlines())
    assert "" == project.git.git.status("--porcelain")


STOPPED = """
import os
import signal
import sys

import torch

monitoring = getattr(sys, "monitoring", None)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
    if step == 5 and (sys.getprofile() or (monitoring and monitoring.get_tool(monitoring.PROFILER_ID))):
        os.kill({parent}, signal.SIGINT)
"""


def test_ctrl_c_in_a_cprofile_pass_ends_it(repository: Repository) -> None:
    for number in range(2):
        repository.commit({"train.py": f"{STOPPED.format(parent=os.getpid())}# {number}\n"})
    of_a_person = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = _explain(repository.root, "HEAD~1", "HEAD", "--target", "train.py")
    finally:
        signal.signal(signal.SIGINT, of_a_person)

    assert (130, "") == (done.returncode, done.stdout)
    assert "cProfile 1 of" in done.stderr
    assert "cProfile 2 of" not in done.stderr


def test_without_a_target_two_commits_ask_for_one(repository: Repository) -> None:
    repository.commit({"a.py": "1"})
    repository.commit({"a.py": "2"})

    done = _explain(repository.root, "HEAD~1", "HEAD")

    assert 2 == done.returncode
    assert 'perfkit: --target is missing: no "train" is configured' in done.stderr
    assert 1 == len(done.stderr.splitlines())


@pytest.fixture
def ambiguous(repository: Repository) -> Repository:
    """Return a repository whose branch "first" is the name of a file too, and so is its branch "b.stat"."""
    repository.commit({"pyproject.toml": PYPROJECT, **_files(**BASE)}, "Begin")  # type: ignore[arg-type]
    for branch in ("first", "b.stat"):
        repository.git.git.branch(branch)
    repository.commit({"demo/loss.py": LOSS.format(repeats=9)}, "Change")
    profiler = cProfile.Profile()
    profiler.runcall(sorted, [3, 1, 2])
    for file in ("first", "a.stat", "b.stat"):
        profiler.dump_stats(repository.root / file)
    return repository


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        # That steps are refused shows that both were taken for commits.
        (("first", "HEAD", "--steps", "0"), "first is a commit and a file: the commit is compared; ./first"),
        (("first", "HEAD", "--steps", "0"), "--steps must be at least 1"),
        (("first", "b.stat", "--target", "train", "--steps", "0"), "--steps must be at least 1"),
        (("./first", "HEAD"), "./first is a file and HEAD a commit: name two files or two commits"),
        (("a.stat", "HEAD"), "two files or two commits (with --target both are commits)"),
        (("none.stat", "a.stat"), "there is no file none.stat"),
        (("a.stat", "none"), "there is no file none"),
    ],
)
def test_what_a_name_stands_for_is_reported(
    ambiguous: Repository, arguments: tuple[str, ...], message: str
) -> None:
    done = _explain(ambiguous.root, *arguments)

    assert 2 == done.returncode
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("names", [("./first", "a.stat"), ("first", "a.stat"), ("b.stat", "a.stat")])
def test_two_files_are_profiles(ambiguous: Repository, names: tuple[str, str]) -> None:
    done = _explain(ambiguous.root, *names)

    assert 0 == done.returncode, done.stderr
    assert f"{names[0].removeprefix('./')} -> a.stat" in done.stdout
