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
    Levels,
    bf16_is_faster,
    bf16_pays_from_four,
    build_experiment,
    normal,
    synthetic_record,
)
from rich.console import Console

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
)
from perfkit.features.experiments.report import (
    Provenance,
    effects_chart,
    experiment_document,
    experiment_view,
)
from perfkit.features.experiments.rows import trial_outcomes
from perfkit.features.experiments.summary import (
    SAMPLE_RATE,
    crossover_sentences,
    effect_text,
    mean_text,
    ratios_by_block,
    single_run_lines,
    summary_of,
)
from perfkit.model import Status
from perfkit.report.chart import Axis

SVG = "{http://www.w3.org/2000/svg}"
THREE_SIZES = {**PRECISIONS, "batch_size": (2, 4, 8)}
NO_MEMORY: Mapping[str, tuple[Status, str]] = {
    "precision=default, batch_size=8": ("oom", "it was killed, as the kernel does when memory is used up")
}
MISTAKE = "a loss is accumulated with its graph at demo/training.py:31; accumulate loss.detach()"
PROVENANCE = Provenance(
    commit="a" * 40,
    subject="Change | things",
    recorded_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    run_id="01a1ff97",
    machine={"cpu": "Test CPU", "gpus": ""},
    environment={"python": "CPython 3.11.7", "torch": "2.13.0"},
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


def _document(record: ExperimentRecord, picture: str | None = None) -> str:
    return experiment_document(record, picture=picture, provenance=PROVENANCE)


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

    assert _golden("golden_experiment_document.md") == _document(record, "train-images.svg")
    assert _golden("golden_experiment_picture.svg") == effects_chart(record)


def test_notes_on_trials_are_shown_once() -> None:
    whole = synthetic_record(PRECISIONS, done=3)
    note = "loss is nan, no finite number, and is left out"
    trials = [replace(trial, message=note if "bf16" in trial.variant else None) for trial in whole.trials]
    rows = [one for trial in trials for one in trial_outcomes(whole.experiment, trial, version="v")]

    assert f"precision=bf16: {note} (3 trials)" in _words(replace(whole, trials=tuple(trials)))
    assert {note, None} == {outcome.message for outcome, _ in rows}


@pytest.mark.parametrize(
    ("factors", "sentences"),
    [
        (
            {"precision": ("default", "bf16"), "batch_size": (2, 8)},
            ["precision=bf16 pays from batch_size about 4 on (between 2 and 8)"],
        ),
        (
            {"precision": ("bf16", "default"), "batch_size": (2, 8)},
            ["precision=default pays up to batch_size about 4 (between 2 and 8)"],
        ),
        (
            {**PRECISIONS, "batch_size": (2, 8), "workers": (0, 2)},
            ["about 4 on, at workers=0 (", "about 4 on, at workers=2 ("],
        ),
        (THREE_SIZES, ["pays from batch_size about 3.9 on (between 2 and 4; not certain"]),
    ],
)
def test_a_crossover_is_a_sentence(
    factors: Mapping[str, tuple[str | int, ...]], sentences: list[str]
) -> None:
    record = synthetic_record(factors, sample_s=bf16_pays_from_four)
    found = [one for one in crossover_sentences(record, effects_of(record)) if one.startswith("precision")]

    assert len(sentences) == len(found)
    assert all(part in sentence for part, sentence in zip(sentences, found, strict=True))


def test_noise_around_no_change_is_no_crossover() -> None:
    record = synthetic_record(THREE_SIZES, noise=normal(0.05))

    found = crossover_sentences(record, effects_of(record))
    assert not [sentence for sentence in found if sentence.startswith("precision")]


def test_effects_have_their_interval_and_verdict() -> None:
    faster = effects_of(synthetic_record(PRECISIONS, sample_s=bf16_is_faster, noise=normal(0.0001)))
    (rate,) = (one for one in map(effect_text, faster) if one.title == "samples per second")
    noisy = effects_of(synthetic_record(PRECISIONS, noise=normal(0.05)))
    (open_one,) = [effect_text(effect) for effect in noisy if effect.response == STEP_TIME]

    assert ("+33.3 %", "+31.4 to +35.3 %", "IMPROVED") == (rate.change, rate.interval, rate.verdict)
    assert "INCONCLUSIVE" == open_one.verdict
    assert " to " in open_one.interval


def test_before_the_first_block_is_over_there_is_only_what_was_counted() -> None:
    record = replace(synthetic_record(PRECISIONS, done=0), stopped="")
    words, document = _words(record), _document(record, "a.svg")

    assert "0 of 0 finished blocks judged, at most 20 planned; not stopped yet" in words
    assert "precision=bf16 0 264 MiB" in words
    assert "peak of tensors -25.0 % exact IMPROVED" in words
    assert "time" not in words.partition("Changes are")[0]
    assert "Total execution time = -" in document
    assert "| Default precision training | - | 352 MiB of tensors | - |" in document
    assert ["train-images: no time was measured"] == _chart_texts(record)


def test_one_block_gives_means_without_scatter_and_no_effect() -> None:
    record = synthetic_record(PRECISIONS, done=1)
    words = _words(record)

    assert "±" not in words.partition("mean ± sd")[2].partition("Changes are")[0].replace("mean ± sd", "")
    assert "total time - - too few blocks" in words
    assert "too few blocks" in _chart_texts(record)


def test_a_variant_that_fails_late_keeps_what_it_had_given() -> None:
    record = synthetic_record(PRECISIONS)
    kept = tuple(trial for trial in record.trials if trial.variant != "precision=bf16" or trial.block < 2)
    last = Trial(variant="precision=bf16", block=2, order=1, seed=0, status="error", message="NaN in loss")

    words = _words(replace(record, trials=(*kept, last)))

    assert "precision=bf16: failed: NaN in loss (after 2 trials that did not)" in words


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


def test_a_mistake_of_some_variants_names_them() -> None:
    record = synthetic_record(PRECISIONS)
    caught = replace(record.fingerprints["precision=bf16"], mistakes=(MISTAKE,))
    record = replace(record, fingerprints={**record.fingerprints, "precision=bf16": caught})

    assert f"caught: {MISTAKE} (precision=bf16)" in _words(record)


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


def test_blocks_have_the_ratios_that_the_effect_rests_on() -> None:
    def half_at_two(levels: Levels) -> float:
        return 0.5 if levels == {"precision": "bf16", "batch_size": 2} else 1.0

    record = synthetic_record(
        PRECISIONS_AND_SIZES, sample_s=half_at_two, noise=lambda _: 0.0, done=3, failed=NO_MEMORY
    )
    main = next(effect for effect in effects_of(record) if effect.response == STEP_TIME)

    assert [0.5, 0.5, 0.5] == pytest.approx(ratios_by_block(record, main))


def _single_runs(*seconds: tuple[float, float]) -> list[str]:
    """Return the lines on blocks of (default, bf16), of which the first alternates."""
    trials = tuple(
        Trial(
            variant=f"precision={level}",
            block=block,
            order=(place + block) % 2,
            seed=block,
            responses={"total_time": found[place]},
        )
        for block, found in enumerate(seconds)
        for place, level in enumerate(("default", "bf16"))
    )
    experiment = build_experiment(PRECISIONS)
    return list(single_run_lines(ExperimentRecord(experiment=experiment, fingerprints={}, trials=trials)))


def test_single_runs_would_have_disagreed() -> None:
    line, _ = _single_runs((10.0, 9.0), (8.0, 9.0), (10.0, 12.0))
    *_, last = _single_runs((10.0, 11.0), (11.0, 10.0), (10.0, 11.0), (11.0, 10.0))

    assert "anything from -10.0 % to +50.0 % of total time" in line
    assert "slower in 5 of the 9 pairs" in line
    assert "took +10.0 % against those that came first" in last
    assert [] == _single_runs((10.0, 9.0), (8.0, 9.0))
    whole = single_run_lines(synthetic_record(PRECISIONS_AND_SIZES))
    assert any("precision default and bf16 at batch_size=2" in line for line in whole)


def test_headings_stand_below_those_of_the_text_around() -> None:
    record = synthetic_record(PRECISIONS)
    text = experiment_document(record, heading_level=3, picture=None, provenance=PROVENANCE)

    assert text.startswith("### train-images\n\n#### What was run\n")
    assert "![" not in text


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


@pytest.mark.parametrize(
    ("title", "factors"),
    [
        ("Mixed precision (fp16) training", {"precision": ("default", "fp16")}),
        ("Mixed precision (bf16) training, batch_size=8", PRECISIONS_AND_SIZES),
        ("Fp32 precision training", {"precision": ("fp32", "bf16")}),
        ("workers=2, pinned=true training", {"workers": (0, 2), "pinned": (False, True)}),
    ],
)
def test_a_variant_has_the_title_that_people_give_it(
    title: str, factors: Mapping[str, tuple[str | int, ...]]
) -> None:
    assert f"\n{title}:\n" in _document(synthetic_record(factors, done=1, looked_at=False))


def _cached_is_faster(levels: Levels) -> float:
    return 0.01 if levels["augmentation"] == "cached" else 0.0269


@pytest.mark.parametrize("methods", [("lazy", "cached"), ("cached", "lazy")])
def test_lazy_and_cached_have_measured_pros_and_cons(methods: tuple[str, str]) -> None:
    document = _document(synthetic_record({"augmentation": methods}, sample_s=_cached_is_faster))
    rows = [row.split(" | ")[:2] for row in document.splitlines() if row.startswith(("| lazy", "| cached"))]

    assert [
        ["| lazy", "Pro"], ["| lazy", "Pro"], ["| lazy", "Con"], ["| lazy", "Con"],
        ["| cached", "Con"], ["| cached", "Con"], ["| cached", "Pro"], ["| cached", "Pro"],
    ] == rows  # fmt: skip
    assert "| lazy | Pro | host peak: -8" in document
    assert "| cached | Con | the same images in each epoch: each is augmented once |" in document


def test_what_is_undecided_is_neither_pro_nor_con() -> None:
    same = _document(synthetic_record(AUGMENTATIONS, noise=normal(0.005)))
    open_still = _document(synthetic_record(AUGMENTATIONS, noise=normal(0.05)))

    assert "| cached | Neither | total time: the same within ±2 %, " in same
    assert "| cached | Neither | total time: not decided (INCONCLUSIVE) |" in open_still
    assert "| lazy | Neither | samples per second: not decided (INCONCLUSIVE) |" in open_still
    assert "Pro or Con" not in _document(synthetic_record({"augmentation": ("lazy", "none")}))


def test_a_chart_has_each_main_effect_with_its_simple_ones_below() -> None:
    texts = _chart_texts(synthetic_record(PRECISIONS_AND_SIZES, sample_s=bf16_is_faster))
    slower = synthetic_record(
        PRECISIONS, sample_s=lambda levels: 1.25 if levels["precision"] == "bf16" else 1.0
    )

    assert [
        "precision: default → bf16", "batch_size=2", "batch_size=8",
        "batch_size: 2 → 8", "precision=default", "precision=bf16",
    ] == [text for text in texts if "→" in text or "=" in text][1:]  # fmt: skip
    assert 3 == sum(text.endswith(" % IMPROVED") for text in texts)
    assert any(text.startswith("-") and text.endswith(" % REGRESSED") for text in _chart_texts(slower))
    # Nine blocks and the estimate.
    assert 10 == len(list(_chart(slower).iter(f"{SVG}circle")))


def test_names_cannot_break_a_chart_which_loads_nothing_from_elsewhere() -> None:
    record = synthetic_record({"a<b": ("x&y", '"z"')})
    record = replace(record, experiment=replace(record.experiment, name="</svg>"))

    assert "</svg>: samples per second" == _chart_texts(record)[0]
    assert 'a<b: x&y → "z"' in _chart_texts(record)
    assert 1 == effects_chart(record).count("http")
    assert "<script" not in effects_chart(record)


def test_an_interval_of_two_blocks_leaves_the_dots_their_room() -> None:
    chart = _chart(synthetic_record(PRECISIONS, done=2))
    dots = [float(dot.get("cx", "nan")) for dot in chart.iter(f"{SVG}circle")]

    assert not [line for line in chart.iter(f"{SVG}line") if line.get("stroke-width") == "1.5"]
    assert max(dots) - min(dots) > 20


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
