"""`perfkit gate --exact-only` on a real project finds what grew, with the line it comes from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from forked_commands import run, run_perfkit
from gating import Gated, GitProject, git_project

CONFIGURATION = """
[tool.perfkit.targets]
train = "demo.training:main"
[tool.perfkit.gate]
same_code = false
"""
TRAINING = """
import torch
from torch import nn

from demo.losses import pull, push


def main():
    torch.manual_seed(0)
    model = nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(9):
        optimizer.zero_grad()
        loss = pull(model(torch.randn(16, 8))) + push(torch.ones(4, 4))
        loss.backward()
        optimizer.step()
        note(loss)


def note(loss):
    pass
"""
LOSSES = """
import torch


def pull(values):
    return (values * values).sum()


def push(values):
    return torch.empty(1000).fill_(0.0).sum() + values.sum()
"""
BENCHMARKS = """
import torch

from demo.losses import pull, push


def test_pull(benchmark):
    values = torch.ones(32, 8)
    benchmark(pull, values)


def test_push(benchmark):
    benchmark(push, torch.ones(4, 4))


def test_plain(benchmark):
    benchmark(sorted, [3, 1, 2])
"""
FILES = {
    "pyproject.toml": CONFIGURATION,
    "demo/__init__.py": "",
    "demo/training.py": TRAINING,
    "demo/losses.py": LOSSES,
    "benchmarks/test_losses.py": BENCHMARKS,
}
CHANGED = {
    "demo/training.py": TRAINING.replace("manual_seed(0)", "manual_seed(1)").replace(
        "    pass\n",
        "    print(loss.tolist())  # perfkit: sync allowed\n"
        "    vars(note).setdefault('kept', []).append(bytes(4096))\n"
        "    return loss.item()\n",
    ),
    "demo/losses.py": LOSSES.replace("torch.empty(1000)", "torch.empty(1_001_000)").replace(
        "(values * values).sum()", "sum((row * row).sum() for row in values)"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Counted:
    """A gate that timed nothing, and its counts that moved by what they are of."""

    gated: Gated

    def moved(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the counts of a benchmark or target that moved, by metric."""
        return {
            one["metric"]["name"]: one
            for one in self.gated.report["exact"]
            if one["benchmark"]["name"].endswith(name) and one["base"] != one["head"]
        }


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project with a training loop, two losses and their benchmarks."""
    return git_project(tmp_path_factory.mktemp("exact"), FILES)


def _gate(project: GitProject, files: dict[str, str], *options: str) -> Counted:
    project.repository.git.git.checkout("--quiet", "-B", "main", _base(project))
    project.commit(files, "Change")
    gated = project.gate("--exact-only", "--base", _base(project), "--head", "HEAD", *options)
    return Counted(gated=gated)


def _base(project: GitProject) -> str:
    return str(project.repository.git.git.rev_list("--max-parents=0", "HEAD")).strip()


def _place(file: str, text: str) -> str:
    lines = CHANGED[file].splitlines()
    return f"{file}:{1 + next(at for at, line in enumerate(lines) if text in line)}"


@pytest.fixture(scope="module")
def changed(project: GitProject) -> Counted:
    """Return a gate of a commit with an `.item()` more, a buffer twice as large, and a loop for a tensor."""
    return _gate(project, CHANGED)


def test_a_new_sync_in_the_training_step_is_caught(changed: Counted) -> None:
    sync = changed.moved("train")["syncs"]

    assert 1 == changed.gated.exit_code
    assert ("REGRESSED", True, 1.0) == (sync["verdict"], sync["gating"], sync["head"] - sync["base"])
    place = _place("demo/training.py", "loss.item()")
    assert [("Tensor.item", place)] == [(cause["what"], cause["place"]) for cause in sync["causes"]]


def test_an_allowed_sync_is_no_finding(changed: Counted) -> None:
    allowed = changed.moved("train")["allowed_syncs"]

    assert (1, False) == (allowed["head"], allowed["gating"])
    assert _place("demo/training.py", "tolist") == allowed["causes"][0]["place"]


def test_a_larger_allocation_is_caught(changed: Counted) -> None:
    allocated = changed.moved("test_push")["allocated"]

    assert ("REGRESSED", True, 4_000_000) == (
        allocated["verdict"],
        allocated["gating"],
        allocated["head"] - allocated["base"],
    )
    (cause,) = allocated["causes"]
    assert (_place("demo/losses.py", "torch.empty"), 4000, 4_004_000) == (
        cause["place"],
        cause["base"],
        cause["head"],
    )
    assert {"aten::empty"} <= {cause["what"] for cause in changed.moved("train")["allocated"]["causes"]}


def test_a_python_loop_in_place_of_a_tensor_is_caught(changed: Counted) -> None:
    operators = changed.moved("test_pull")["operators"]

    assert ("REGRESSED", True) == (operators["verdict"], operators["gating"])
    assert operators["head"] > 10 * operators["base"]
    place = _place("demo/losses.py", "for row in")
    assert place in {cause["place"] for cause in operators["causes"]}
    step = changed.moved("train")["operators"]
    backward = next(at for at in CHANGED["demo/training.py"].splitlines() if "backward" in at)
    assert {place, _place("demo/training.py", backward)} <= {cause["place"] for cause in step["causes"]}


def test_what_a_training_step_keeps_is_caught(changed: Counted) -> None:
    kept = changed.moved("train")["kept"]

    assert ("REGRESSED", True) == (kept["verdict"], kept["gating"])
    assert 4096 <= kept["head"] - kept["base"] < 4200
    place = _place("demo/training.py", "setdefault")
    assert ("bytes", place) == (kept["causes"][0]["what"], kept["causes"][0]["place"])


def test_what_grew_is_shown_with_its_lines(project: GitProject, changed: Counted) -> None:
    shown = run(
        [*project.judge_command(changed.gated.run_id), "--verbose"],
        cwd=project.root,
        env=project.environment({"COLUMNS": "100"}),
    ).stdout

    _, _, of_training = re.sub(r" +\n", "\n", shown).partition("\ntrain\n")
    assert re.search(r"^  host-device syncs +0 +1 +\+1 REGRESSED$", of_training, re.MULTILINE)
    assert f"Tensor.item, from {_place('demo/training.py', 'loss.item()')}" in shown
    kept = r"train keeps 4\.\d+ KiB more a step\s+\(bytes, demo/training\.py:\d+\)"
    assert re.search(rf"^FAIL: {kept}, and\s+\d+ counts grew by more than\s+allowed\s+\(", shown)


@pytest.fixture(scope="module")
def alike(project: GitProject) -> Counted:
    """Return a gate of commits that differ in a comment alone."""
    return _gate(project, {"demo/losses.py": f"# Losses.\n{LOSSES}"})


def test_other_losses_of_a_training_loop_are_named(changed: Counted, alike: Counted) -> None:
    assert "other losses of train: number 1 is " in changed.gated.notes
    assert "other losses" not in alike.gated.notes


def test_alike_code_counts_alike(alike: Counted) -> None:
    assert 0 == alike.gated.exit_code
    moved = {one["metric"]["name"] for one in alike.gated.report["exact"] if one["base"] != one["head"]}
    assert moved <= {"resident"}
    metrics = {
        one["metric"]["name"] for one in alike.gated.report["exact"] if one["benchmark"]["name"] == "train"
    }
    assert {"operators", "syncs", "allocated", "peak", "saved", "flops", "kept"} <= metrics


def test_what_uses_no_torch_has_its_calls_counted(alike: Counted) -> None:
    plain = {
        one["metric"]["name"]: one["head"]
        for one in alike.gated.report["exact"]
        if one["benchmark"]["name"].endswith("test_plain")
    }

    assert 0 == plain["operators"]
    assert "python_calls" in plain


THREADED = LOSSES.replace("import torch\n", "import threading\n\nimport torch\n", 1).replace(
    "    return (values * values).sum()\n",
    """    results = []
    thread = threading.Thread(target=lambda: results.append((values * values).sum()))
    thread.start()
    thread.join()
    return results[0]
