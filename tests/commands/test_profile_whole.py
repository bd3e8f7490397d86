"""``perfkit profile --whole`` runs a script unchanged, and files every step that it makes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import statistics
from pathlib import Path

import pytest
from forked_commands import PERFKIT, run, run_here
from repositories import Repository, create_repository

from perfkit.ledger.store import Ledger
from perfkit.model import Row

LOADERS = """
import sys, time
import torch
from torch.utils.data import DataLoader

assert __name__ == "__main__"
epochs = int(sys.argv[1])
model = torch.nn.Linear(4, 1)
loader, others = (DataLoader(torch.ones(8 * steps, 4), batch_size=8) for steps in (200, 10))
"""
TRAINS = """
optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(2)]
for epoch in range(epochs):
    for step, values in enumerate(loader):
        model(values).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        if step == 100:
            for values in others:
                with torch.no_grad():
                    model(values)
                time.sleep(0.01)
"""
READS = """
for epoch in range(epochs):
    for values in loader:
        model(values)
"""
BY_HAND = """
for step in range(200 * epochs):
    model(torch.ones(8, 4)).sum().backward()
    for weights in model.parameters():
        weights.data -= 0.01 * weights.grad
"""
MODELS = """
for turn in range(5 * epochs):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(40):
        model(torch.ones(8, 4)).sum().backward()
        optimizer.step()
"""
# The teacher is part of each step; the look at the weights is not, nor what is saved or asked at times, with
# what lies between.
LOOKS = """
@torch.no_grad()
def look():
    model(torch.ones(8, 4))
    time.sleep(0.02)

teacher = torch.nn.Linear(4, 1).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(10 * epochs):
    with torch.no_grad():
        teacher(torch.ones(8, 4))
        time.sleep(0.002)
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        model(torch.ones(8, 4))
        time.sleep(0.01)
    model.train()
    if step % 10 == 9:
        look()
        torch.save(model.state_dict(), "model.pt")
        for turn in range(4):
            if turn:
                time.sleep(0.05)
            with torch.no_grad():
                model(torch.ones(8, 4))
"""
FAILS = """
raise ValueError("too bad")
"""
RANKS = """
import weakref
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(300):
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
group = weakref.ref(distributed.group.WORLD)
distributed.destroy_process_group()
# The end of a group may wait for ever.
assert group() is not None
"""


WORKERS = """
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for values in DataLoader(torch.ones(160, 4), batch_size=8, num_workers=1):
    model(values).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def project(tmp_path: Path) -> Repository:
    """Return an empty repository."""
    return Repository(tmp_path, create_repository(tmp_path))


def followed(project: Repository, script: str, *words: str) -> tuple[int, str, str]:
    """Return how the command ended that follows a script, and what it printed itself."""
    project.commit({"train.py": script, ".gitignore": "benchmarks/\n"})
    done = run_here("profile", "--whole", *words, cwd=project.root)
    return done.returncode, done.stdout, done.stderr


def rows(project: Repository) -> dict[str, Row]:
    """Return what is filed, by metric."""
    return {row.outcome.metric.name: row for row in Ledger(project.root / "benchmarks/ledger").rows()}


def test_a_hand_written_loop_is_filed_whole_and_evaluations_are_in_no_step(project: Repository) -> None:
    code, printed, error = followed(project, LOADERS + TRAINS, "train.py", "--", "30")

    assert 0 == code, error
    head, *_, last = printed.splitlines()
    assert head.startswith("train.py: ")
    filed = rows(project)
    all_steps = filed["all_steps"]
    assert f"next: perfkit ledger show {all_steps.run_id[-8:]}" == last
    assert {"arguments": "30", "batch": "8", "ranks": "1"} == all_steps.outcome.benchmark.params
    (steps,) = re.findall(r"^(\d+) steps after that", str(all_steps.outcome.message))
    # One of each switch between timed and watched steps is neither.
    assert 30 * 200 - 250 - 16 == int(steps)
    assert 200 == len(filed["step_time"].outcome.values)
    assert filed["time in optimizer"].outcome.values
    rate = re.search(r"([\d,]+) samples/s", printed[printed.index("before: ") :])
    assert rate is not None
    mean_s = statistics.fmean(filed["step_time"].outcome.values)
    assert 8 / mean_s == pytest.approx(float(rate[1].replace(",", "")), rel=0.01)
    # An evaluation takes a tenth of a second; no step has it.
    assert max(filed["step_time"].outcome.values) < 0.1
    between = re.findall(r"(\d+)% of the time between steps", str(all_steps.outcome.message))
    assert 20 < int(between[0])


