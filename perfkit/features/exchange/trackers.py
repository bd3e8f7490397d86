"""Runs of the ledger as runs of experiment trackers, each written by the tracker's own library."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perfkit.errors import UsageError
from perfkit.extras import need
from perfkit.features.exchange.records import grouped, plain_name
from perfkit.identity import short_run_id
from perfkit.ledger.history.trends import Order
from perfkit.model import OF_CHANGED_CODE, STEP_TIME, WALL_TIME, Row
from perfkit.model.history import CommitFacts
from perfkit.repo.commits import commit_facts

# The project or experiment of the runs, where the tracker's own setting names no other.
_PROJECT = "perfkit"
_TRAINING, _BENCHMARKS = "training", "benchmarks"
_SHA_DIGITS = 7
# What MLflow takes at once, of a name, and of a text.
_BATCH, _LONGEST_NAME, _LONGEST_TEXT = 1000, 250, 5000


@dataclass(frozen=True)
class _Point:
    tag: str
    step: int
    value: float
    time: datetime


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker is given as one run; ``points`` are in the order of their steps."""

    run_id: str
    name: str
    begun: datetime
    facts: Mapping[str, str]
    points: Sequence[_Point]
    rows: int


def track(
    rows: Sequence[Row], tool: str, out: Path | None, *, start: Path
) -> tuple[Sequence[TrackedRun], Counter[str]]:
    """Write rows as runs of a tracker, and return these with what was left out.

    A run that the tracker has already is left out; in TensorBoard it is replaced. Commits are looked up
    around ``start``.

    Raises:
        UsageError: the tracker's library is missing, or refuses a run.
    """
    libraries, write = TRACKERS[tool]
    need(*libraries, by=f"--format {tool}")
    left_out = Counter(filter(None, map(_reason_against, rows)))
    kept = [row for row in _in_order(rows, start) if not _reason_against(row)]
    in_tensorboard = write is _to_tensorboard
    runs = list(_runs_of(kept, merges=in_tensorboard))
    folder = out or Path("runs" if in_tensorboard else ".")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(folder):
            written = write(runs, out)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageError(f"{tool} cannot take these runs in {folder}: {reason}") from error
    sent = sum(run.rows for run in runs)
    left_out["rows of earlier versions of their benchmarks"] = len(kept) - sent
    left_out["rows of runs that are there already"] = sent - sum(run.rows for run in written)
    return written, left_out


def _in_order(rows: Sequence[Row], start: Path) -> list[Row]:
    """Return rows by the places of their commits in history, and each commit's as they were recorded."""
    commits = {row.commit.sha: CommitFacts(sha=row.commit.sha, time=row.commit.time) for row in rows}
    order = Order.of((commits | commit_facts(start, commits)).values())
    return sorted(rows, key=lambda row: (order.place(row.commit.sha), row.recorded_at))


def _reason_against(row: Row) -> str:
    outcome = row.outcome
    if outcome.status != "ok" or not outcome.is_measured or not all(map(math.isfinite, outcome.values)):
        return "rows without a result"
    if row.source in OF_CHANGED_CODE:
        return "rows of code that was changed to measure it"
    return "rows of uncommitted changes" if row.commit.dirty and row.source != _TRAINING else ""


def _runs_of(rows: Sequence[Row], *, merges: bool) -> Iterator[TrackedRun]:
    """Yield the runs of rows; with ``merges`` all benchmarks of a machine are one."""

    def key(row: Row) -> tuple[str, str]:
        if row.source == _TRAINING:
            return row.run_id, row.outcome.benchmark.name
        return (row.machine.machine_id, _BENCHMARKS) if merges else (row.run_id, row.source)

    for of_run in grouped(rows, key):
        first = of_run[0]
        run_id, group = key(first)
        is_training, begun = first.source == _TRAINING, first.recorded_at
        place = f"{begun:%Y%m%dT%H%M%SZ}-{first.commit.sha[:_SHA_DIGITS]}-{short_run_id(run_id)}"
        shown = of_run if is_training else _of_newest_versions(of_run)
        points = [point for row in shown for point in _steps(row)] if is_training else _means(shown)
        yield TrackedRun(
            run_id=run_id,
            name=f"{plain_name(group)}/{plain_name(run_id) if group == _BENCHMARKS else place}",
            begun=begun,
            facts=_facts(shown),
            points=sorted(points, key=lambda one: one.step),
            rows=len(shown),
        )


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    """Return what is true of all rows: commit, machine and software; and several commits in order."""
    first, *others = map(_facts_of, rows)
    shared = {
        name: text for name, text in first.items() if text and all(text == one.get(name) for one in others)
    }
    commits = " ".join(dict.fromkeys(row.commit.sha[:_SHA_DIGITS] for row in rows))
    return shared if "commit" in shared else {**shared, "commits": commits}


def _facts_of(row: Row) -> dict[str, str | None]:
    commit = row.commit
    return {
        **row.environment.facts,
        **row.machine.facts,
        **(row.outcome.benchmark.params if row.source == _TRAINING else {}),
        "machine": row.machine.machine_id,
        "recorded_at": row.recorded_at.isoformat(),
        "source": row.source,
        "commit": commit.sha,
        "branch": commit.branch,
        "subject": commit.subject,
        "dirty": str(commit.dirty).lower(),
        "findings": row.outcome.message,
    }


