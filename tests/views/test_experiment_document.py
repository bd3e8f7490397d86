"""An experiment is rendered as a document, in which people's lab notes have their forms."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from experiment_records import (
    AUGMENTATIONS,
    PRECISIONS,
    PRECISIONS_AND_SIZES,
    Levels,
    bf16_is_faster,
    bf16_pays_from_four,
    normal,
    synthetic_record,
)

from perfkit.features.experiments.effects import effects_of
from perfkit.features.experiments.records import ExperimentRecord, Level, Variant
from perfkit.features.experiments.report.markdown import Provenance, experiment_document
from perfkit.features.experiments.report.seed_forms import (
    performance_table,
    pros_and_cons,
    variant_blocks,
    variant_title,
)

PROVENANCE = Provenance(
    commit="a" * 40,
    subject="Change | things",
    recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    run_id="01a1ff97",
    machine={"cpu": "Test CPU", "gpus": ""},
    environment={"python": "CPython 3.11.7", "torch": "2.13.0"},
)


def _with_responses(record: ExperimentRecord, **responses: float) -> ExperimentRecord:
    trials = tuple(
        replace(trial, responses={**trial.responses, **responses}) if trial.status == "ok" else trial
        for trial in record.trials
    )
    return replace(record, trials=trials)


def _cached_is_faster(levels: Levels) -> float:
    return 0.01 if levels["augmentation"] == "cached" else 0.0269


def _pros_and_cons(record: ExperimentRecord) -> str:
    return pros_and_cons(record, effects_of(record))


def test_the_whole_document_is_as_it_was() -> None:
    """Two factors of which one crosses over, with all that was run, seen, measured and judged."""
    record = synthetic_record(PRECISIONS_AND_SIZES, sample_s=bf16_pays_from_four, mistakes=("a | mistake",))
    golden = Path(__file__).parent / "golden_experiment_document.md"

    assert golden.read_text() == experiment_document(
        record, picture="train-images.svg", provenance=PROVENANCE
    )


def test_headings_stand_below_those_of_the_text_around() -> None:
    """A document within a document has no title of the first level."""
    text = experiment_document(
        synthetic_record(PRECISIONS), heading_level=3, picture=None, provenance=PROVENANCE
    )

    assert text.startswith("### train-images\n\n#### What was run\n")
    assert "![" not in text


def test_without_trials_a_document_says_what_was_planned_and_seen() -> None:
    """Nothing is made up in place of what was not measured."""
    text = experiment_document(synthetic_record(PRECISIONS, done=0), picture="a.svg", provenance=PROVENANCE)

    assert "- 0 of 0 finished blocks judged, at most 20 planned" in text
    assert "Total execution time = -" in text
    assert "| Default precision training | - | 352 MiB of tensors | - |" in text


def test_failures_come_before_results() -> None:
    """What went wrong has a section of its own, and a word in each cell."""
    failed = {"precision=bf16": ("oom", "no memory | left")}
    record = synthetic_record(PRECISIONS, failed=failed)  # type: ignore[arg-type]
    text = experiment_document(record, picture=None, provenance=PROVENANCE)

    assert "## What went wrong\n\n- precision=bf16: out of memory: no memory \\| left\n" in text
    assert "Total execution time = out of memory" in text
    assert "| Mixed precision (bf16) training | out of memory | out of memory | out of memory |" in text
    assert "The effects leave out what failed or was never measured: precision=bf16." in text


def test_a_block_of_text_has_time_memory_and_number_of_trials() -> None:
    """As one would note it by hand, on a host."""
    lines = variant_blocks(synthetic_record(PRECISIONS, sample_s=bf16_is_faster)).splitlines()

    assert [
        "Default precision training:",
        "Total execution time = 54.291 sec, sd 0.469, n = 9",
        "Max memory used by tensors = 369454080 bytes, counted over the first 5 steps",
        "",
        "Mixed precision (bf16) training:",
    ] == lines[:5]


def test_on_a_device_memory_is_what_was_allocated_and_reserved() -> None:
    """The most of all trials; and the steps that a scaler skipped."""
    record = _with_responses(
        synthetic_record(PRECISIONS), device_peak=2.0**30, device_reserved=1.5 * 2**30, skipped_steps=2.0
    )

    assert [
        "Max memory allocated = 1073741824 bytes, n = 9",
        "Max memory reserved = 1610612736 bytes, n = 9",
        "Skipped steps = 2 on average, n = 9",
    ] == variant_blocks(record).splitlines()[2:5]
    assert "1.00 ± 0.00 GiB allocated, 1.50 ± 0.00 GiB reserved" in performance_table(record)


def test_a_target_without_steps_was_watched_as_a_whole() -> None:
    """Nothing is said of steps that there are none of."""
    record = synthetic_record(PRECISIONS)
    fingerprints = {name: replace(found, steps=0) for name, found in record.fingerprints.items()}

    assert "bytes, counted over one run" in variant_blocks(replace(record, fingerprints=fingerprints))


@pytest.mark.parametrize(
    ("title", "levels"),
    [
        ("Default precision training", {"precision": "default"}),
        ("Mixed precision (fp16) training", {"precision": "fp16"}),
        ("Mixed precision (bf16) training, batch_size=8", {"precision": "bf16", "batch_size": 8}),
        ("Fp32 precision training", {"precision": "fp32"}),
        ("workers=2, pinned=true training", {"workers": 2, "pinned": True}),
    ],
)
def test_a_variant_has_the_title_that_people_give_it(title: str, levels: dict[str, Level]) -> None:
    """Precision by its type, all else by name."""
    assert title == variant_title(Variant(levels=levels))


def test_the_table_of_performance_has_means_with_their_intervals() -> None:
    """One row for each variant; no accuracy where none was returned."""
    table = performance_table(synthetic_record(PRECISIONS, accuracy=False)).splitlines()

    assert "| Algorithm | Test accuracy | Memory | Total training time |" == table[0]
    assert (
        "| Default precision training | - | 352 MiB of tensors, 114.4 ± 0.3 MiB of the host | 54.3 ± 0.4 s |"
    ) == table[2]


def test_lazy_and_cached_have_measured_pros_and_cons() -> None:
    """Nine times the memory against two fifths of the time, each told for both."""
    rows = _pros_and_cons(synthetic_record(AUGMENTATIONS, sample_s=_cached_is_faster)).splitlines()
    told = [row.split(" | ")[:2] for row in rows[2:]]

    assert [
        ["| lazy", "Pro"], ["| lazy", "Pro"], ["| lazy", "Con"], ["| lazy", "Con"],
        ["| cached", "Con"], ["| cached", "Con"], ["| cached", "Pro"], ["| cached", "Pro"],
    ] == told  # fmt: skip
    assert "| lazy | Pro | host peak: -88.9 % against cached (-89.0 to -88.8 %), IMPROVED |" in rows
    assert "| cached | Con | the same images in each epoch: each is augmented once |" in rows


def test_pros_and_cons_do_not_depend_on_the_reference() -> None:
    """With cached as the first level the same is said."""
    names: tuple[Level, Level] = ("cached", "lazy")
    record = synthetic_record({"augmentation": names}, sample_s=_cached_is_faster)

    assert "| lazy | Pro | host peak: -88.9 % against cached" in _pros_and_cons(record)
    assert "| cached | Con | host peak: +79" in _pros_and_cons(record)


def test_what_is_undecided_is_neither_pro_nor_con() -> None:
    """Alike within the margin, or not to be told: no word for or against."""
    alike = _pros_and_cons(synthetic_record(AUGMENTATIONS, noise=normal(0.005)))
    open_still = _pros_and_cons(synthetic_record(AUGMENTATIONS, noise=normal(0.05)))

    assert "| cached | Neither | total time: the same within ±2 %, " in alike
    assert "| cached | Neither | total time: cannot tell (INCONCLUSIVE) |" in open_still
    assert "| lazy | Neither | samples per second: cannot tell (INCONCLUSIVE) |" in open_still


def test_other_factors_have_no_pros_and_cons() -> None:
    """Nothing is known to say of them without a measurement."""
    assert "" == _pros_and_cons(synthetic_record(PRECISIONS))
    assert "" == _pros_and_cons(synthetic_record({"augmentation": ("lazy", "none")}))
