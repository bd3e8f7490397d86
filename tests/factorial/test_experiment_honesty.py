"""A variant must do what its name says."""

from __future__ import annotations

import pytest

from perfkit.features.experiments.honesty import broken_cast, broken_promises, leaked_flags
from perfkit.features.experiments.records import Experiment, Factor, Fingerprint, Level, Variant


def _experiment(*levels: Level, factor: str = "precision") -> Experiment:
    return Experiment(name="one", target="m:f", factors=(Factor(name=factor, levels=levels),))


def _print(half: dict[str, int], **settings: str) -> Fingerprint:
    return Fingerprint(operators=10, half=half, tensor_peak=1, settings=settings, steps=5)


@pytest.mark.parametrize(
    ("half", "level"),
    [({"bfloat16": 4}, "bf16"), ({"float16": 4}, "fp16"), ({"float16": 1}, "amp"), ({"bfloat16": 1}, True)],
)
def test_what_did_as_it_says_passes(half: dict[str, int], level: Level) -> None:
    """The type that was named, or either for a mere switch."""
    experiment = _experiment("default", level)
    reference, mixed = (variant.name for variant in experiment.variants)

    assert [] == list(broken_promises(experiment, {reference: _print({}), mixed: _print(half)}))


@pytest.mark.parametrize(
    ("default", "mixed", "said"),
    [
        ({}, {}, '"precision=bf16" ran no operator in half precision'),
        ({}, {"float16": 3}, '"precision=bf16" ran 3 operators in float16'),
        ({"bfloat16": 3}, {"bfloat16": 3}, '"precision=default" ran 3 operators in bfloat16'),
        ({"bfloat16": 3}, {}, "the labels are swapped"),
    ],
)
def test_what_did_not_is_named(default: dict[str, int], mixed: dict[str, int], said: str) -> None:
    """With what ran instead."""
    found = {"precision=default": _print(default), "precision=bf16": _print(mixed)}

    (problem,) = broken_promises(_experiment("default", "bf16"), found)

    assert said in problem


def test_a_leaked_flag_is_named() -> None:
    """Unless a factor is about it."""
    settings = {
        "precision=default": {"cudnn_benchmark": "False", "threads": "2"},
        "precision=bf16": {"cudnn_benchmark": "True", "threads": "2"},
    }

    (problem,) = leaked_flags(_experiment("default", "bf16"), settings)

    assert 'cudnn_benchmark is False in "precision=default" and True in "precision=bf16"' in problem
    assert [] == list(leaked_flags(_experiment(False, True, factor="cudnn_benchmark"), settings))  # noqa: FBT003


def test_a_factor_of_something_else_promises_no_precision() -> None:
    """Whatever its levels are called."""
    experiment = _experiment("default", "mixed", factor="sampling")
    found = {variant.name: _print({"float16": 2}) for variant in experiment.variants}

    assert [] == list(broken_promises(experiment, found))


@pytest.mark.parametrize(
    ("level", "casts", "wrong"),
    [
        ("default", (), False),
        ("default", ("bfloat16",), True),
        ("bf16", ("bfloat16",), False),
        ("bf16", ("float16",), True),
        ("bf16", (), False),
        ("amp", ("float16",), False),
    ],
)
def test_a_timed_trial_is_watched_too(level: str, casts: tuple[str, ...], wrong: bool) -> None:  # noqa: FBT001
    """By the automatic casting that its first modules saw."""
    said = broken_cast(Variant(levels={"precision": level}), casts)

    assert wrong == (said is not None)
