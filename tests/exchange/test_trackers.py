"""Trainings and benchmarks become runs of TensorBoard, W&B and MLflow, which read them themselves."""

from __future__ import annotations

import dataclasses
import math
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_perfkit
from synthetic import START, build_row

from perfkit.errors import EXIT_USAGE, UsageError
from perfkit.extras import MissingLibraryError
from perfkit.features.exchange.command import ExportFormat, ExportReport, ExportRequest, export_rows
from perfkit.ledger.store import Ledger
from perfkit.model import STEP_TIME, WALL_TIME, Metric, Row

BASE, HEAD = "b" * 40, "a" * 40
STEPS = (0.125, 0.25, 0.5)
LATER = (0.25, 0.375)
BLOCK, PIECE, WHOLE_OR_LAST = 1 << 15, struct.Struct("<IHB"), (1, 4)
NAME = "benchmarks/bench_a.py::test_a[1-x]"


def of_training(metric: str, values: Sequence[float], *, run: str, warmup: int, loops: int = 1) -> Row:
    row = build_row(*values, run=run, name="training:net", source="training", sha=HEAD, dirty=True)
    known = {one.name: one for one in (STEP_TIME, WALL_TIME)}
    outcome = dataclasses.replace(
        row.outcome,
        benchmark=dataclasses.replace(row.outcome.benchmark, params={"batch": "16"}),
        metric=known.get(metric, Metric(name=metric, unit="s")),
        warmup=warmup,
        loops=loops,
    )
    return dataclasses.replace(row, outcome=outcome)


