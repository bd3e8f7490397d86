"""What an experiment measured is the same after its way through rows of the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from experiment_records import PRECISIONS, PRECISIONS_AND_SIZES, synthetic_record
from synthetic import build_row

from perfkit.features.experiments.records import (
    ExperimentPolicy,
    ExperimentRecord,
    Level,
    fingerprint_outcome,
    record_of,
    trial_outcomes,
)
from perfkit.model import Row

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
