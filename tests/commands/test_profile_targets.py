"""``perfkit profile`` of a notebook, and of all ranks of a distributed script."""

from __future__ import annotations

import json
import socket
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from repositories import create_repository

from perfkit.cli.app import whole_command_line
from perfkit.commands.profile import ProfileRequest, StartedRanks, run_profile, started_ranks, usual_place
from perfkit.config import Config, Project, load_project
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.ledger.store import Ledger
from perfkit.profiling.read.summary_file import load_summary
from perfkit.report.console import as_text
from perfkit.report.profiles import summary_view

pytestmark = pytest.mark.usefixtures("one_launcher")

DISTRIBUTED = """
import os, sys, time
import torch
import torch.distributed as dist

def work(seconds):
    time.sleep(seconds)

dist.init_process_group("gloo")
rank = dist.get_rank()
parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for step in range(6):
    work(0.2 * rank)
    if "fail" in sys.argv and rank == 1 and step == 2:
        print("almost there", flush=True)
        sys.exit(5)
    parameter.grad = torch.ones(2)
    dist.all_reduce(parameter.grad)
    optimizer.step()
print("rank", rank, "done")
"""
CELLS = (
    "import pathlib, torch\nsteps = int(pathlib.Path('steps.txt').read_text())",
    "def step(optimizer, parameter):\n    parameter.grad = torch.ones(1)\n    optimizer.step()",
    """%%time
parameter = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(steps):
    step(optimizer, parameter)
""",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Return a committed project with a distributed script and a notebook in a folder, and go there."""
    root = tmp_path / "project"
    (root / "notebooks").mkdir(parents=True)
    (root / "train.py").write_text(DISTRIBUTED)
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in CELLS]
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}
    (root / "notebooks" / "fit.ipynb").write_text(json.dumps(notebook))
    (root / "notebooks" / "steps.txt").write_text("4")
    (root / "pyproject.toml").write_text("[tool.perfkit]\n")
    repository = create_repository(root)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "Start")
    monkeypatch.chdir(root)
    return load_project(root)


def _request(project: Project, target: str, **settings: Any) -> ProfileRequest:  # noqa: ANN401 (any field)
    given = {"passes": ("clean",), "progress": False, "ledger": project.root / "ledger", **settings}
    return ProfileRequest(target=target, out=project.root / "profiles" / "x.stat", **given)


def test_a_notebook_is_profiled_by_cell(project: Project) -> None:
    request = _request(project, "notebooks/fit.ipynb", passes=("clean", "cprofile"), lines=("auto",))
    summary = run_profile(request, project=project)

    step = next(entry for entry in summary.entries if entry.function == "step")
    assert ("notebooks/fit.ipynb[cell 2]", 1, 4, "own") == (step.file, step.line, step.calls, step.kind)
    assert ("fit.ipynb[cell 2]", "optimizer.step()") in {(Path(x.file).name, x.text) for x in summary.lines}
    text = as_text(summary_view(summary))
    assert "step  notebooks/fit.ipynb[cell 2]:1" in text
    assert "fit.ipynb[cell 2]:3 optimizer.step()" in text
    assert "fit.ipynb[cell 2]:3" in (project.root / "profiles" / "x_lines.txt").read_text()
    rows = Ledger(project.root / "ledger").rows()
    assert {"profile:notebooks/fit.ipynb"} == {row.outcome.benchmark.name for row in rows}
    assert 4 == next(len(row.outcome.values) for row in rows if row.outcome.metric.name == "step_time")


def test_the_ranks_of_a_script_are_profiled_and_the_straggler_is_named(project: Project) -> None:
    (project.root / "profiles").mkdir()
    (project.root / "profiles" / "x.rank2.stat").write_text("of an earlier run with three ranks")
    (project.root / "profiles" / "x.worker2.stat").write_text("of an earlier run with three workers")
    (project.root / "profiles" / "x.workers2.stat").write_text("of a target called x.workers2")
    request = _request(project, "train.py", ranks=2, passes=("clean", "balance", "cprofile"))
    summary = run_profile(request, project=project)

    files = {file.name for file in (project.root / "profiles").glob("*.stat")}
    assert {"x.stat", "x.rank1.stat", "x.workers2.stat"} == files
    assert ["x.stat", "x.rank1.stat"] == [rank.file for rank in summary.ranks]
    assert summary == load_summary(project.root / "profiles" / "x.json")
    assert summary.straggler is not None
    assert (1, "residual") == (summary.straggler.rank, summary.straggler.phase)
    text = as_text(summary_view(summary))
    assert "6 optimizer steps, 2 ranks" in text
    assert "rank 1 is the straggler: in 5 of 5 steps the others waited for it" in " ".join(text.split())
    clean = [found for rank in summary.ranks if (found := rank.pass_named("clean"))]
    slowest = max(clean, key=lambda found: statistics.median(found.step_s[1:]))
    rows = [row.outcome for row in Ledger(project.root / "ledger").rows()]
    assert {"2"} == {outcome.benchmark.params["ranks"] for outcome in rows}
    assert [slowest.step_s] == [row.values for row in rows if row.metric.name == "step_time"]


def test_a_rank_that_fails_ends_the_command_with_one_line(project: Project) -> None:
    request = _request(project, "train.py", ranks=2, arguments=("fail",))
    with pytest.raises(NotMeasuredError) as caught:
        run_profile(request, project=project)

    assert "rank 1: train.py exited with code 5, saying: almost there; more in profiles/x.error.txt" == str(
        caught.value
    )
    shown = (project.root / "profiles" / "x.error.txt").read_text()
    assert "last output of the clean pass:\nalmost there\nand of clean:\n" in shown
    rows = [row.outcome for row in Ledger(project.root / "ledger").rows()]
    assert [("error", "rank 1: train.py exited with code 5")] == [(row.status, row.message) for row in rows]


@pytest.mark.parametrize(
    ("target", "settings", "message"),
    [
        ("train.py", {"ranks": 0}, "ranks must be at least 1, found 0"),
        ("train:main", {"ranks": 2}, '"train:main" is a function, and ranks are started as torchrun starts'),
        ("notebooks/fit.ipynb", {"ranks": 2}, '"notebooks/fit.ipynb" is a notebook, and ranks are started'),
        ("train.py", {"ranks": 2, "stall_limit_s": 0.0}, "--stall-limit must be above 0 seconds, found 0"),
        ("none.ipynb", {}, "there is no notebook"),
        ("steps.ipynb", {}, "is no notebook: it holds no JSON"),
    ],
)
def test_what_cannot_be_profiled_is_refused_before_the_first_pass(
    project: Project, target: str, settings: dict[str, Any], message: str
) -> None:
    (project.root / "steps.ipynb").write_text("4 steps")
    with pytest.raises(UsageError) as caught:
        run_profile(_request(project, target, **settings), project=project)
    assert message in str(caught.value)
    assert not (project.root / "profiles").exists()


def test_an_occupied_port_is_refused_first(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        request = replace(_request(project, "train.py", ranks=2), port=server.getsockname()[1])
        with pytest.raises(UsageError, match="Address already in use; give another one with --master-port"):
            run_profile(request, project=project)


def test_a_line_of_torchrun_is_a_script_with_ranks() -> None:
    words = (
        "--standalone",
        "--nproc_per_node=2",
        "--nnodes",
        "1:1",
        "--master-port",
        "29511",
        "t.py",
        "--lr",
    )
    found = started_ranks("torchrun", words, ranks=None)
    assert StartedRanks(target="t.py", arguments=("--lr",), ranks=2, port=29511) == found
    other = started_ranks("t.py", ("--nproc-per-node", "3"), ranks=4)
    assert StartedRanks(target="t.py", arguments=("--nproc-per-node", "3"), ranks=4) == other
    module = started_ranks("torchrun", ("-m", "package.train", "-m"), ranks=None)
    assert StartedRanks(target="package.train", arguments=("-m",), ranks=1) == module
    assert (started_ranks("torchrun", ("--nproc-per-node", "auto", "t.py"), ranks=None).ranks or 0) >= 1


@pytest.mark.parametrize(
    ("words", "ranks", "message"),
    [
        ((), None, "torchrun: no script is named; perfkit starts the ranks itself"),
        (("--nproc-per-node", "two", "t.py"), None, '"two": expected a number, or one of gpu, cpu, auto'),
        (("--nnodes", "2", "t.py"), None, "a profile has all its ranks on this machine"),
        (("--master-addr", "10.0.0.1", "t.py"), None, "a profile has all its ranks on this machine"),
        (("--log-dir=x", "t.py"), None, "torchrun: unrecognized arguments: --log-dir=x"),
        (("t.py",), 2, "both give the number of ranks"),
    ],
)
def test_what_torchrun_would_do_elsewhere_is_refused(
    words: tuple[str, ...], ranks: int | None, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        started_ranks("torchrun", words, ranks=ranks)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "target", "arguments"),
    [
        ("--out a torchrun --nproc-per-node 2 t.py -x", "torchrun", ["--nproc-per-node", "2", "t.py", "-x"]),
        ("torchrun --standalone t.py -- -x", "torchrun", ["--standalone", "t.py", "--", "-x"]),
        ("--out torchrun t.py -- torchrun -x", "t.py", ["torchrun", "-x"]),
        ("--trace-all torchrun t.py", "torchrun", ["t.py"]),
    ],
)
def test_the_command_stands_before_a_line_of_torchrun(line: str, target: str, arguments: list[str]) -> None:
    command: Any = whole_command_line()
    found = command.commands["profile"].make_context("profile", line.split()).params
    assert (target, arguments) == (found["target"], found["arguments"])


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("package.module:function", "function.stat"),
        ("package.module:Trainer.fit", "Trainer.fit.stat"),
        ("package.module:Trainer.evaluate", "Trainer.evaluate.stat"),
        ("scripts/train.py", "train.stat"),
        ("notebooks/a.first.ipynb", "a.first.stat"),
        ("resnet.large", "resnet.large.stat"),
    ],
)
def test_a_profile_without_a_place_is_named_for_all_of_its_target(
    tmp_path: Path, target: str, name: str
) -> None:
    project = Project(root=tmp_path, config=Config())

    assert tmp_path / "profiles" / name == usual_place(target, project)