def of_benchmark(*values: float, sha: str, day: int, run: str, version: str = "v2") -> Row:
    row = build_row(*values, name=NAME, sha=sha, run=run, minute=day, version=version)
    return dataclasses.replace(row, commit=dataclasses.replace(row.commit, time=START + timedelta(days=day)))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return a ledger with a training in two runs, and three commits of a benchmark."""
    place = tmp_path / "ledger"
    kept = Ledger(place)
    kept.append(
        [
            of_training("time", [0.25, 0.5], run="train-1", warmup=10, loops=20),
            of_training("step_time", STEPS, run="train-1", warmup=10),
            of_training("time in data wait", [0.0625], run="train-1", warmup=10, loops=20),
            of_training("operators", [7], run="train-1", warmup=10),
        ]
    )
    kept.append(
        [
            of_training("all_steps", LATER, run="train-2", warmup=250, loops=500),
            of_training("all_steps: memory", [1024, 2048], run="train-2", warmup=250, loops=500),
        ]
    )
    # The older commit is measured last.
    kept.append([of_benchmark(2.0, 4.0, sha=HEAD, day=2, run="bench-1")])
    kept.append(
        [
            of_benchmark(1.0, sha=BASE, day=1, run="bench-2"),
            of_benchmark(3.0, sha=BASE, day=1, run="bench-2"),
            of_benchmark(99.0, sha="c" * 40, day=0, run="bench-2", version="v1"),
        ]
    )
    kept.append(
        [
            build_row(run="none", status="error", message="no"),
            build_row(1.0, run="none", dirty=True),
            build_row(1.0, run="none", source="tricks"),
            build_row(math.inf, run="none", name="infinite"),
        ]
    )
    return place


def export(ledger: Path, name: ExportFormat, out: Path) -> ExportReport:
    return export_rows(ExportRequest(ledger=ledger, start=ledger.parent, format=name, out=out))


LEFT_OUT = {
    "rows without a result": 2,
    "rows of earlier versions of their benchmarks": 1,
    "rows of uncommitted changes": 1,
    "rows of code that was changed to measure it": 1,
}


def test_tensorboard_reads_its_runs(ledger: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

    def series() -> dict[str, dict[str, list[tuple[int, float]]]]:
        found = EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "runs")).Reload()
        return {
            run: {tag: [(one.step, one.value) for one in found.Scalars(run, tag)] for tag in tags["scalars"]}
            for run, tags in found.Runs().items()
        }

    report = export(ledger, "tensorboard", tmp_path / "runs")
    first = series()
    again = export(ledger, "tensorboard", tmp_path / "runs")

    assert LEFT_OUT == report.left_out == again.left_out
    assert first == series()
    assert {f"perfkit/{name}" for name in report.runs or ()} == set(first)
    runs = {tag: {run: points} for run, tags in first.items() for tag, points in tags.items()}
    (steps,) = runs["training/step_time"].values()
    assert list(zip((10, 11, 12), STEPS, strict=True)) == steps
    assert [[(12, 0.25)]] == list(runs["training/median step_time"].values())
    assert [[(10, 4), (30, 2)]] == list(runs["training/steps per second"].values())
    assert [[(10, 0.0625)]] == list(runs["phases/data wait"].values())
    assert [[(250, 0.25), (750, 0.375)]] == list(runs["training/all_steps"].values())
    assert [[(250, 1024), (750, 2048)]] == list(runs["all_steps/memory"].values())
    assert [[(0, 2), (1, 3)]] == list(runs[f"{NAME}/time"].values())


def test_mlflow_finds_its_runs(ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(library)
    from mlflow import MlflowClient

    (here := tmp_path / "here").mkdir()
    monkeypatch.chdir(here)
    report = export(ledger, "mlflow", tmp_path / "there")
    again = export(ledger, "mlflow", tmp_path / "there")
    client = MlflowClient(f"sqlite:///{tmp_path / 'there/mlflow.db'}")
    experiment = client.get_experiment_by_name("perfkit").experiment_id
    (cut_off,) = client.search_runs([experiment], "tags.`perfkit.run` = 'train-2'")
    client.update_run(cut_off.info.run_id, status="RUNNING")
    mended = export(ledger, "mlflow", tmp_path / "there")

    found = client.search_runs([experiment])
    runs = {one.data.tags["perfkit.run"]: one for one in found}
    assert (4, 2) == (len(found), mended.rows)
    assert {"train-1", "train-2", "bench-1", "bench-2"} == set(runs)
    assert (LEFT_OUT, 0, ()) == (report.left_out, again.rows, again.runs)
    assert report.rows == again.left_out["rows of runs that are there already"]
    assert set(report.runs or ()) == {one.info.run_name for one in runs.values()}
    assert {"FINISHED"} == {one.info.status for one in runs.values()}
    training, history = runs["train-1"], client.get_metric_history
    assert [0.125, 0.25, 0.5] == [one.value for one in history(training.info.run_id, "training/step_time")]
    assert ("16", "true", HEAD, "main") == tuple(
        training.data.tags[name] for name in ("batch", "dirty", "mlflow.source.git.commit", "branch")
    )
    assert {"benchmarks/bench_a.py__test_a_1-x_/time": 3.0} == runs["bench-1"].data.metrics
    (mean,) = history(runs["bench-2"].info.run_id, "benchmarks/bench_a.py__test_a_1-x_/time")
    assert (0, 2.0) == (mean.step, mean.value)
    assert not list(here.iterdir())


def test_wandb_lists_its_offline_runs(ledger: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")

    report = export(ledger, "wandb", tmp_path)
    again = export(ledger, "wandb", tmp_path)
    command = [sys.executable, "-m", "wandb", "sync", "--dry-run"]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    files = {file.stem.removeprefix("run-"): file for file in tmp_path.glob("wandb/offline-run-*/*.wandb")}
    assert {"train-1", "train-2", "bench-1", "bench-2"} == set(files)
    # Earlier versions list nothing.
    if not listed.returncode:
        shown = {tmp_path / word for word in listed.stderr.split() if word.endswith(".wandb")}
        assert set(files.values()) == shown
    assert (LEFT_OUT, 0, ()) == (report.left_out, again.rows, again.runs)
    history = {
        int(step): {one.nested_key[0] if one.nested_key else one.key: one.value_json for one in items}
        for step, items in _history(files["train-2"])
    }
    assert {250: ("0.25", "1024"), 750: ("0.375", "2048")} == {
        step: (one["training/all_steps"], one["all_steps/memory"]) for step, one in history.items()
    }


def _history(file: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield the steps of a file: W&B's records lie in blocks, each piece after its length and kind."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, pieces = file.read_bytes(), 7, b""
    while place < len(data):
        if (left := BLOCK - place % BLOCK) < PIECE.size:
            place += left
            continue
        _, length, kind = PIECE.unpack_from(data, place)
        pieces += data[place + PIECE.size : place + PIECE.size + length]
        place += PIECE.size + length
        if kind in WHOLE_OR_LAST:
            record, pieces = Record.FromString(pieces), b""
            if record.HasField("history"):
                yield record.history.step.num, record.history.item


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_a_missing_library_is_named_with_its_extra(
    name: ExportFormat, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in (name, "sqlalchemy", "alembic"):
        monkeypatch.setitem(sys.modules, library, None)

    with pytest.raises(MissingLibraryError, match=rf"--format {name} needs .*'perfkit\[{name}\]'"):
        export(ledger, name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_place_that_cannot_be_written_is_one_line(ledger: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("mine")

    with pytest.raises(UsageError, match=r"tensorboard cannot take these runs in .*file") as shown:
        export(ledger, "tensorboard", tmp_path / "file")

    assert EXIT_USAGE == shown.value.exit_code
    assert "\n" not in str(shown.value)


def test_the_command_writes_where_tensorboard_looks(ledger: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")

    done = run_perfkit("ledger", "export", "--ledger", ledger, "--format", "tensorboard", cwd=tmp_path)

    assert (0, "wrote 9 rows into 3 runs\n") == (done.returncode, done.stdout)
    assert 3 == len(list(tmp_path.glob("runs/perfkit/*/*/*tfevents*")))
