"""These builders make synthetic experiments, with injected effects and scatter drawn from a seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from perfkit.features.experiments.records import (
    Experiment,
    ExperimentRecord,
    Factor,
    Fingerprint,
    Level,
    Trial,
    Variant,
)
from perfkit.model import Status

Levels = Mapping[str, Level]
# Draws the logarithm of what one trial's time is multiplied with.
Noise = Callable[[np.random.Generator], float]
STOPPED = "every main effect is decided"
PRECISIONS: Mapping[str, Sequence[Level]] = {"precision": ("default", "bf16")}
PRECISIONS_AND_SIZES: Mapping[str, Sequence[Level]] = {**PRECISIONS, "batch_size": (2, 8)}
AUGMENTATIONS: Mapping[str, Sequence[Level]] = {"augmentation": ("lazy", "cached")}
_SAMPLES = 2000
_SAMPLES_PER_STEP = 20
_PEAK = 369_454_080


def normal(sd: float) -> Noise:
    """Times that scatter normally on the scale of logarithms."""
    return lambda random: random.normal(0, sd)


def heavy_tailed(scale: float) -> Noise:
    """Times of which some lie far off, both ways: Student's t of three degrees."""
    return lambda random: scale * random.standard_t(3)


def build_experiment(factors: Mapping[str, Sequence[Level]], *, blocks: int = 20) -> Experiment:
    """Return an experiment on a small target, judged at a margin of 2 % and an alpha of 5 %."""
    return Experiment(
        name="train-images",
        target="demo.training:train",
        factors=tuple(Factor(name=name, levels=tuple(levels)) for name, levels in factors.items()),
        fixed={"epochs": 3, "device": "cpu"},
        returned={"accuracy": "test_accuracy"},
        blocks=blocks,
    )


def one_speed(_: Levels) -> float:
    """Return a time per sample that no factor changes, in seconds."""
    return 0.0269


def bf16_is_faster(levels: Levels) -> float:
    """Return a time per sample that bf16 lowers by a quarter, in seconds."""
    return 0.75 * one_speed(levels) if levels.get("precision") == "bf16" else one_speed(levels)


def bf16_pays_from_four(levels: Levels) -> float:
    """Return a time per sample that bf16 raises by a quarter at 2 samples and lowers as much at 8."""
    size = float(levels["batch_size"])
    gain = math.exp(math.log(1.25) * math.log2(4 / size)) if levels["precision"] == "bf16" else 1.0
    return gain * one_speed(levels) * math.exp(-0.3 * math.log(size))


def synthetic_record(
    factors: Mapping[str, Sequence[Level]],
    *,
    sample_s: Callable[[Levels], float] = one_speed,
    noise: Noise | None = None,
    done: int = 9,
    blocks: int = 20,
    seed: int = 0,
    failed: Mapping[str, tuple[Status, str]] | None = None,
    accuracy: bool = True,
    looked_at: bool = True,
    mistakes: tuple[str, ...] = (),
) -> ExperimentRecord:
    """Return ``done`` blocks of an experiment; ``failed`` are variants that did so in their first trial.

    ``sample_s`` gives the seconds per sample that levels truly take. A variant of bf16 needs three quarters
    of the tensors' bytes, a cached one nine times as many of the host's.
    """
    experiment = build_experiment(factors, blocks=blocks)
    random = np.random.default_rng(seed)
    failed, noise = failed or {}, noise or normal(0.01)
    trials = []
    for block in range(done):
        for order, place in enumerate(random.permutation(len(experiment.variants))):
            variant = experiment.variants[place]
            trial = Trial(variant=variant.name, block=block, order=order, seed=1000 + block)
            if variant.name not in failed:
                seconds = sample_s(variant.levels) * math.exp(noise(random))
                responses = _responses(variant.levels, seconds, random, accuracy=accuracy)
                trials.append(replace(trial, responses=responses))
            elif block == 0:
                status, message = failed[variant.name]
                trials.append(replace(trial, status=status, message=message))
    seen = [variant for variant in experiment.variants if variant.name not in failed] if looked_at else []
    return ExperimentRecord(
        experiment=experiment,
        fingerprints={variant.name: _fingerprint(variant, mistakes) for variant in seen},
        trials=tuple(trials),
        stopped=STOPPED,
    )


def _responses(
    levels: Levels, seconds: float, random: np.random.Generator, *, accuracy: bool
) -> dict[str, float]:
    host = (9 if levels.get("augmentation") == "cached" else 1) * 120e6 * random.normal(1, 0.004)
    measured = {
        "total_time": seconds * _SAMPLES + 0.4,
        "step_time": seconds * _SAMPLES_PER_STEP,
        "sample_time": seconds,
        "host_peak": round(host),
    }
    return measured | ({"accuracy": 0.94 + random.normal(0, 0.008)} if accuracy else {})


def _fingerprint(variant: Variant, mistakes: tuple[str, ...]) -> Fingerprint:
    half = variant.levels.get("precision") == "bf16"
    return Fingerprint(
        operators=1480 if half else 1210,
        half={"bfloat16": 320} if half else {},
        tensor_peak=_PEAK * 3 // 4 if half else _PEAK,
        settings={"threads": "2"},
        steps=5,
        mistakes=mistakes,
    )
