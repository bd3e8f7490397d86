"""``perfkit profile`` of loops as people write them, by the command, its exit code and its JSON."""

from __future__ import annotations

import ast
import itertools
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from forked_commands import run_here
from repositories import Repository, create_repository

from perfkit.ledger.store import Ledger

pytestmark = pytest.mark.usefixtures("one_launcher")


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """How the command ended, the JSON that it wrote, and what it printed to standard error."""

    code: int
    summary: dict[str, Any]
    error: str

    @property
    def first(self) -> dict[str, Any]:
        """The first pass that was made."""
        found: dict[str, Any] = self.summary["passes"][0]
        return found

    @property
    def periods(self) -> dict[str, Any]:
        """What the first pass did besides training, by name."""
        return {one["name"]: one for one in self.first["periods"]}

    @property
    def phases_s(self) -> dict[str, float]:
        """The seconds of each phase of all steps of the balance pass."""
        return {one["name"]: sum(one["seconds"]) for one in self.summary["balance"]["phases"]}

    @property
    def steps(self) -> dict[str, int]:
        """The steps of each pass that was made."""
        return {one["name"]: len(one["step_s"]) for one in self.summary["passes"]}


@pytest.fixture
def project(tmp_path: Path) -> Repository:
    """Return an empty repository."""
    return Repository(tmp_path, create_repository(tmp_path))


def profile(project: Repository, script: str, *words: str) -> Profiled:
    project.commit({"train.py": script, ".gitignore": "profiles/\nbenchmarks/\nruns\n"})
    done = run_here("profile", "train.py", "--json", "-", *words, cwd=project.root)
    summary = msgspec.json.decode(done.stdout) if done.stdout else {}
    return Profiled(code=done.returncode, summary=summary, error=done.stderr)


LOOP = """
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
"""

RUDE = """
import sys, types, weakref
import torch

class Gone:
    pass

class Rude:
    @property
    def __class__(self):
        raise RuntimeError("ask me nothing")

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __len__(self):
        raise RuntimeError("length")

gone = Gone()
dead = weakref.proxy(gone)
del gone
rude = Rude()
loader = torch.utils.data.DataLoader(torch.ones(4, 1), collate_fn=lambda rows: Rude())
for batch in loader:
    pass

def own():
    return sum(range(1000))

own()
"""


def test_objects_that_raise_when_they_are_looked_at_stop_no_pass(project: Repository) -> None:
    words = ("--passes", "clean,balance,cprofile,lines", "--lines", "auto", "--no-ledger")
    found = profile(project, f"{RUDE}{LOOP}", *words)

    assert 0 == found.code, found.error
    assert {"clean": 6, "balance": 6, "cprofile": 6, "lines": 6} == found.steps


SECOND_RUN_FAILS = """
from pathlib import Path
import torch

runs = Path("runs")
number = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (number + 1))
"""


def test_a_pass_that_fails_leaves_the_others_whole(project: Repository) -> None:
    script = (
        f"{SECOND_RUN_FAILS}{LOOP}    if number == 1 and step == 1:\n        raise ValueError('by chance')\n"
    )
    found = profile(project, script, "--passes", "clean,counts,cprofile")

    assert 4 == found.code
    assert {"clean": 6, "cprofile": 6} == found.steps
    assert "counts" in found.summary["problem"]
    assert "ValueError: by chance (train.py:" in found.summary["problem"]
    assert found.summary["problem"] in found.error
    profiles = project.root / "profiles"
    assert {"train.stat", "train.json", "train.error.txt"} <= {file.name for file in profiles.iterdir()}
    assert "by chance" in (profiles / "train.error.txt").read_text()
    rows = [row.outcome for row in Ledger(project.root / "benchmarks" / "ledger").rows()]
    assert {("step_time", "ok"), ("total_time", "ok")} == {(row.metric.name, row.status) for row in rows}


