"""An experiment is shown in the terminal, as a document with lab notes, and as a chart."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from experiment_records import (
    AUGMENTATIONS,
    PRECISIONS,
    PRECISIONS_AND_SIZES,
    bf16_is_faster,
    bf16_pays_from_four,
    normal,
    synthetic_record,
)
from rich.console import Console
from synthetic import build_row

from perfkit.features.experiments.effects import effects_of
from perfkit.features.experiments.records import (
    ACCURACY,
    HOST_PEAK,
    LOSS,
    SKIPPED_STEPS,
    STEP_TIME,
    ExperimentRecord,
    Response,
    Trial,
    trial_outcomes,
)
from perfkit.features.experiments.report import effects_chart, experiment_document, experiment_view
from perfkit.features.experiments.summary import (
    SAMPLE_RATE,
    crossover_sentences,
    fastest_lines,
    mean_text,
    repeated_lines,
    summary_of,
)
from perfkit.model import Commit, Environment, Machine, Status
from perfkit.report.chart import Axis

SVG = "{http://www.w3.org/2000/svg}"
THREE_SIZES = {**PRECISIONS, "batch_size": (2, 4, 8)}
NO_MEMORY: Mapping[str, tuple[Status, str]] = {
    "precision=default, batch_size=8": ("oom", "it was killed, as the kernel does when memory is used up")
}
MISTAKE = "a loss is accumulated with its graph at demo/training.py:31; accumulate loss.detach()"
ROW = replace(
    build_row(),
    commit=Commit(sha="a" * 40, subject="Change | things"),
    recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    run_id="01a1ff97",
    machine=Machine(machine_id="m", facts={"cpu": "Test CPU", "gpus": ""}),
    environment=Environment(env_id="e", facts={"python": "CPython 3.11.7", "torch": "2.13.0"}),
)


def _golden(name: str) -> str:
    return (Path(__file__).parent / name).read_text()


def _text(record: ExperimentRecord, *, width: int = 80) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(experiment_view(record), markup=False)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _words(record: ExperimentRecord) -> str:
    return " ".join(_text(record, width=200).split())


def _document(record: ExperimentRecord) -> str:
    return experiment_document(record, ROW, picture="train-images.svg")


def _chart(record: ExperimentRecord) -> ET.Element:
    return ET.fromstring(effects_chart(record))  # noqa: S314 (perfkit's own)


def _chart_texts(record: ExperimentRecord) -> list[str]:
    return [text.text or "" for text in _chart(record).iter(f"{SVG}text")]


def _with_responses(record: ExperimentRecord, **responses: float) -> ExperimentRecord:
    trials = tuple(
        replace(trial, responses={**trial.responses, **responses}) if trial.status == "ok" else trial
        for trial in record.trials
    )
    return replace(record, trials=trials)


def test_the_whole_view_is_as_it_was() -> None:
    record = synthetic_record(
        PRECISIONS_AND_SIZES, sample_s=bf16_is_faster, failed=NO_MEMORY, mistakes=(MISTAKE,)
    )

    assert _golden("golden_experiment_view.txt") == _text(record)
    assert 80 >= max(map(len, _text(record).splitlines()))


def test_the_whole_document_and_its_chart_are_as_they_were() -> None:
    record = synthetic_record(PRECISIONS_AND_SIZES, sample_s=bf16_pays_from_four, mistakes=("a | mistake",))

    assert _golden("golden_experiment_document.md") == _document(record)
    assert _golden("golden_experiment_picture.svg") == effects_chart(record)


def test_notes_on_trials_are_shown_once() -> None:
    whole = synthetic_record(PRECISIONS, done=3)
    note = "loss is nan, no finite number, and is left out"
    trials = [replace(trial, message=note if "bf16" in trial.variant else None) for trial in whole.trials]
    rows = [one for trial in trials for one in trial_outcomes(whole.experiment, trial, version="v")]

    assert f"precision=bf16: {note} (3 trials)" in _words(replace(whole, trials=tuple(trials)))
    assert {note, None} == {outcome.message for outcome, _ in rows}


def test_noise_around_no_change_is_no_crossover() -> None:
    record = synthetic_record(THREE_SIZES, noise=normal(0.05))

    found = crossover_sentences(record, effects_of(record))
    assert not [sentence for sentence in found if sentence.startswith("precision")]


def test_a_number_that_no_seed_changes_is_named() -> None:
    whole = synthetic_record(PRECISIONS)
    trials = [replace(one, responses={**one.responses, "accuracy": 0.9}) for one in whole.trials]

    assert [] == list(repeated_lines(whole))
    (line,) = repeated_lines(replace(whole, trials=tuple(trials)))
    assert "accuracy" in line


@pytest.mark.parametrize(
    ("gain", "noise", "shown"),
    [
        (0.1, 0.001, "workers=2 is the fastest"),
        (0.0, 0.001, "is faster than 0"),
        (0.1, 0.5, "is not decided"),
    ],
)
def test_the_fastest_of_several_levels_is_named(gain: float, noise: float, shown: str) -> None:
    record = synthetic_record(
        {"workers": (0, 1, 2)},
        sample_s=lambda levels: 1 - gain * float(levels["workers"]),
        noise=normal(noise),
    )

    (line,) = fastest_lines(effects_of(record))

    assert shown in line


@pytest.mark.parametrize(
    ("status", "words"), [("timeout", "took longer than its limit"), ("oom", "out of memory")]
)
def test_failures_come_before_results(status: Status, words: str) -> None:
    record = synthetic_record(PRECISIONS, failed={"precision=bf16": (status, "no more | left")})
    document = _document(record)

    assert f"precision=bf16: {words}: no more | left" in _words(record)
    assert f"## What went wrong\n\n- precision=bf16: {words}: no more \\| left\n" in document
    assert f"Total execution time = {words}" in document
    assert f"| Mixed precision (bf16) training | {words} | {words} | {words} |" in document
    assert "The effects leave out what failed or was never measured: precision=bf16." in document


def test_simple_effects_that_are_all_the_same_are_one_line() -> None:
    words = _words(synthetic_record(THREE_SIZES, sample_s=bf16_is_faster))

    assert "peak of tensors, at each level" in words
    assert "at every level -25.0 % exact IMPROVED" in words


def test_only_what_was_measured_has_a_column_and_the_users_own_come_last() -> None:
    record = synthetic_record(PRECISIONS)
    trials = tuple(
        replace(trial, responses={"f1_score": 0.5 + 0.01 * trial.block, **trial.responses})
        for trial in record.trials
    )
    words = _words(replace(record, trials=trials))

    assert "host peak accuracy f1 score" in words
    assert words.index("f1 score +0 +0 to +0 the same") > words.index("may be the same")
    assert "accuracy" not in _text(synthetic_record(AUGMENTATIONS, accuracy=False))


@pytest.mark.parametrize(
    ("text", "response", "mean", "spread"),
    [
        ("53.8 ± 1.2 s", STEP_TIME, 53.797, 1.2),
        ("539 ± 5 ms", STEP_TIME, 0.5394, 0.0053),
        ("53.80 ± 0.03 s", STEP_TIME, 53.797, 0.031),
        ("12.000 ± 0.000 s", STEP_TIME, 12.0, 0.0000031),
        ("1.20 s", STEP_TIME, 1.2, None),
        ("94.1 ± 0.6 %", ACCURACY, 0.941, 0.006),
        ("1.007 ± 0.004 GiB", HOST_PEAK, 1.007 * 2**30, 0.004 * 2**30),
        ("1,234 ± 20", SAMPLE_RATE, 1234.0, 20.0),
        ("939 ± 1,143 ms", STEP_TIME, 0.939, 1.143),
        ("0 ± 0", SKIPPED_STEPS, 0.0, 0.0),
        ("-0.312 ± 0.010", LOSS, -0.312, 0.01),
    ],
)
def test_a_mean_has_the_digits_that_its_spread_needs(
    text: str, response: Response, mean: float, spread: float | None
) -> None:
    assert text == mean_text(response, mean, spread)


def test_a_loss_that_is_no_number_is_shown_as_such() -> None:
    record = synthetic_record(PRECISIONS)
    trials = tuple(
        replace(trial, responses={**trial.responses, "loss": math.nan if trial.block == 3 else 0.3})
        for trial in record.trials
    )
    words = _words(replace(record, trials=trials))

    assert "± 0.5 % nan" in words
    assert "loss +nan +nan to +nan no number" in words


def test_a_summary_has_the_interval_of_student() -> None:
    trials = tuple(
        Trial(variant="precision=default", block=block, order=0, seed=0, responses={"step_time": value})
        for block, value in enumerate((1.0, 2.0, 3.0, 4.0))
    )
    found = summary_of(replace(synthetic_record(PRECISIONS), trials=trials), "precision=default", STEP_TIME)

    assert found is not None
    assert 4 == found.blocks
    assert (2.5, 1.291, 2.054) == pytest.approx((found.mean, found.sd, found.half_width), abs=0.001)


def test_lab_notes_have_time_memory_and_number_of_trials() -> None:
    on_host = synthetic_record(PRECISIONS, sample_s=bf16_is_faster, accuracy=False)
    on_device = _document(
        _with_responses(on_host, device_peak=2.0**30, device_reserved=1.5 * 2**30, skipped_steps=2.0)
    )
    no_steps = {name: replace(found, steps=0) for name, found in on_host.fingerprints.items()}
    document = _document(on_host)

    assert "Default precision training:\nTotal execution time = 54.2" in document
    assert "Max memory used by tensors = 369454080 bytes, counted over the first 5 steps\n" in document
    assert "training | - | 352 MiB of tensors, 114.4 ± 0.3 MiB of the host | 54.3 ± 0.4 s |" in document
    assert (
        "Max memory allocated = 1073741824 bytes, n = 9\nMax memory reserved = 1610612736 bytes, n = 9\n"
        "Skipped steps = 2 on average, n = 9\n"
    ) in on_device
    assert "1.00 ± 0.00 GiB allocated, 1.50 ± 0.00 GiB reserved" in on_device
    assert "bytes, counted over one run" in _document(replace(on_host, fingerprints=no_steps))


def test_what_is_undecided_is_neither_pro_nor_con() -> None:
    same = _document(synthetic_record(AUGMENTATIONS, noise=normal(0.005)))
    open_still = _document(synthetic_record(AUGMENTATIONS, noise=normal(0.05)))

    assert "| cached | Neither | total time: the same within ±2 %, " in same
    assert "| cached | Neither | total time: not decided (INCONCLUSIVE) |" in open_still
    assert "| lazy | Neither | samples per second: not decided (INCONCLUSIVE) |" in open_still
    assert "Pro or Con" not in _document(synthetic_record({"augmentation": ("lazy", "none")}))


def test_names_cannot_break_a_chart_which_loads_nothing_from_elsewhere() -> None:
    record = synthetic_record({"a<b": ("x&y", '"z"')})
    record = replace(record, experiment=replace(record.experiment, name="</svg>"))

    assert "</svg>: samples per second" == _chart_texts(record)[0]
    assert 'a<b: x&y → "z"' in _chart_texts(record)
    assert 1 == effects_chart(record).count("http")
    assert "<script" not in effects_chart(record)


@pytest.mark.parametrize(
    ("texts", "low", "high"),
    [
        (["-0.1 %", "0 %", "+0.1 %"], 0.9985, 1.0015),
        (["-3 %", "-2 %", "-1 %", "0 %", "+1 %", "+2 %"], 0.965, 1.029),
        (["-20 %", "-10 %", "0 %", "+10 %", "+20 %"], 0.78, 1.25),
        (["0 %", "+50 %", "+100 %", "+150 %"], 0.75, 2.55),
        (["×0.2", "×0.5", "×1", "×2", "×5"], 0.15, 6.0),
        (["×0.001", "×0.01", "×0.1", "×1", "×10", "×100"], 0.0006, 300.0),
    ],
)
def test_ticks_are_round_and_have_room(texts: list[str], low: float, high: float) -> None:
    axis = Axis(low=low, high=high)
    shares = [axis.share(ratio) for ratio, _ in axis.ticks()]

    assert texts == [text for _, text in axis.ticks()]
    assert all(after - before > 0.05 for before, after in pairwise(shares))
    assert [0.0, 0.0, 1.0] == [axis.share(ratio) for ratio in (0.0, low / 2, math.inf)]
