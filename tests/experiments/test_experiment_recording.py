"""What an experiment had measured and recorded when it was killed is kept."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from experiment_records import PRECISIONS, PRECISIONS_AND_SIZES, build_experiment, synthetic_record
from repositories import Repository
from synthetic import build_row

from perfkit.config import Project, load_project
from perfkit.errors import LedgerError
from perfkit.features.experiments.command import StagedExperiment, run_experiment
from perfkit.features.experiments.records import (
    ExperimentPolicy,
    ExperimentRecord,
    Level,
    Trial,
    fingerprint_outcome,
    record_of,
    trial_outcomes,
)
from perfkit.ledger import recording
from perfkit.ledger.recording import Run
from perfkit.ledger.store import Ledger
from perfkit.model import Row

EXPERIMENT = build_experiment(PRECISIONS)


class _Silent:
    """Keeps what an experiment prints."""

    def __init__(self) -> None:
        self.printed = ""

    def info(self, text: str) -> None:
        self.printed += text

    def advance(self, share: float) -> None:
        assert 0 <= share <= 1


@pytest.fixture
def project(repository: Repository) -> Project:
    repository.commit({"demo/training.py": "def train(epochs, device, precision):\n    ...\n"})
    return load_project(repository.root)


def _begin(project: Project) -> StagedExperiment:
    return StagedExperiment(EXPERIMENT, project=project, ledger=project.ledger_path)


def _keep_trials(project: Project) -> StagedExperiment:
    keeper = _begin(project)
    for order, variant in enumerate(EXPERIMENT.variants):
        trial = Trial(variant=variant.name, block=0, order=order, seed=7, responses={"total_time": 0.5})
        keeper.keep_trial(trial, None, "v1")
    return keeper


def test_an_experiment_killed_after_it_was_recorded_is_over(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(Run, "_remove_staged", lambda _: os.kill(os.getpid(), signal.SIGKILL))
            _keep_trials(project).finish("all blocks are done")
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    progress = _Silent()

    measured = run_experiment(EXPERIMENT, project=project, ledger=project.ledger_path, progress=progress)

    assert 2 == len(measured.record.trials)
    assert "all blocks are done" == measured.record.stopped
    assert f"its rows are in {Ledger(project.ledger_path).files()[0]}" in progress.printed
    assert [0.5, 0.5] == [row.outcome.values[0] for row in Ledger(project.ledger_path).rows()]
    assert _begin(project).known() is None


def test_two_processes_do_not_go_on_with_one_experiment(project: Project) -> None:
    keeper = _keep_trials(project)

    with pytest.raises(LedgerError, match="another perfkit is measuring what is in"):
        _begin(project)

    keeper.leave()
    known = _begin(project).known()
    assert known is not None
    assert 2 == len(known.trials)


def test_an_experiment_goes_on_under_its_own_run(project: Project) -> None:
    first = _keep_trials(project)
    first.leave()
    other = StagedExperiment(
        build_experiment(PRECISIONS, blocks=3), project=project, ledger=project.ledger_path
    )
    assert other.known() is None

    second = _keep_trials(project)
    rows, unrecorded = second.finish("done")

    assert unrecorded is None
    assert (4, 1) == (len(rows), len({row.run_id for row in rows}))
    assert list(rows) == Ledger(project.ledger_path).rows()


def test_a_full_ledger_takes_no_experiment_away(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording, "_write_run", fail)
    keeper = _keep_trials(project)

    rows, unrecorded = keeper.finish("done")

    keeper.leave()
    assert 2 == len(rows)
    assert unrecorded is not None
    assert "(No space left on device); its 2 rows are kept in " in unrecorded
    assert unrecorded.endswith(": the same command goes on with them")
    known = _begin(project).known()
    assert known is not None
    assert 2 == len(known.trials)


SWITCHES: Mapping[str, Sequence[Level]] = {"pinned": (False, True), "workers": (2, 0, 10)}


def _rows(record: ExperimentRecord) -> list[Row]:
    """Return all rows of an experiment: first what its variants are, then its trials as they were made."""
    policy = ExperimentPolicy(study="s1", plan=record.experiment, stopped=record.stopped)
    fingerprints = [
        (fingerprint_outcome(record.experiment, variant, found, version="v1"), found)
        for variant, found in record.fingerprints.items()
    ]
    trials = [
        (one, None)
        for trial in record.trials
        for one in trial_outcomes(record.experiment, trial, version="v1")
    ]
    return [
        replace(
            build_row(source="experiment"),
            outcome=outcome,
            placement=placement,
            policy=replace(policy, fingerprint=found),
        )
        for (outcome, placement), found in [*fingerprints, *trials]
    ]


@pytest.mark.parametrize("factors", [PRECISIONS, PRECISIONS_AND_SIZES, SWITCHES])
def test_an_experiment_is_the_same_after_its_way_through_rows(factors: Mapping[str, Sequence[Level]]) -> None:
    record = synthetic_record(factors, done=3)

    assert record == record_of(_rows(record))


def test_a_trial_that_failed_keeps_its_reason() -> None:
    record = synthetic_record(
        PRECISIONS_AND_SIZES, done=2, failed={"precision=bf16, batch_size=8": ("oom", "CUDA out of memory")}
    )
    rows = _rows(record)

    (failed,) = [row for row in rows if row.outcome.status != "ok"]
    assert ("oom", "CUDA out of memory", ()) == (
        failed.outcome.status,
        failed.outcome.message,
        failed.outcome.values,
    )
    assert record == record_of(rows)


def test_trials_come_in_the_order_in_which_they_were_made() -> None:
    record = synthetic_record(PRECISIONS_AND_SIZES, done=3)

    assert record.trials == record_of(_rows(record)[::-1]).trials


def test_rows_of_anything_else_are_refused() -> None:
    rows = _rows(synthetic_record(PRECISIONS, done=1))

    for strange in ([], [build_row(1.0)], [*rows, build_row(1.0)], [build_row(1.0), *rows]):
        with pytest.raises(ValueError, match="of no experiment"):
            record_of(strange)