BREAKS_CPROFILE = """
import pstats
import torch

def broken(*_):
    raise ReferenceError("weakly-referenced object no longer exists")

pstats.Stats.dump_stats = broken
"""


def test_a_mistake_of_perfkit_costs_its_own_pass(project: Repository) -> None:
    found = profile(project, f"{BREAKS_CPROFILE}{LOOP}", "--passes", "cprofile,torch", "--no-ledger")

    assert 4 == found.code
    assert {"torch": 5} == found.steps
    assert "cprofile" in found.summary["problem"]
    assert "ReferenceError: weakly-referenced" in found.summary["problem"]
    assert "in broken" in (project.root / "profiles" / "train.error.txt").read_text()


EVALUATES = """
import time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
training = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8)
validation = DataLoader(TensorDataset(torch.randn(160, 8)), batch_size=16)

def evaluate(loader, most=100):
    model.eval()
    for number, (batch,) in enumerate(loader):
        if number == most:
            break
        with torch.no_grad():
            model(batch)
        time.sleep(0.01)
    model.train()

for epoch in range(2):
    for number, (batch,) in enumerate(training):
        model(batch).sum().backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
        if number == 4:
            evaluate(validation, most=3)
    evaluate(validation)
    evaluate(training)
"""


def test_evaluations_are_no_part_of_a_step_and_their_batches_no_samples(project: Repository) -> None:
    found = profile(project, EVALUATES, "--passes", "clean,balance", "--no-ledger")

    assert 0 == found.code, found.error
    assert {"clean": 8, "balance": 8} == found.steps
    assert 2 * 64 == found.first["samples"]
    assert ["evaluation"] == list(found.periods)
    # Four of each epoch's three calls lie in a row, behind the last step.
    assert 4 == found.periods["evaluation"]["times"]
    evaluation_s = found.periods["evaluation"]["seconds"]
    assert evaluation_s > 2 * (3 + 10 + 8) * 0.01
    assert sum(found.first["step_s"]) + evaluation_s <= found.first["total_s"]
    assert sum(found.summary["balance"]["step_s"]) < 0.5 * evaluation_s
    assert "evaluation" not in found.phases_s


LATE = """
import atexit, threading, time
import torch

log = open("runs", "w")
log.write("log ")
atexit.register(log.write, "exit ")

def write_late():
    time.sleep(0.2)
    log.write("thread ")

threading.Thread(target=write_late).start()
"""


def test_what_a_target_has_left_to_write_is_written(project: Repository) -> None:
    found = profile(project, f"{LATE}{LOOP}", "--passes", "clean", "--no-ledger")

    assert {"clean": 6} == found.steps
    assert "log thread exit " == (project.root / "runs").read_text()


# A language model whose weights are updated by hand, in a module of its own, as many tutorials have it.
BY_HAND = """
import torch
from torch import nn

def train(model, batches, rate=0.1):
    for start in range(0, batches.size(0) - 1, 4):
        data, goals = batches[start : start + 4], batches[start + 1 : start + 5]
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(data[: len(goals)]).flatten(0, 1), goals.flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for weights in model.parameters():
            weights.data.add_(weights.grad, alpha=-rate)

def main():
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))
    train(model, torch.randint(10, (41, 2)))
"""


def test_the_loop_of_updates_by_hand_is_found(project: Repository) -> None:
    found = profile(project, f"{BY_HAND}\nmain()\n", "--steps", "4", "--passes", "clean,balance")

    assert 0 == found.code, found.error
    assert {"clean": 4, "balance": 4} == found.steps
    assert found.first["unit"].startswith("train.py:6 for start in")
    assert found.phases_s.keys() >= {"forward", "loss", "backward"}
    rows = [row.outcome for row in Ledger(project.root / "benchmarks" / "ledger").rows()]
    assert all(row.benchmark.params["step_at"].startswith("train.py: for start in") for row in rows)

    nothing = profile(project, "import torch\nprint(sum(range(100)))\n", "--passes", "clean", "--no-ledger")

    assert (4, {"clean": 0}) == (nothing.code, nothing.steps)
    assert "--step-at FILE:LINE" in nothing.summary["problem"]