def _steps(row: Row) -> Iterator[_Point]:
    """Yield the values of a training's row at the steps that they begin with."""
    outcome, time = row.outcome, row.recorded_at
    name = outcome.metric.name.replace("time in ", "phases/").replace(": ", "/")
    for place, value in enumerate(outcome.values):
        step = (outcome.warmup or 0) + place * (outcome.loops or 1)
        yield _Point(name if "/" in name else f"training/{name}", step, value, time)
        if outcome.metric == WALL_TIME and value:
            yield _Point("training/steps per second", step, 1 / value, time)
    if outcome.metric == STEP_TIME:
        # Tables of runs show the last value of a series.
        yield _Point("training/median step_time", step, statistics.median(outcome.values), time)


def _of_newest_versions(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of benchmarks as they are now: one that was changed begins anew."""
    newest = {row.outcome.benchmark.name: row.outcome.benchmark.version for row in rows}
    return [row for row in rows if newest[row.outcome.benchmark.name] == row.outcome.benchmark.version]


def _means(rows: Sequence[Row]) -> Iterator[_Point]:
    """Yield the mean of each benchmark and metric at each commit, whose step is its place among these."""
    places = {sha: place for place, sha in enumerate(dict.fromkeys(row.commit.sha for row in rows))}

    def key(row: Row) -> tuple[str, str]:
        return row.commit.sha, f"{row.outcome.benchmark.name}/{row.outcome.metric.name}"

    for alike in grouped(rows, key):
        (sha, tag), first = key(alike[0]), alike[0]
        outcomes = [row.outcome for row in alike]
        means = [one.summary.mean if one.summary else statistics.fmean(one.values) for one in outcomes]
        yield _Point(tag, places[sha], statistics.fmean(means), first.commit.time or first.recorded_at)


def _to_tensorboard(runs: Sequence[TrackedRun], _out: Path | None) -> Sequence[TrackedRun]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run in runs:
        folder, begun = Path(_PROJECT, run.name), run.begun.timestamp()
        before = list(folder.glob("*tfevents*"))
        writer = EventFileWriter(str(folder))
        facts = hparams_pb(run.facts, trial_id=run.run_id, start_time_secs=begun)
        writer.add_event(Event(wall_time=begun, summary=facts))
        for one in run.points:
            scalar = Summary(value=[Summary.Value(tag=one.tag, simple_value=one.value)])
            writer.add_event(Event(wall_time=one.time.timestamp(), step=one.step, summary=scalar))
        writer.close()
        for file in before:
            file.unlink()
    return runs


def _to_wandb(runs: Sequence[TrackedRun], _out: Path | None) -> Sequence[TrackedRun]:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    place = Path("wandb").absolute()
    new = [run for run in runs if not any(place.glob(f"*-{run.run_id}"))]
    place.mkdir(exist_ok=True)
    for run in new:
        # This process is not the one that was measured.
        hidden = dict.fromkeys(("disable_code", "disable_git", "x_disable_meta", "x_disable_stats"), True)
        settings = wandb.Settings(**hidden, silent=True, console="off", x_save_requirements=False)
        # Written elsewhere, so that a run that was cut off is not taken for one that is there.
        with tempfile.TemporaryDirectory(dir=place) as folder:
            with wandb.init(
                project=os.environ.get("WANDB_PROJECT", _PROJECT),
                id=run.run_id,
                name=run.name,
                group=run.name.partition("/")[0],
                config=dict(run.facts),
                mode="offline",
                dir=folder,
                settings=settings,
            ) as kept:
                for step, points in itertools.groupby(run.points, lambda one: one.step):
                    kept.log({one.tag: one.value for one in points}, step=step)
            for written in Path(folder, "wandb").glob("offline-run-*"):
                written.rename(place / written.name)
    return new


def _to_mlflow(runs: Sequence[TrackedRun], out: Path | None) -> Sequence[TrackedRun]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(None if out is None else f"sqlite:///{Path('mlflow.db').absolute()}")
    project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
    found = client.get_experiment_by_name(project)
    experiment = client.create_experiment(project) if found is None else found.experiment_id

    def is_new(run: TrackedRun) -> bool:
        found = client.search_runs([experiment], f"tags.`perfkit.run` = '{run.run_id}'")
        for one in found:
            if one.info.status != "FINISHED":
                client.delete_run(one.info.run_id)
        return all(one.info.status != "FINISHED" for one in found)

    def milliseconds(time: datetime) -> int:
        return int(time.timestamp() * 1000)

    new = [run for run in runs if is_new(run)]
    for run in new:
        begun, sha = milliseconds(run.begun), run.facts.get("commit", "")
        tags = {**run.facts, "perfkit.run": run.run_id, "mlflow.source.git.commit": sha}
        made = client.create_run(
            experiment,
            start_time=begun,
            tags={_plain(name): text[:_LONGEST_TEXT] for name, text in tags.items()},
            run_name=run.name,
        )
        metrics = [Metric(_plain(one.tag), one.value, milliseconds(one.time), one.step) for one in run.points]
        for begin in range(0, len(metrics), _BATCH):
            client.log_batch(made.info.run_id, metrics=metrics[begin : begin + _BATCH])
        client.set_terminated(made.info.run_id, end_time=begun)
    return new


def _plain(name: str) -> str:
    """Return the end of a name, with "_" for the signs that MLflow refuses."""
    return re.sub(r"[^\w./ -]", "_", name)[-_LONGEST_NAME:]


_Write = Callable[[Sequence[TrackedRun], Path | None], Sequence[TrackedRun]]
# The libraries that each needs, and what writes the runs that it does not have into the present folder.
TRACKERS: Mapping[str, tuple[tuple[str, ...], _Write]] = {
    "tensorboard": (("tensorboard",), _to_tensorboard),
    "wandb": (("wandb",), _to_wandb),
    "mlflow": (("mlflow", "sqlalchemy", "alembic"), _to_mlflow),
}
