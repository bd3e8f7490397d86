"""The terminal shows an experiment, in the words that all its views share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
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
from perfkit.features.experiments.report.summary import SAMPLE_RATE, failures, ratios_by_block, summary_of
from perfkit.features.experiments.report.terminal import experiment_view
from perfkit.features.experiments.report.told import mean_text, told_effect
from perfkit.features.experiments.report.wording import crossover_sentences
from perfkit.features.experiments.rows import trial_outcomes
from perfkit.model import Status

THREE_SIZES = {**PRECISIONS, "batch_size": (2, 4, 8)}
NO_MEMORY: Mapping[str, tuple[Status, str]] = {
    "precision=default, batch_size=8": ("oom", "it was killed, as the kernel does when memory is used up")
}
MISTAKE = "a loss is accumulated with its graph at demo/training.py:31; accumulate loss.detach()"


def _text(record: ExperimentRecord, *, width: int = 80) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(experiment_view(record), markup=False)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _words(record: ExperimentRecord) -> str:
    return " ".join(_text(record, width=200).split())


def test_the_whole_view_is_as_it_was() -> None:
    """Caught mistakes, variants of which one ran out of memory, and effects, in 80 columns."""
    record = synthetic_record(
        PRECISIONS_AND_SIZES, sample_s=bf16_is_faster, failed=NO_MEMORY, mistakes=(MISTAKE,)
    )
    golden = Path(__file__).parent / "golden_experiment_view.txt"

    assert golden.read_text() == _text(record)
    assert 80 >= max(map(len, _text(record).splitlines()))


def test_what_was_left_out_of_trials_is_told_once() -> None:
    """With the variant and the number of its trials, and again from the rows of the ledger."""
    whole = synthetic_record(PRECISIONS, done=3)
    said = "loss is nan, no finite number, and is left out"
    trials = [replace(trial, message=said if "bf16" in trial.variant else None) for trial in whole.trials]
    rows = [one for trial in trials for one in trial_outcomes(whole.experiment, trial, version="v")]

    assert f"precision=bf16: {said} (3 trials)" in _words(replace(whole, trials=tuple(trials)))
    assert {said, None} == {outcome.message for outcome, _ in rows}


def test_three_sizes_end_with_the_crossover() -> None:
    """From which size bf16 pays, and that the middle size leaves it open."""
    words = _words(synthetic_record(THREE_SIZES, sample_s=bf16_pays_from_four))

    assert "precision=bf16 pays from batch_size about 3.9 on (between 2 and 4; not certain" in words
    assert "at batch_size=2 -20." in words
    assert "better there" in words


@pytest.mark.parametrize(
    ("sentence", "reversed_levels"),
    [
        ("precision=bf16 pays from batch_size about 4 on (between 2 and 8)", False),
        ("precision=default pays up to batch_size about 4 (between 2 and 8)", True),
    ],
)
def test_a_crossover_tells_on_which_side_a_level_pays(sentence: str, *, reversed_levels: bool) -> None:
    """Against bf16 as the reference it is the default precision that pays, on the other side."""
    levels = ("bf16", "default") if reversed_levels else ("default", "bf16")
    record = synthetic_record({"precision": levels, "batch_size": (2, 8)}, sample_s=bf16_pays_from_four)

    assert [sentence] == list(crossover_sentences(record, effects_of(record)))


def test_with_a_third_factor_a_crossover_says_where_it_holds() -> None:
    """One sentence for each level of the factor that has nothing to do with it."""
    factors = {**PRECISIONS, "batch_size": (2, 8), "workers": (0, 2)}
    record = synthetic_record(factors, sample_s=bf16_pays_from_four)
    sentences = [
        sentence for sentence in crossover_sentences(record, effects_of(record)) if "bf16 pays" in sentence
    ]

    assert 2 == len(sentences)
    assert ", at workers=0 (" in sentences[0]
    assert ", at workers=2 (" in sentences[1]


def test_noise_around_no_change_is_no_crossover() -> None:
    """Where neither neighbour's interval excludes no change, nothing is said."""
    record = synthetic_record(THREE_SIZES, noise=normal(0.05))

    assert not [
        sentence
        for sentence in crossover_sentences(record, effects_of(record))
        if sentence.startswith("precision")
    ]


def test_an_undecided_effect_has_its_interval() -> None:
    """It tells how far from an answer the experiment is."""
    effects = effects_of(synthetic_record(PRECISIONS, noise=normal(0.05)))
    (told,) = [told_effect(effect) for effect in effects if effect.response == STEP_TIME]

    assert "INCONCLUSIVE" == told.verdict
    assert " to " in told.interval


def test_samples_per_second_are_the_inverse_of_their_time() -> None:
    """A quarter less time is a third more samples; the limits change places, the verdict stays."""
    effects = effects_of(synthetic_record(PRECISIONS, sample_s=bf16_is_faster, noise=normal(0.0001)))
    (told,) = (one for one in map(told_effect, effects) if one.title == "samples per second")

    assert ("+33.3 %", "+31.4 to +35.3 %", "IMPROVED") == (told.change, told.interval, told.verdict)


