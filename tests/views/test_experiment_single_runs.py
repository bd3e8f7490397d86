"""A document shows what a single run of each variant would have said, from the runs that there are."""

from __future__ import annotations

from dataclasses import replace

from experiment_records import PRECISIONS, PRECISIONS_AND_SIZES, build_experiment, synthetic_record

from perfkit.features.experiments.records import ExperimentRecord, Trial
from perfkit.features.experiments.report.wording import single_run_lines


def _record(*seconds: tuple[float, float]) -> ExperimentRecord:
    """Return blocks of (default, bf16), the one first in even blocks and the other in odd ones."""
    return ExperimentRecord(
        experiment=build_experiment(PRECISIONS),
        fingerprints={},
        trials=tuple(
            Trial(
                variant=f"precision={level}",
                block=block,
                order=(place + block) % 2,
                seed=block,
                responses={"total_time": found[place]},
            )
            for block, found in enumerate(seconds)
            for place, level in enumerate(("default", "bf16"))
        ),
    )


def test_pairs_of_single_runs_disagree() -> None:
    """Each run of the one against each of the other: the extremes, and how many are slower."""
    line, _ = single_run_lines(_record((10.0, 9.0), (8.0, 9.0), (10.0, 12.0)))

    assert "anything from -10.0 % to +50.0 % of total time" in line
    assert "slower in 5 of the 9 pairs" in line


def test_a_place_in_the_block_that_costs_is_told() -> None:
    """Here whatever runs second takes a tenth longer, whichever it is."""
    *_, line = single_run_lines(_record((10.0, 11.0), (11.0, 10.0), (10.0, 11.0), (11.0, 10.0)))

    assert "took +10.0 % against those that came first" in line


def test_two_blocks_say_nothing() -> None:
    """Of so few every answer would be chance."""
    assert [] == list(single_run_lines(_record((10.0, 9.0), (8.0, 9.0))))


def test_of_more_factors_each_level_is_told_by_itself() -> None:
    """Single runs are of variants, so an average over others has none."""
    record = synthetic_record(PRECISIONS_AND_SIZES)

    lines = list(single_run_lines(record))

    assert any("precision default and bf16 at batch_size=2" in line for line in lines)
    assert [] == list(single_run_lines(replace(record, trials=())))