@pytest.mark.parametrize("update", ["optimizer.step()", "with torch.no_grad(): optimizer.step()"])
def test_evaluations_that_read_no_loader_are_in_no_step_and_a_teacher_is(
    project: Repository, update: str
) -> None:
    script = LOADERS + LOOKS.replace("optimizer.step()", update)

    code, _, error = followed(project, script, "train.py", "--", "30")

    assert 0 == code, error
    for name in ("step_time", "all_steps"):
        (row,) = [row for metric, row in rows(project).items() if metric == name]
        assert 0.002 < statistics.median(row.outcome.values) < 0.008, name
        assert statistics.fmean(row.outcome.values) < 0.01, name


def test_steps_of_several_models_one_after_the_other_are_all_followed(project: Repository) -> None:
    code, printed, error = followed(project, LOADERS + MODELS, "train.py", "--", "4")

    assert 0 == code, error
    found = re.search(r"^train.py: (\d+) steps, ", printed)
    assert found is not None
    # A change of the optimizer is seen with its first steps.
    assert 20 * (40 - 2) <= int(found[1]) <= 20 * 40


def test_batches_are_steps_where_there_is_no_optimizer(project: Repository) -> None:
    code, printed, error = followed(project, LOADERS + READS, "train.py", "--", "2")

    assert 0 == code, error
    found = re.search(
        r"^train.py: (\d+) steps, the last (\d+): .*^before: (\d+) steps, ", printed, re.MULTILINE | re.DOTALL
    )
    assert found is not None
    whole, later, timed = map(int, found.groups())
    assert 200 == timed
    # It takes 20 to see that, and 266 come before those that are followed.
    assert 360 <= later + 266 <= 381
    assert later + 266 == whole
    assert "time in forward" in rows(project)


@pytest.mark.parametrize(
    ("end", "shown_as", "exit_code"),
    [(FAILS, "ValueError: too bad", 1), ("raise KeyboardInterrupt", "KeyboardInterrupt", 130)],
)
def test_a_line_ends_steps_and_a_failure_keeps_what_was_measured(
    project: Repository, capfd: pytest.CaptureFixture[str], end: str, shown_as: str, exit_code: int
) -> None:
    script = LOADERS + BY_HAND + end
    line = 1 + script.splitlines().index("    model(torch.ones(8, 4)).sum().backward()")

    code, printed, error = followed(project, script, "train.py", "--step-at", f"train.py:{line}", "--", "2")

    assert (exit_code, "") == (code, printed)
    shown = capfd.readouterr().err
    assert shown_as in shown
    assert "perfkit/interface" not in shown
    assert ": 400 steps, the last 134: " in error.splitlines()[-1]
    assert 200 == len(rows(project)["step_time"].outcome.values)


@pytest.mark.parametrize(("end", "exit_code"), [("os._exit(0)", 4), ("os.kill(os.getpid(), 9)", 137)])
def test_a_program_that_ends_at_once_keeps_its_first_steps_by_backward_passes_and_is_not_measured(
    project: Repository, end: str, exit_code: int
) -> None:
    code, printed, error = followed(project, LOADERS + BY_HAND + f"import os\n{end}\n", "train.py", "--", "2")

    assert (exit_code, "") == (code, printed)
    filed = rows(project)
    assert 200 == len(filed["step_time"].outcome.values)
    assert filed["time"].run_id[-8:] in error
    assert "all_steps" not in filed


def test_later_steps_are_filed_only_where_there_are_twenty(project: Repository) -> None:
    script = LOADERS + BY_HAND.replace("200 * epochs", "285")
    line = 1 + script.splitlines().index("    model(torch.ones(8, 4)).sum().backward()")

    code, printed, error = followed(project, script, "train.py", "--step-at", f"train.py:{line}", "--", "1")

    assert 0 == code, error
    assert "all_steps" not in rows(project)
    assert "19 later steps too few to file" in printed


