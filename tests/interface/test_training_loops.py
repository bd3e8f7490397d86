"""``perfkit.training`` files the steps of any loop, and never stops it."""

from __future__ import annotations

import itertools
import os
import re
import statistics
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from forked_scripts import run_script, start_script
from rendered import rendered
from repositories import Repository
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import perfkit
from perfkit.agent.counters import tensors
from perfkit.commands.history import HistoryRequest, read_history
from perfkit.commands.training import TrainingRecord
from perfkit.config import load_project
from perfkit.errors import LedgerError, UsageError
from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.profiling.passes import balance as clock
from perfkit.profiling.passes import training
from perfkit.profiling.passes.balance import PhaseClock
from perfkit.profiling.passes.follow import Followed
from perfkit.profiling.passes.periods import Periods
from perfkit.profiling.passes.training import OptimizerSteps, StepPlan, TrainingSteps
from perfkit.report.ledger import rows_view

LEDGER = Path("benchmarks/ledger")
RANKS = """
import sys
import torch.distributed as distributed
from perfkit.commands.training import TrainingRecord
from perfkit.profiling.passes.training import StepPlan

rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
record = TrainingRecord("net", StepPlan(warmup=0, steps=5, balance=0))
record.begin()
for _ in range(5):
    record.end_step()
record.finish()
record.report()
distributed.barrier()
"""
UNFINISHED = """
import perfkit

run = perfkit.training("net", warmup=0, balance=0)
for _ in range(5):
    run.step()
1 / 0
"""


class Loop:
    """A loop over ten batches of eight rows, which steps after every ``accumulate`` of them."""

    def __init__(self, *, accumulate: int = 1, optimizers: int = 1) -> None:
        self.model = nn.Linear(4, 1)
        self.accumulate = accumulate
        self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=0.01) for _ in range(optimizers)]
        self.loader = DataLoader(TensorDataset(torch.ones(80, 4), torch.ones(80, 1)), batch_size=8)
        self.batches = 0

    def train(self, run: perfkit.training, epochs: int) -> None:
        """Train for so many epochs."""
        for _ in range(epochs):
            for values, goals in run(self.loader):
                self.batches += 1
                loss = nn.functional.mse_loss(self.model(values), goals)
                loss.backward()  # type: ignore[no-untyped-call]
                if self.batches % self.accumulate == 0:
                    for optimizer in self.optimizers:
                        optimizer.step()