def test_without_a_finished_block_there_is_only_what_was_counted() -> None:
    """No trial, no time: the fingerprints stay."""
    words = _words(replace(synthetic_record(PRECISIONS, done=0), stopped=""))

    assert "0 of 0 finished blocks judged, at most 20 planned; not stopped yet" in words
    assert "precision=bf16 0 264 MiB" in words
    assert "peak of tensors -25.0 % exact IMPROVED" in words
    assert "time" not in words.partition("Changes are")[0]


def test_one_block_gives_means_without_scatter_and_no_effect() -> None:
    """What was measured is shown, and that it is too little."""
    words = _words(synthetic_record(PRECISIONS, done=1))

    assert "±" not in words.partition("mean ± sd")[2].partition("Changes are")[0].replace("mean ± sd", "")
    assert "total time - - too few blocks" in words


def test_a_variant_that_fails_late_keeps_what_it_had_given() -> None:
    """Its mean is over the trials before, and a line says how it ended."""
    record = synthetic_record(PRECISIONS)
    kept = tuple(trial for trial in record.trials if trial.variant != "precision=bf16" or trial.block < 2)
    last = Trial(variant="precision=bf16", block=2, order=1, seed=0, status="error", message="NaN in loss")
    failing = replace(record, trials=(*kept, last))
    words = _words(failing)

    assert "precision=bf16: failed: NaN in loss (after 2 trials that did not)" in words
    assert 2 == failures(failing)[0].succeeded


def test_a_limit_is_told_in_words() -> None:
    """A cell without a number says why."""
    failed: Mapping[str, tuple[Status, str]] = {"precision=bf16": ("timeout", "600 s were not enough")}

    assert "precision=bf16: took longer than its limit: 600 s were not enough" in _words(
        synthetic_record(PRECISIONS, failed=failed)
    )


def test_a_mistake_of_some_variants_names_them() -> None:
    """One line for each mistake, whoever makes it."""
    record = synthetic_record(PRECISIONS)
    caught = replace(record.fingerprints["precision=bf16"], mistakes=(MISTAKE,))
    record = replace(record, fingerprints={**record.fingerprints, "precision=bf16": caught})

    assert f"caught: {MISTAKE} (precision=bf16)" in _words(record)


def test_simple_effects_that_are_all_the_same_are_told_once() -> None:
    """The peak of tensors does not depend on the size here."""
    words = _words(synthetic_record(THREE_SIZES, sample_s=bf16_is_faster))

    assert "peak of tensors, at each level" in words
    assert "at every level -25.0 % exact IMPROVED" in words


def test_only_what_was_measured_has_a_column() -> None:
    """No accuracy where the target returned none."""
    assert "accuracy" in _text(synthetic_record(AUGMENTATIONS))
    assert "accuracy" not in _text(synthetic_record(AUGMENTATIONS, accuracy=False))


def test_a_response_of_the_user_s_own_comes_last() -> None:
    """By its name, with its difference, in whatever order the trials told of it."""
    record = synthetic_record(PRECISIONS)
    trials = tuple(
        replace(trial, responses={"f1_score": 0.5 + 0.01 * trial.block, **trial.responses})
        for trial in record.trials
    )
    words = _words(replace(record, trials=trials))

    assert "host peak accuracy f1 score" in words
    assert words.index("f1 score +0 +0 to +0 the same") > words.index("may be the same")


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
    """Three, or as many as show the first digit of the spread, but never more than five."""
    assert text == mean_text(response, mean, spread)


def test_a_loss_that_is_no_number_is_shown_as_such() -> None:
    """Half precision can end so: no mean, no scatter and no effect is made up of it."""
    record = synthetic_record(PRECISIONS)
    trials = tuple(
        replace(trial, responses={**trial.responses, "loss": math.nan if trial.block == 3 else 0.3})
        for trial in record.trials
    )
    words = _words(replace(record, trials=trials))

    assert "± 0.5 % nan" in words
    assert "loss +nan +nan to +nan no number" in words


def test_a_summary_has_the_interval_of_student() -> None:
    """Four values: mean 2.5, deviation 1.291, and 3.182 standard errors of 0.645 either way."""
    trials = tuple(
        Trial(variant="precision=default", block=block, order=0, seed=0, responses={"step_time": value})
        for block, value in enumerate((1.0, 2.0, 3.0, 4.0))
    )
    found = summary_of(replace(synthetic_record(PRECISIONS), trials=trials), "precision=default", STEP_TIME)

    assert found is not None
    assert 4 == found.blocks
    assert (2.5, 1.291, 2.054) == pytest.approx((found.mean, found.sd, found.half_width), abs=0.001)


def test_blocks_have_the_ratios_that_the_effect_rests_on() -> None:
    """Without scatter each block says what was planted, also where a size ran out of memory."""

    def half_at_two(levels: Levels) -> float:
        return 0.5 if levels == {"precision": "bf16", "batch_size": 2} else 1.0

    record = synthetic_record(
        PRECISIONS_AND_SIZES, sample_s=half_at_two, noise=lambda _: 0.0, done=3, failed=NO_MEMORY
    )
    main = next(effect for effect in effects_of(record) if effect.response == STEP_TIME)

    assert [0.5, 0.5, 0.5] == pytest.approx(ratios_by_block(record, main))