""",
)


def test_what_head_cannot_count_or_train_any_more_is_no_pass(project: GitProject) -> None:
    breaks = TRAINING.replace("    pass\n", "    raise ValueError\n")
    files = {"demo/losses.py": THREADED, "demo/training.py": breaks}
    lost = _gate(project, files, "--select", "pull").gated

    operators = next(
        one
        for one in lost.report["exact"]
        if one["benchmark"]["name"].endswith("test_pull") and one["metric"]["name"] == "operators"
    )
    assert 4 == lost.exit_code
    (finding,) = lost.report["comparisons"]
    assert ("train", "FAILED") == (finding["benchmark"]["name"], finding["verdict"])
    assert "ValueError" in finding["message"]
    assert ("MISSING", None) == (operators["verdict"], operators["head"])
    assert "MISSING test_pull: operators dispatched (base: 2)" in " ".join(lost.stderr.split())
    assert "not counted on head: it starts threads of its own" in (" ".join(lost.stderr.split()))
    assert 4 == project.judge(lost.run_id).exit_code
    for name in ("test_pull", "train"):
        command = ["accept", name, "--reason", "quicker", "--ledger", str(project.ledger)]
        run_perfkit(*command, cwd=project.root, check=True)
    assert 0 == project.judge(lost.run_id).exit_code