BATCHES = """
import perfkit, torch

model = torch.nn.Linear(8, 1)
for epoch in range(2):
    for batch in torch.utils.data.DataLoader(torch.ones(24, 8), batch_size=4):
        model(batch).sum().backward()
        with torch.no_grad():
            for weights in model.parameters():
                weights -= 0.01 * weights.grad
        MARK
"""


@pytest.mark.parametrize(
    ("mark", "words", "unit"),
    [("pass", ("--step", "loader"), "a batch of a loader"), ("perfkit.step()", (), "marked")],
)
def test_a_step_is_what_is_asked_for(
    project: Repository, mark: str, words: tuple[str, ...], unit: str
) -> None:
    found = profile(project, BATCHES.replace("MARK", mark), *words, "--passes", "clean,counts", "--no-ledger")

    assert 0 == found.code, found.error
    assert {"clean": 12, "counts": 3} == found.steps
    assert (unit, 48) == (found.first["unit"], found.first["samples"])


# Two networks, the second of which is trained in turns of the loop that the first one begins.
ADVERSARIES = """
import perfkit, time, torch
from torch import nn

one, two = nn.Linear(8, 1), nn.Linear(4, 8)
first, second = (torch.optim.SGD(net.parameters(), lr=0.01) for net in (one, two))
run = MARK
for batch in run(torch.utils.data.DataLoader(torch.ones(40, 8), batch_size=2)):
    first.zero_grad()
    made = two(torch.ones(2, 4))
    (one(batch).mean() - one(made.detach()).mean()).backward()
    first.step()
    if MORE:
        second.zero_grad()
        one(made).mean().backward()
        time.sleep(0.004)
        second.step()
    number = int(batch[0, 0])
"""