@pytest.fixture
def project(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Path:
    repository.commit({"pyproject.toml": ""})
    monkeypatch.chdir(repository.root)
    return repository.root


def _rows(place: Path = LEDGER) -> dict[str, Row]:
    return {row.outcome.metric.name: row for row in Ledger(place).rows()}


@pytest.mark.usefixtures("project")
def test_all_later_steps_are_one_row_with_a_leak_and_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    run, kept = perfkit.training("net", warmup=1, steps=10, balance=0), []
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    for step in run(range(36000)):
        # More than other tests may have left free in this process.
        kept.append(bytearray(8000))
        # Where each turn was a step, later turns need no update to be noticed.
        if step < 20:
            optimizer.step()
    run.finish()

    rows = _rows()
    row, memory = rows["all_steps"], rows["all_steps: memory"]
    assert (2000, 11) == (row.outcome.loops, row.outcome.warmup)
    assert memory.outcome.values[-1] > memory.outcome.values[0] > 0
    assert "all_steps: device memory" not in rows
    # At most two of the blocks were traced.
    assert len(row.outcome.values) in (16, 17, 18)
    assert "memory grows by" in str(row.outcome.message)
    assert "compiled" not in str(row.outcome.message)
    assert "steps after that" in capsys.readouterr().err
    shown = rendered(rows_view([one for one in rows.values() if one.run_id == row.run_id]))
    (drawn,) = [line.split() for line in shown.splitlines() if line.startswith("memory ")]
    assert ("\u2581", "\u2588") == (drawn[1][0], drawn[1][-1])


@pytest.mark.usefixtures("project")
def test_what_is_compiled_anew_while_steps_are_followed_is_named_with_its_reason() -> None:
    run = perfkit.training("net", warmup=1, steps=10, balance=0)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    scaled = torch.compile(lambda values, scale: values * scale, backend="eager", dynamic=False)
    for step in run(range(5000)):
        if step < 20:
            optimizer.step()
        if step % 2000 == 0:
            scaled(torch.ones(2), step)
    run.finish()

    message = str(_rows()["all_steps"].outcome.message)
    assert "2 graphs compiled (test_training_loops.py:" in message
    assert "scale == " in message


@pytest.mark.usefixtures("project")
@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("compiled_twice", [False, True])
def test_an_evaluation_is_compiled_whole_and_without_a_warning(*, compiled_twice: bool) -> None:
    module = nn.Linear(2, 2)
    if compiled_twice:
        module = torch.compile(module, backend="eager")  # type: ignore[assignment]
    call = vars(nn.Module)["_call_impl"]
    run = perfkit.training("net", warmup=1, steps=10, balance=5)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    found = []
    for step in run(range(60)):
        optimizer.step()
        if step % 4 == 3:
            compiled = torch.compile(lambda values: module(values) + 0, backend="eager", fullgraph=True)
            with torch.no_grad():
                found += [compiled(torch.ones(1, 2)), module(torch.ones(1, 2))]
    run.finish()

    assert all(torch.equal(one, found[0]) for one in found)
    assert call is vars(nn.Module)["_call_impl"]
    assert "all_steps" in _rows()


def test_a_loop_files_its_steps_what_they_wait_for_and_counts(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = perfkit.training("net", warmup=2, steps=12, balance=10, counts=True)
    Loop().train(run, epochs=4)
    filed = _rows()
    run.finish()

    assert {"time", "step_time", "time in data wait", "time in forward", "operators"} <= filed.keys()
    assert (3, 4) == (len(filed["time"].outcome.values), filed["time"].outcome.loops)
    assert (12, 2) == (len(filed["step_time"].outcome.values), filed["step_time"].outcome.warmup)
    assert filed["operators"].outcome.metric.exact
    assert {"training:net"} == {row.outcome.benchmark.name for row in filed.values()}
    assert {"training"} == {row.source for row in filed.values()}
    assert {"batch": "8", "ranks": "1"} == filed["time"].outcome.benchmark.params
    shown = capsys.readouterr().err
    assert shown.startswith("perfkit: training:net: 12 steps, median ")
    rate = re.search(r"([\d.,]+) samples/s", shown)
    assert rate is not None
    seconds = statistics.fmean(filed["step_time"].outcome.values)
    assert 8 / seconds == pytest.approx(float(rate[1].replace(",", "")), rel=0.01)
    assert shown.endswith(f"-> run {filed['time'].run_id[-8:]} of the ledger\n")
    for metric in ("time", "time in forward", "operators"):
        (trend,) = read_history(load_project(project), LEDGER, HistoryRequest(metric=metric)).trends
        assert "training:net" == trend.benchmark


@pytest.mark.usefixtures("project")
def test_accumulated_gradients_and_two_optimizers_are_one_step() -> None:
    with perfkit.training("net", warmup=0, balance=0) as run:
        Loop(accumulate=5, optimizers=2).train(run, epochs=2)

    assert 4 == len(_rows()["step_time"].outcome.values)


@pytest.mark.usefixtures("project")
def test_a_loop_that_is_left_early_ends_its_last_step() -> None:
    run, loop = perfkit.training("net", warmup=0, balance=0), Loop()
    for _ in range(3):
        for _batch in run(loop.loader):
            loop.optimizers[0].step()
            break
    run.finish()

    assert 3 == len(_rows()["step_time"].outcome.values)


class Epochs:
    """A loader that is its own iterator: it begins anew when asked for one and after its last."""

    def __init__(self, batches: int) -> None:
        self.batches, self.given = batches, 0

    def __iter__(self) -> Epochs:
        self.given = 0
        return self

    def __next__(self) -> int:
        self.given += 1
        if self.given > self.batches:
            self.given = 0
            raise StopIteration
        return self.given


@pytest.mark.usefixtures("project")
def test_every_later_batch_comes_once_and_a_loop_that_is_left_ends_its_step() -> None:
    run, loop, given = perfkit.training("net", warmup=0, steps=3, balance=0), Loop(), []
    for last in (None, 30, None):
        for batch in run(Epochs(40)):
            given.append(batch)
            loop.optimizers[0].step()
            if batch == last:
                break
    run.finish()

    assert [*range(1, 41), *range(1, 31), *range(1, 41)] == given
    assert re.match("107 steps after that", str(_rows()["all_steps"].outcome.message))


def test_uncommitted_changes_are_reported(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text("# changed\n")
    with perfkit.training("net", warmup=0, steps=3, balance=0) as run:
        for _ in range(5):
            run.step()

    assert _rows()["time"].commit.dirty
    assert "(uncommitted changes, so `perfkit history` leaves it out)" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_what_runs_between_loops_and_in_pauses_is_in_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now = itertools.count()
    evaluated = [0]
    monkeypatch.setattr(
        clock, "time", SimpleNamespace(perf_counter=lambda: float(next(now) + 1000 * evaluated[0]))
    )
    run, loop = perfkit.training("net", warmup=0, steps=10, balance=10), Loop()
    for _ in range(3):
        for values, _goals in run(loop.loader):
            loop.optimizers[0].step()
            with torch.no_grad(), run.pause():
                evaluated[0] += 1
                loop.model(values)
        evaluated[0] += 1
    run.finish()

    rows = _rows()
    assert 1000 > max(rows["step_time"].outcome.values)
    watched = [row for name, row in rows.items() if name.startswith("time in ")]
    assert 1000 > sum(max(row.outcome.values) for row in watched)


@pytest.mark.usefixtures("project")
def test_other_amounts_of_work_begin_a_new_history() -> None:
    accelerator = SimpleNamespace(
        process_index=0, num_processes=1, gradient_accumulation_steps=4, mixed_precision="bf16"
    )
    for work in ({"length": 128}, {"length": 256}):
        with perfkit.training("net", accelerator=accelerator, warmup=0, balance=0, work=work) as run:
            for _ in range(3):
                run.step()

    steps = [row for row in Ledger(LEDGER).rows() if row.outcome.metric.name == "step_time"]
    first, second = (row.outcome.benchmark for row in sorted(steps, key=lambda row: row.recorded_at))
    assert first.version != second.version
    assert {"accumulate": "4", "precision": "bf16", "ranks": "1", "length": "128"} == first.params


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("settings", "steps", "why"),
    [
        ({}, 0, "no optimizer's step was seen"),
        ({}, 4, "it made 4 steps, of which 0 were timed, of at least 3; the first 10 are left alone"),
    ],
)
def test_too_little_is_not_filed_and_is_reported(
    settings: dict[str, int], steps: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with perfkit.training("net", **settings) as run:  # type: ignore[arg-type]
        for _ in range(steps):
            run.step()

    shown = capsys.readouterr().err.splitlines()
    assert 1 == len(shown)
    assert shown[0].startswith(f"perfkit: nothing was filed of training:net: {why}")
    assert [] == list(LEDGER.glob("*.parquet"))


def test_where_there_is_no_commit_the_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run, loop = perfkit.training("net", warmup=0), Loop()
    loop.train(run, epochs=1)
    first = capsys.readouterr().err
    run.finish()

    assert 10 == loop.batches
    assert first.startswith("perfkit: the steps of training:net are not measured, the training goes on: ")
    assert "perfkit: nothing was filed of training:net: " in capsys.readouterr().err
    assert 1 == first.count("\n")


@pytest.mark.usefixtures("project")
def test_an_error_of_perfkit_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call, end_step, made = nn.Module.__call__, TrainingSteps.end_step, iter(range(3))

    def fail_at_last(steps: TrainingSteps) -> None:
        if next(made) == 2:
            raise ValueError("a mistake")
        end_step(steps)

    monkeypatch.setattr(TrainingSteps, "end_step", fail_at_last)
    run, loop = perfkit.training("net", warmup=0, steps=1, balance=9), Loop()
    loop.train(run, epochs=1)
    shown = capsys.readouterr().err
    run.finish()

    assert 10 == loop.batches
    assert call is nn.Module.__call__
    assert "training:net are not measured, the training goes on: ValueError: a mistake\n" in shown
    assert 1 == shown.count("\n")


@pytest.mark.usefixtures("project")
def test_a_ledger_that_can_be_written_no_longer_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise LedgerError("no space left")

    monkeypatch.setattr(Ledger, "run", refuse)
    with perfkit.training("net", warmup=0, steps=3, balance=0) as run:
        for _ in range(5):
            run.step()

    assert "nothing was filed of training:net: no space left\n" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("owner", "name", "filed"),
    [
        (PhaseClock, "begin", 0),
        (Periods, "train", 0),
        (tensors, "describe", 0),
        (OptimizerSteps, "taken", 0),
        (Followed, "_close", 1),
        (Followed, "pause", 1),
    ],
)
def test_an_error_of_a_hook_or_of_following_does_not_stop_the_training(
    owner: type | ModuleType,
    name: str,
    filed: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a mistake")

    monkeypatch.setattr(owner, name, fail)
    backward, loop = torch.autograd.backward, Loop()
    run = perfkit.training("net", steps=3, balance=3, counts=True)
    loop.train(run, epochs=60)
    run.finish()

    assert 600 == loop.batches
    assert backward is torch.autograd.backward
    assert "ValueError: a mistake" in capsys.readouterr().err
    assert filed == len(list(LEDGER.glob("*.parquet")))


def test_standard_error_on_a_full_disk_does_not_stop_the_training(project: Path) -> None:
    program = "import perfkit\nwith perfkit.training('net') as run: run.step()\nprint('the training went on')"
    output = project / "output"

    start_script(program, cwd=project, out=output, err="/dev/full").join()

    assert "the training went on\n" == output.read_text()


@pytest.mark.parametrize(
    ("name", "settings"), [(" ", {}), ("net", {"steps": 0}), ("net", {"accelerator": object()})]
)
def test_settings_that_make_no_sense_are_refused_before_the_training(
    name: str, settings: dict[str, object]
) -> None:
    with pytest.raises(UsageError):
        perfkit.training(name, **settings)  # type: ignore[arg-type]


def test_what_was_measured_before_an_error_is_filed_when_the_program_ends(project: Path) -> None:
    done = run_script(UNFINISHED, cwd=project)

    assert 1 == done.returncode
    assert "ZeroDivisionError" in done.stderr
    assert 5 == len(_rows(project / LEDGER)["step_time"].outcome.values)


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
import perfkit

run = perfkit.training("net", warmup=1, steps=5, balance=5, counts=True)
for batch in {batches}:
    sum(range(10_000))
    run.step()
print("the training went on")
"""


@pytest.mark.parametrize("batches", ["range(20)", "run([[1.0] * 8] * 20)"])
def test_a_training_without_torch_is_timed_by_its_own_word(project: Path, batches: str) -> None:
    program = WITHOUT_TORCH.format(batches=batches)
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=project, capture_output=True, text=True, check=False
    )

    assert "the training went on\n" == done.stdout, done.stderr
    assert "no counts, since torch, which counts, cannot be imported" in done.stderr
    rows = _rows(project / LEDGER)
    assert 5 == len(rows["step_time"].outcome.values)
    assert "time in residual" in rows


@pytest.mark.usefixtures("project")
def test_what_the_other_ranks_left_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = torch.distributed.HashStore()  # type: ignore[attr-defined]
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_get_default_store", lambda: store)
    monkeypatch.setattr(training, "_RANKS_WAIT", timedelta(milliseconds=50))
    for rank in (2, 1, 0):
        training._filed.clear()
        record = TrainingRecord("net", StepPlan(warmup=0, steps=3, balance=0))
        record.begin(rank=rank, ranks=3)
        for _ in range(3):
            record.end_step()
        record.report()
    record = TrainingRecord("net", StepPlan(warmup=0, steps=3, balance=0))
    record.begin(rank=0, ranks=3)
    for _ in range(3):
        record.end_step()
    record.report()

    logged, alone = capsys.readouterr().err.splitlines()
    assert "; medians of 2 other ranks " in logged
    assert "other rank" not in alone
    assert "-> run " in alone


@pytest.mark.slow
def test_rank_0_files_and_summarises_the_others(project: Path) -> None:
    meeting = project / ".git/meeting"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANKS, str(rank), str(meeting)],
            cwd=project,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    first, second = (rank.communicate()[1] for rank in ranks)

    assert "; medians of 1 other rank " in first
    assert "perfkit" not in second
    row = _rows(project / LEDGER)["time"]
    assert 1 == len({one.run_id for one in Ledger(project / LEDGER).rows()})
    assert {"ranks": "2"} == row.outcome.benchmark.params


def test_another_rank_alone_files_nothing(project: Path) -> None:
    record = TrainingRecord("net", StepPlan(warmup=0, steps=3, balance=0))
    record.begin(rank=1, ranks=2)
    for _ in range(3):
        record.end_step()
    record.report()

    assert record.is_over
    assert not (project / LEDGER).exists()
