"""Effects follow from trials, by hand in small cases; simulated experiments err as rarely as promised."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from experiment_records import (
    PRECISIONS,
    PRECISIONS_AND_SIZES,
    Noise,
    bf16_pays_from_four,
    build_experiment,
    heavy_tailed,
    normal,
    one_speed,
    synthetic_record,
)
from scipy.stats import t as student

from perfkit.features.experiments.effects import (
    Effect,
    Kind,
    contrasts_of,
    crossovers,
    effects_of,
    exit_code_of,
    finished_blocks,
    interval_error,
    is_comparable,
    is_decided,
    judged_blocks,
    looks_of,
    main_effects,
)
from perfkit.features.experiments.records import (
    ACCURACY,
    HOST_PEAK,
    LOSS,
    SAMPLE_TIME,
    SKIPPED_STEPS,
    TENSOR_PEAK,
    TOTAL_TIME,
    ExperimentRecord,
    Fingerprint,
    Level,
    Response,
    Trial,
)

SIZES: Mapping[str, Sequence[Level]] = {**PRECISIONS, "batch_size": (2, 8, 32)}
EXPERIMENTS = 100


def _record(
    factors: Mapping[str, Sequence[Level]],
    *blocks: Mapping[str, float | None],
    response: Response = TOTAL_TIME,
    peaks: Mapping[str, int] | None = None,
) -> ExperimentRecord:
    """Return a stopped experiment of as many blocks, in each the value of a variant, None where it failed."""
    trials = tuple(
        Trial(
            variant=variant,
            block=block,
            order=order,
            seed=0,
            status="error" if value is None else "ok",
            responses={} if value is None else {response.name: value},
        )
        for block, values in enumerate(blocks)
        for order, (variant, value) in enumerate(values.items())
    )
    fingerprints = {
        variant: Fingerprint(operators=1, half={}, tensor_peak=peak, settings={}, steps=1)
        for variant, peak in (peaks or {}).items()
    }
    return ExperimentRecord(
        experiment=build_experiment(factors, blocks=4),
        fingerprints=fingerprints,
        trials=trials,
        stopped="all blocks are done",
    )


def _effect(
    effects: Iterable[Effect], kind: Kind, factor: str, response: Response = TOTAL_TIME, **at: Level
) -> Effect:
    """Return the one effect of a kind on a response."""
    (found,) = (
        effect
        for effect in effects
        if (effect.contrast.kind, effect.contrast.factor, effect.response) == (kind, factor, response)
        and dict(effect.contrast.at) == at
    )
    return found


def _two_by_two(
    small: float, large: float | None, half_small: float, half_large: float
) -> dict[str, float | None]:
    return {
        "precision=default, batch_size=2": small,
        "precision=default, batch_size=8": large,
        "precision=bf16, batch_size=2": half_small,
        "precision=bf16, batch_size=8": half_large,
    }


def test_a_main_effect_is_the_geometric_mean_over_blocks() -> None:
    ratios = (1.1, 1.21, 1.1, 1.21)
    blocks = (
        {"precision=default": level, "precision=bf16": level * ratio}
        for level, ratio in zip((1.0, 5.0, 2.0, 9.0), ratios, strict=True)
    )
    effect = _effect(effects_of(_record(PRECISIONS, *blocks)), "main", "precision")
    # One contrast, three times; four blocks are the only look, and the end of the budget may be another.
    error = 0.05 / (1 * 3 * 2)
    half_width = student.ppf(1 - error / 2, 3) * (math.log(1.1) / 2) * math.sqrt(4 / 3) / 2

    assert pytest.approx(1.1**1.5) == effect.value
    assert pytest.approx(1.1**1.5 * math.exp(-half_width)) == effect.low
    assert pytest.approx(1.1**1.5 * math.exp(half_width)) == effect.high
    assert pytest.approx(1 - error) == effect.confidence
    assert 4 == effect.blocks


def test_simple_effects_and_interactions_come_from_the_cells() -> None:
    block = _two_by_two(1.0, 4.0, 2.0, 2.0)
    effects = effects_of(_record(PRECISIONS_AND_SIZES, block, block))

    assert pytest.approx(1.0) == _effect(effects, "main", "precision").value
    assert pytest.approx(2.0) == _effect(effects, "simple", "precision", batch_size=2).value
    assert pytest.approx(0.5) == _effect(effects, "simple", "precision", batch_size=8).value
    assert pytest.approx(0.25) == _effect(effects, "interaction", "precision", batch_size=8).value
    assert pytest.approx(2.0) == _effect(effects, "main", "batch_size").value


def test_two_factors_are_compared_at_each_other_s_levels() -> None:
    contrasts = contrasts_of(build_experiment(SIZES))
    kinds = [contrast.kind for contrast in contrasts]

    assert [3, 7, 2] == [kinds.count(kind) for kind in ("main", "simple", "interaction")]
    assert {("precision", "default"), ("batch_size", 2)} == {(one.factor, one.reference) for one in contrasts}


def test_true_and_one_are_different_levels() -> None:
    pairs = [contrast.pairs for contrast in contrasts_of(build_experiment({"workers": (0, 1, True)}))]

    assert [(("workers=0", "workers=1"),), (("workers=0", "workers=true"),)] == pairs


def test_a_response_without_a_natural_zero_is_compared_by_difference() -> None:
    blocks = (
        {"precision=default": 0.90, "precision=bf16": 0.93},
        {"precision=default": 0.92, "precision=bf16": 0.93},
    )
    effect = _effect(
        effects_of(_record(PRECISIONS, *blocks, response=ACCURACY)), "main", "precision", ACCURACY
    )

    assert pytest.approx(0.02) == effect.value
    assert effect.verdict is None


@pytest.mark.parametrize(
    ("response", "first", "second"), [(LOSS, 0.5, 0.25), (LOSS, -0.5, -2.0), (SKIPPED_STEPS, 0.0, 2.0)]
)
def test_a_difference_may_be_of_any_two_numbers(response: Response, first: float, second: float) -> None:
    block = {"precision=default": first, "precision=bf16": second}
    effect = _effect(
        effects_of(_record(PRECISIONS, block, block, response=response)), "main", "precision", response
    )

    assert (second - first, second - first, 2) == (effect.value, effect.low, effect.blocks)


@pytest.mark.parametrize("none", [0.0, -1.0])
def test_a_time_that_is_not_above_zero_is_none(none: float) -> None:
    whole = {"precision=default": 1.0, "precision=bf16": 2.0}
    broken = {"precision=default": none, "precision=bf16": 2.0}

    assert 2 == _effect(effects_of(_record(PRECISIONS, whole, broken, whole)), "main", "precision").blocks


@pytest.mark.parametrize(
    ("response", "blocks", "narrow"),
    [(TOTAL_TIME, 9, False), (TOTAL_TIME, 10, True), (TOTAL_TIME, 11, True), (HOST_PEAK, 2, True)],
)
def test_few_times_that_agree_are_not_believed(response: Response, blocks: int, narrow: bool) -> None:  # noqa: FBT001
    block = {"precision=default": 1.0, "precision=bf16": 2.0}
    record = _record(PRECISIONS, *[block] * blocks, response=response)
    effect = _effect(effects_of(record), "main", "precision", response)

    assert narrow == (effect.low == pytest.approx(2.0) == effect.high)


def test_a_variant_that_never_ran_is_left_out() -> None:
    block = _two_by_two(1.0, None, 2.0, 2.0)
    effects = effects_of(_record(PRECISIONS_AND_SIZES, block, block))
    main = _effect(effects, "main", "precision")
    simple = _effect(effects, "simple", "precision", batch_size=8)

    assert pytest.approx(2.0) == main.value
    assert ("precision=default, batch_size=8",) == main.left_out == simple.left_out
    assert (None, None, 0) == (simple.value, simple.verdict, simple.blocks)


def test_a_block_counts_where_every_trial_it_needs_succeeded() -> None:
    both: dict[str, float | None] = {"precision=default": 1.0, "precision=bf16": 2.0}
    half: dict[str, float | None] = {"precision=default": 1.0, "precision=bf16": None}
    effect = _effect(effects_of(_record(PRECISIONS, both, half, both)), "main", "precision")

    assert 2 == effect.blocks
    assert pytest.approx(2.0) == effect.value


def test_one_block_is_no_effect() -> None:
    effect = _effect(
        effects_of(_record(PRECISIONS, {"precision=default": 1.0, "precision=bf16": 2.0})),
        "main",
        "precision",
    )

    assert (None, None, 1) == (effect.value, effect.verdict, effect.blocks)


def test_what_was_counted_is_exact() -> None:
    peaks = {"precision=default": 400, "precision=bf16": 300}
    effect = _effect(effects_of(_record(PRECISIONS, peaks=peaks)), "main", "precision", TENSOR_PEAK)

    assert (0.75, 0.75, 0.75) == pytest.approx((effect.value, effect.low, effect.high))
    assert (None, "IMPROVED", 0) == (effect.confidence, effect.verdict, effect.blocks)


def test_a_crossover_lies_between_the_sizes_where_the_sign_changes() -> None:
    blocks = (_two_by_two(level, level, 1.25 * level, 0.8 * level) for level in (1.0, 2.0, 3.0))
    record = _record(PRECISIONS_AND_SIZES, *blocks)
    (crossing,) = crossovers(record.experiment, effects_of(record), TOTAL_TIME)

    assert ("precision", "bf16", "batch_size") == (crossing.factor, crossing.level, crossing.along)
    assert (2.0, 8.0, 4.0) == pytest.approx((crossing.below, crossing.above, crossing.size))
    assert crossing.certain
    assert not crossing.better_below
    assert {} == crossing.at


@pytest.mark.parametrize(("small", "large", "better_below"), [(1.25, 0.8, False), (0.8, 1.25, True)])
def test_a_crossover_shows_on_which_side_of_it_a_level_pays(
    small: float,
    large: float,
    better_below: bool,  # noqa: FBT001
) -> None:
    record = _record(PRECISIONS_AND_SIZES, *[_two_by_two(1.0, 1.0, small, large)] * 3)
    (crossing,) = crossovers(record.experiment, effects_of(record), TOTAL_TIME)

    assert better_below == crossing.better_below


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.5), (0.75, 1.0)])
def test_an_interval_that_ends_at_no_change_contains_it(low: float, high: float) -> None:
    record = _record(PRECISIONS_AND_SIZES, *[_two_by_two(1.0, 1.0, 1.25, 0.8)] * 3)
    effects = [
        replace(effect, low=low, high=high) if effect.contrast.at == {"batch_size": 2} else effect
        for effect in effects_of(record)
    ]
    (crossing,) = crossovers(record.experiment, effects, TOTAL_TIME)

    assert not crossing.certain


def test_a_crossover_next_to_an_interval_that_contains_no_change_is_not_certain() -> None:
    record = synthetic_record({**PRECISIONS, "batch_size": (2, 4, 8)}, sample_s=bf16_pays_from_four)
    (crossing,) = crossovers(record.experiment, effects_of(record), SAMPLE_TIME)

    assert not crossing.certain
    assert pytest.approx(4.0, rel=0.1) == crossing.size


@pytest.mark.parametrize(
    ("looks", "blocks"),
    [
        ((6, 9, 13, 18, 25, 35, 50, 70, 100, 150), 150),
        ((6, 9, 13, 18, 20), 20),
        ((6, 7), 7),
        ((6,), 6),
        ((3,), 3),
    ],
)
def test_the_last_block_is_a_look(looks: tuple[int, ...], blocks: int) -> None:
    assert looks == looks_of(build_experiment(PRECISIONS, blocks=blocks))


@pytest.mark.parametrize(("judged", "done"), [(0, 5), (6, 6), (6, 8), (9, 9)])
def test_blocks_after_a_look_wait_for_the_next(judged: int, done: int) -> None:
    stopped = synthetic_record(PRECISIONS, done=done)

    running = replace(stopped, stopped="")
    assert judged == judged_blocks(running)
    assert {judged} == {effect.blocks for effect in effects_of(running) if effect.response == SAMPLE_TIME}
    assert done == judged_blocks(stopped)


def test_alpha_is_shared_over_looks_contrasts_and_times() -> None:
    assert pytest.approx(0.05 / (6 * 1 * 3)) == interval_error(build_experiment(PRECISIONS, blocks=20))


def test_a_block_is_finished_without_what_has_failed() -> None:
    failed = {"precision=bf16, batch_size=8": ("oom", "no memory left")}
    record = synthetic_record(PRECISIONS_AND_SIZES, done=3, failed=failed)  # type: ignore[arg-type]

    assert 3 == finished_blocks(record)
    assert 2 == finished_blocks(replace(record, trials=record.trials[:-1]))


def test_a_variant_needs_another_one_to_be_compared_with() -> None:
    fine: dict[str, float | None] = {"precision=default": 1.0, "precision=bf16": 1.0}

    assert is_comparable(_record(PRECISIONS, fine))
    assert not is_comparable(_record(PRECISIONS, {**fine, "precision=bf16": None}))


@pytest.mark.parametrize(
    ("blocks", "decided", "code"),
    [
        pytest.param([], False, 3, id="nothing measured"),
        pytest.param([(1.0, 2.0)] * 6, True, 0, id="slower for certain"),
        pytest.param([(1.0, 1.0)] * 20, True, 0, id="the same for certain"),
        pytest.param([(1.0, 1.1), (1.1, 1.0)] * 3, False, 3, id="now slower and now faster"),
        pytest.param([(1.0, 2.0)] * 6 + [(1.0, None)], False, 4, id="a trial failed"),
    ],
)
def test_an_experiment_passes_where_its_main_effects_are_decided(
    blocks: Sequence[tuple[float, float | None]],
    decided: bool,  # noqa: FBT001
    code: int,
) -> None:
    pairs = ({"precision=default": first, "precision=bf16": second} for first, second in blocks)
    record = _record(PRECISIONS, *pairs)

    assert (decided, code) == (is_decided(record), exit_code_of(record))


def test_two_blocks_that_scatter_widely_have_an_interval_without_end() -> None:
    factors = {**PRECISIONS_AND_SIZES, "workers": (0, 2)}
    record = synthetic_record(factors, noise=normal(0.5), done=2)

    assert math.inf == max(effect.high for effect in effects_of(record) if effect.high is not None)


def test_a_target_without_tensors_has_no_effect_on_their_peak() -> None:
    peaks = {"precision=default": 0, "precision=bf16": 0}

    assert () == effects_of(_record(PRECISIONS, peaks=peaks))


def test_a_variant_that_failed_later_is_left_out_where_others_remain() -> None:
    whole = _two_by_two(1.0, 4.0, 2.0, 2.0)
    rest = {**whole, "precision=bf16, batch_size=8": None}
    record = _record(PRECISIONS_AND_SIZES, whole, *[rest] * 6)
    main, simple = (
        _effect(effects_of(record), "main", "precision"),
        _effect(effects_of(record), "simple", "precision", batch_size=8),
    )

    assert pytest.approx(2.0) == main.value
    assert ("precision=bf16, batch_size=8",) == main.left_out
    assert (7, 1) == (main.blocks, simple.blocks)
    assert is_decided(record)


def _stopped_as_it_runs(whole: ExperimentRecord) -> ExperimentRecord:
    """Return what an experiment would have measured: blocks until a look decides all."""
    variants = len(whole.experiment.variants)
    for done in looks_of(whole.experiment):
        running = replace(whole, trials=whole.trials[: done * variants], stopped="")
        if is_decided(running):
            return replace(running, stopped="every main effect is decided")
    return whole


def _verdicts(noise: Noise, *, ratio: float = 1.0) -> list[Effect]:
    """Return the main effect of as many experiments in which bf16 truly takes ``ratio`` times as long."""
    found: list[Effect] = []
    for seed in range(EXPERIMENTS):
        whole = synthetic_record(
            PRECISIONS,
            sample_s=lambda levels: one_speed(levels) * (ratio if levels["precision"] == "bf16" else 1.0),
            noise=noise,
            done=20,
            seed=seed,
            accuracy=False,
            looked_at=False,
        )
        found += main_effects(effects_of(_stopped_as_it_runs(whole)))
    return found


@pytest.mark.parametrize(
    "noise", [normal(0.01), normal(0.03), heavy_tailed(0.01)], ids=["1 %", "3 %", "heavy"]
)
def test_identical_variants_are_not_distinguished(noise: Noise) -> None:
    verdicts = [effect.verdict for effect in _verdicts(noise)]

    assert 99 <= sum(verdict in {"UNCHANGED", "INCONCLUSIVE"} for verdict in verdicts)


@pytest.mark.parametrize(("verdict", "ratio"), [("REGRESSED", 1.1), ("IMPROVED", 1 / 1.1)])
def test_an_effect_of_ten_percent_is_found(verdict: str, ratio: float) -> None:
    effects = _verdicts(normal(0.01), ratio=ratio)
    covered = sum(effect.low <= ratio <= effect.high for effect in effects if effect.low and effect.high)

    assert 95 <= sum(verdict == effect.verdict for effect in effects)
    assert 95 <= covered


def test_a_block_that_contradicts_the_others_is_not_left_out() -> None:
    slower = {"precision=default": 1.0, "precision=bf16": 1.05}
    faster = {"precision=default": 1.05, "precision=bf16": 1.0}

    (effect,) = main_effects(effects_of(_record(PRECISIONS, *[slower] * 9, faster)))

    assert pytest.approx(1.05**0.8) == effect.value
    assert "INCONCLUSIVE" == effect.verdict


def test_all_intervals_of_an_experiment_hold_together() -> None:
    missed = 0
    for seed in range(EXPERIMENTS):
        record = synthetic_record(PRECISIONS_AND_SIZES, noise=normal(0.02), done=9, seed=seed, accuracy=False)
        times = [effect for effect in effects_of(record) if effect.response == SAMPLE_TIME]
        missed += any(not effect.low <= 1 <= effect.high for effect in times if effect.low and effect.high)

    assert 5 >= missed