def test_ranks_of_torchrun_are_followed(project: Repository) -> None:
    words = ("torchrun", "--standalone", "--nproc-per-node", "2", "-m", "train")

    code, printed, error = followed(project, RANKS, *words)

    assert 0 == code, error
    assert "medians of 1 other rank" in printed
    assert {"ranks": "2"} == rows(project)["time"].outcome.benchmark.params


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("train.py",), 4),
        (("train.py", "--passes", "clean"), 2),
        (("none.py",), 2),
        (("train:none",), 2),
        (("none",), 2),
    ],
)
def test_what_cannot_be_followed_is_one_line(project: Repository, words: tuple[str, ...], code: int) -> None:
    found, printed, error = followed(project, "", *words)

    assert (code, "") == (found, printed)
    assert 1 == len(error.splitlines())
    assert not rows(project)


@pytest.mark.parametrize("words", [("--whole",), ("--passes", "clean", "--no-ledger")])
def test_workers_do_not_hang_where_the_temporary_folder_has_a_long_path(
    project: Repository, words: tuple[str, ...]
) -> None:
    project.commit({"train.py": WORKERS, ".gitignore": "benchmarks/\nprofiles/\ntmp*/\n"})
    place = project.root / ("tmp" + "x" * 80)
    place.mkdir()

    done = run(
        [PERFKIT, "profile", *words, "train.py"],
        cwd=project.root,
        env={**os.environ, "TMPDIR": str(place)},
        timeout=120,
    )

    assert 0 == done.returncode, done.stderr
    assert [] == list(place.glob("perfkit-*"))


@pytest.mark.parametrize(
    ("words", "target", "code"),
    [
        (("--whole",), "pkg.train", 0),
        (("--passes", "clean", "--no-ledger"), "pkg", 0),
        (("--whole",), "pkg/train.py", None),
    ],
)
def test_a_module_runs_as_with_python_m(
    project: Repository, words: tuple[str, ...], target: str, code: int | None
) -> None:
    uses = f"from . import model\nimport sys\nassert sys.argv[0].endswith('.py')\n{LOADERS}{TRAINS}"
    files = {"pkg/__init__.py": "", "pkg/model.py": "", "pkg/train.py": uses, "pkg/__main__.py": uses}
    project.commit({**files, ".gitignore": "benchmarks/\nprofiles/\n"})

    done = run_here("profile", *words, target, "--", "1", cwd=project.root)

    if code is None:
        assert 0 != done.returncode
        assert "run it as `pkg.train`" in done.stderr
    else:
        assert code == done.returncode, done.stderr


def test_a_notebook_is_refused_with_what_works(project: Repository) -> None:
    cell: dict[str, object] = {
        "cell_type": "code",
        "source": "print()",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    project.commit({"fit.ipynb": json.dumps(content)})

    code, printed, error = followed(project, "", "fit.ipynb")

    assert (2, "") == (code, printed)
    (line,) = error.splitlines()
    assert "without --whole" in line


@pytest.mark.parametrize("words", [("--whole",), ("--passes", "clean")])
def test_a_full_temporary_folder_is_one_line(
    project: Repository, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    write, write_bytes = os.write, Path.write_bytes

    def write_no_owner(descriptor: int, data: bytes) -> int:
        if b"invocation" in data and words != ("--whole",):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data)

    def write_no_result(file: Path, data: bytes) -> int:
        if file.parent.name.startswith("perfkit-"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_bytes(file, data)

    monkeypatch.setattr(os, "write", write_no_owner)
    monkeypatch.setattr(Path, "write_bytes", write_no_result)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 16, 1 << 16, 0))
    project.commit({"train.py": BY_HAND, ".gitignore": "benchmarks/\nprofiles/\n"})

    done = run_here("profile", *words, "train.py", cwd=project.root)

    assert (2, "") == (done.returncode, done.stdout)
    *_, last = done.stderr.splitlines()
    assert "is full" in last
    assert "TMPDIR" in last
    assert "internal error" not in done.stderr
    assert not rows(project)
