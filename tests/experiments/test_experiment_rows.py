"""What an experiment measured is the same after its way through rows of the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from experiment_records import PRECISIONS, PRECISIONS_AND_SIZES, synthetic_record
from synthetic import build_row

from perfkit.features.experiments.policy import ExperimentPolicy
from perfkit.features.experiments.records import ExperimentRecord, Level, Trial
from perfkit.features.experiments.rows import fingerprint_outcome, record_of, trial_outcomes
from perfkit.model import Benchmark, Metric, Row

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


def _one_trial(trial: Trial) -> list[Row]:
    whole = synthetic_record(PRECISIONS, looked_at=False)
    return _rows(replace(whole, trials=(trial,)))


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


@pytest.mark.parametrize("seed", [0, 7])
def test_a_first_trial_of_one_response_is_whole(seed: int) -> None:
    trial = Trial(
        variant="precision=bf16",
        block=0,
        order=0,
        seed=seed,
        message="loss is nan, no finite number, and is left out",
        responses={"total_time": 54.2},
    )

    assert (trial,) == record_of(_one_trial(trial)).trials


def test_trials_come_in_the_order_in_which_they_were_made() -> None:
    record = synthetic_record(PRECISIONS_AND_SIZES, done=3)

    assert record.trials == record_of(_rows(record)[::-1]).trials


def test_a_row_says_which_variant_it_is_of_and_what_its_number_means() -> None:
    trial = Trial(
        variant="precision=bf16", block=4, order=1, seed=9, responses={"accuracy": 0.9, "total_time": 5.0}
    )

    accuracy, time = _one_trial(trial)

    benchmark = Benchmark(
        name="train-images[precision=bf16]",
        version="v1",
        params={"precision": "bf16"},
        group="train-images",
    )
    assert [benchmark] * 2 == [accuracy.outcome.benchmark, time.outcome.benchmark]
    assert Metric(name="accuracy", unit="1", better="higher") == accuracy.outcome.metric
    assert Metric(name="total_time", unit="s") == time.outcome.metric
    assert (4, 4, 1, 9) == (
        time.placement.launch,
        time.placement.block,
        time.placement.order,
        time.placement.seed,
    )


def test_the_peak_of_a_fingerprint_is_exact() -> None:
    record = synthetic_record(PRECISIONS, done=1)

    peak, *_ = _rows(record)

    assert Metric(name="tensor_peak", unit="B", exact=True) == peak.outcome.metric
    assert (float(record.fingerprints["precision=default"].tensor_peak),) == peak.outcome.values


def test_rows_of_anything_else_are_refused() -> None:
    rows = _rows(synthetic_record(PRECISIONS, done=1))

    for strange in ([], [build_row(1.0)], [*rows, build_row(1.0)], [build_row(1.0), *rows]):
        with pytest.raises(ValueError, match="of no experiment"):
            record_of(strange)