@pytest.mark.parametrize(
    ("mark", "more"),
    [
        ("list", "True"),
        ("iter", "True"),
        ("iter", "next(turns) % 5 == 4"),
        ('perfkit.training("pair", warmup=0, steps=3, balance=0)', "True"),
    ],
)
def test_two_optimizers_a_turn_make_one_step(project: Repository, mark: str, more: str) -> None:
    script = f"import itertools\nturns = itertools.count()\n{ADVERSARIES}"
    script = script.replace("MARK", mark).replace("MORE", more)
    # Without a loader's batches between them, only an optimizer that steps again begins another step.
    found = profile(project, script, "--passes", "clean,balance,counts,torch", "--no-ledger")

    assert 0 == found.code, found.error
    assert {"clean": 20, "balance": 20, "counts": 3, "torch": 5} == found.steps
    if mark != "list":
        return
    # A gate counts the same steps.
    count = "import sys; from pathlib import Path; from perfkit.agent.training import count_steps as count"
    count += "; print(count(sys.argv[1], root=Path.cwd(), steps=3)['counts'][0]['values'])"
    done = subprocess.run(
        [sys.executable, "-c", count, str(project.root / "train.py")],
        cwd=project.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.summary["counts"]["counts"][0]["values"][-1:] == [*ast.literal_eval(done.stdout)], (
        done.stderr
    )


# Weights are averaged in each step, which gathers its own data and has a loss in words of its own.
GATHERS = """
import copy, time, torch
from torch import nn

model = nn.Linear(64, 1)
average, optimizer = copy.deepcopy(model), torch.optim.SGD(model.parameters(), lr=0.01)

@torch.no_grad()
def follow():
    for mine, other in zip(average.parameters(), model.parameters()):
        mine.lerp_(other, 0.01)
    time.sleep(0.01)

def own_loss(values):
    time.sleep(0.005)
    return (values * values).mean()

for epoch in range(3):
    gathered = []
    for _ in range(8):
        with torch.no_grad():
            gathered.append(model(torch.ones(4, 64)))
        time.sleep(0.01)
    for _ in range(4):
        optimizer.zero_grad()
        with torch.no_grad():
            goal = average(torch.ones(4, 64))
        own_loss(model(torch.ones(4, 64)) - goal).backward()
        optimizer.step()
        follow()
    torch.save(model.state_dict(), "runs")
"""


def test_work_without_gradients_is_named_by_what_runs(project: Repository) -> None:
    found = profile(project, GATHERS, "--passes", "clean,balance", "--no-ledger")

    assert 0 == found.code, found.error
    assert {"rollout": 3, "checkpoint": 3} == {name: one["times"] for name, one in found.periods.items()}
    assert found.periods["rollout"]["seconds"] > 3 * 7 * 0.01
    assert found.phases_s.keys() <= {"forward", "loss", "backward", "optimizer"}
    assert found.phases_s["loss"] > 12 * 0.005
    assert found.phases_s["forward"] < 12 * 0.005


AFTER_STEPS = """
import time, torch
from torch.optim.optimizer import register_optimizer_step_post_hook

register_optimizer_step_post_hook(lambda *_: time.sleep(0.01))
"""


def test_all_of_an_optimizers_step_is_its_phase(project: Repository) -> None:
    found = profile(project, f"{AFTER_STEPS}{LOOP}", "--passes", "balance", "--no-ledger")

    assert 0 == found.code, found.error
    # What follows the end of the last step is in none.
    assert found.phases_s["optimizer"] > 5 * 0.01


# A graph is trained on as a whole, and looked at after each step.
WHOLE = """
import time, torch

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

@torch.no_grad()
def test():
    model.eval()
    model(torch.ones(4, 8))
    time.sleep(0.01)

for epoch in range(8):
    model.train()
    model.zero_grad()
    model(torch.ones(4, 8)).mean().backward()
    optimizer.step()
    test()
"""


def test_a_look_at_the_model_after_each_step_is_an_evaluation(project: Repository) -> None:
    found = profile(project, WHOLE, "--passes", "clean,balance", "--no-ledger")

    assert 0 == found.code, found.error
    assert {"clean": 8, "balance": 8} == found.steps
    assert {"evaluation": 8} == {name: one["times"] for name, one in found.periods.items()}
    assert found.periods["evaluation"]["seconds"] > 8 * 0.01
    # Neither side's steps have it: the evaluations take most of the time.
    assert found.summary["balance"]["cost"]["high"] > 0.8
    assert sum(found.first["step_s"]) + found.periods["evaluation"]["seconds"] <= found.first["total_s"]


def test_a_line_ends_the_steps_of_updates_by_hand(project: Repository) -> None:
    project.commit({"lib/model.py": BY_HAND})
    script = "from lib.model import main\nmain()\n"
    given = ("--step-at", "lib/model.py:6", "--steps", "4")
    found = profile(project, script, *given, "--passes", "clean,balance,counts,cprofile")

    assert 0 == found.code, found.error
    assert {"clean": 4, "balance": 4, "counts": 3, "cprofile": 4} == found.steps
    assert all(one["marked"] for one in found.summary["passes"])
    assert found.summary["counts"]["counts"]
    assert {"4"} == {
        row.outcome.benchmark.params["steps"]
        for row in Ledger(project.root / "benchmarks" / "ledger").rows()
        if "model.py" in row.outcome.benchmark.params["step_at"]
    }

    inner = profile(project, script, "--step-at", "lib/model.py:13", "--steps", "4", "--passes", "clean")

    assert (0, {"clean": 4}) == (inner.code, inner.steps), inner.error


@pytest.mark.parametrize("place", ["train.py", "train.py:3", "none.py:1"])
def test_a_line_without_a_statement_is_a_mistake(project: Repository, place: str) -> None:
    found = profile(project, BY_HAND.lstrip(), "--step-at", place)

    assert 2 == found.code
    assert "--step-at" in found.error


MARKED = """
import perfkit, torch

model = torch.nn.Linear(8, 1)
one, two = (torch.optim.SGD([weights], lr=0.01) for weights in model.parameters())
loader = torch.utils.data.DataLoader(torch.ones(24, 8), batch_size=2)
run = perfkit.training("marked", warmup=0, steps=3, balance=0)
for number, batch in enumerate(run(loader)):
    model(batch).sum().backward()
    if number % 2:
        one.step()
        two.step()
        model.zero_grad()
for _ in range(2):
    model(torch.ones(2, 8)).sum().backward()
    for weights in model.parameters():
        weights.data.add_(weights.grad, alpha=-0.01)
    run.step()
"""


def test_steps_that_perfkit_training_marks_are_the_profiles(project: Repository) -> None:
    found = profile(project, MARKED, "--passes", "clean,torch", "--trace-all")

    assert 0 == found.code, found.error
    assert {"clean": 8, "torch": 8} == found.steps
    assert 24 == found.summary["passes"][0]["samples"]
    rows = Ledger(project.root / "benchmarks" / "ledger").rows()
    assert {"profile"} == {row.source for row in rows}


ENDLESS = """
import os, signal, sys, time
import torch

optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.01)
for step in range(10_000):
    # As long as the limit, as a compilation may be.
    time.sleep(0.6 if step < 2 and not sys.argv[1:] else 0.005)
    optimizer.step()
    if step == 40 and sys.argv[1:] == ["interrupt"]:
        os.kill(int(open("runs").read()), signal.SIGINT)
"""


def test_a_training_without_end_is_followed_for_a_while_or_until_ctrl_c(
    project: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfkit.commands.profile.LIMIT_S", 0.5)
    found = profile(project, ENDLESS, "--passes", "clean,cprofile")

    assert 0 == found.code, found.error
    # What another test's command left may be swept up first.
    (first,) = (line for line in found.error.splitlines() if "--steps N" in line)
    assert "after 0 s; --steps N" in first
    assert ["limit", "limit"] == [one["ended"] for one in found.summary["passes"]]
    assert 3 < found.steps["clean"]
    assert found.steps["cprofile"] <= 200
    rows = [row.outcome.metric.name for row in Ledger(project.root / "benchmarks" / "ledger").rows()]
    assert ["step_time"] == rows

    (project.root / "runs").write_text(str(os.getpid()))
    of_a_person = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        words = ("--passes", "clean,cprofile", "--no-ledger", "--steps", "5000", "--", "interrupt")
        stopped = profile(project, ENDLESS, *words)
    finally:
        signal.signal(signal.SIGINT, of_a_person)

    assert (130, ["interrupted"]) == (stopped.code, [one["ended"] for one in stopped.summary["passes"]])
    assert 41 <= stopped.steps["clean"] < 5000
    assert "interrupted" in stopped.summary["problem"]


# Nothing of a step stays, or what ``KEPT`` stands for.
KEEPS = """
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
history = [None] * 100
for step in range(20):
    out = model(torch.randn(256, 64))
    loss = out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    KEPT
"""


@pytest.mark.parametrize(
    ("kept", "leaks"),
    [
        ("loss.item()", set()),
        ("history[step] = out.detach(), bytearray(2000)", {"train.py:8", "train.py:13"}),
    ],
)
def test_only_what_a_loop_keeps_grows(project: Repository, kept: str, leaks: set[str]) -> None:
    found = profile(project, KEEPS.replace("KEPT", kept), "--passes", "memory", "--no-ledger")

    assert 0 == found.code, found.error
    grown = {}
    for line in found.summary["memory"]["lines"]:
        after = line["alive"][1:]
        if all(low < high for low, high in itertools.pairwise(after)):
            grown[line["place"]] = (after[-1] - after[0]) / (len(after) - 1)
    assert leaks == set(grown)
    assert all(1000 < each < 5000 for each in grown.values())
