"""Sequential decisions on simulated and recorded noise err rarely, and detect changes often enough."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from noise import (
    FOLLOWED,
    LAUNCHES_PER_GENERATION,
    POLICY,
    RECORDED_FILE,
    UNDECIDED,
    FloatArray,
    Model,
    autocorrelated,
    bimodal,
    bursts,
    decide,
    drift,
    load_recorded,
    lognormal,
    normal,
    resampled,
    shared_bias,
    student,
    two_state,
)

from perfkit.stats.interval import location, lower_bound, upper_bound

GATES = 4000
MANY_GATES = 25_000  # where the bound lies near alpha
FEW_GATES = 1500  # where a share is stated, not alpha
RECORDED_GATES = 2000
MODELS: dict[str, Model] = {
    "normal": normal(0.015),
    "3 degrees": student(3, 0.009),
    "2 degrees": student(2, 0.008),
    "lognormal sides": lognormal(0.006),
    "bursts in 3 %": bursts(0.03, 0.015),
    "bursts in 10 %": bursts(0.10, 0.015),
    "bimodal sides": bimodal(0.04, 0.003),
    "one side slow by 3 %": two_state(0.03, 0.003),
    "one side slow by 5 %": two_state(0.05, 0.003),
    "drift": drift(0.015),
    "autocorrelated": autocorrelated(0.015, 0.3),
    "generations differ": shared_bias(0.01, 0.007),
}
# What the interval may miss, in parts of alpha: it approximates, and not all launches are independent.
MISSED = dict.fromkeys(MODELS, 1.25)
MISSED |= {"bimodal sides": 2.0, "autocorrelated": 12.0, "generations differ": 3.0}
EACH = {name: LAUNCHES_PER_GENERATION if name == "generations differ" else 1 for name in MODELS}
SHORT = replace(POLICY, looks=POLICY.looks[:7], shares=POLICY.shares[:7])
# `make slow` has these on the margin, where many gates are needed, and the larger margin with identical code;
# the usual run has normal launches on the margin, and all models with identical code.
SLOW = {
    "2 degrees",
    "drift",
    "generations differ",
    "one side slow by 5 %",
    "bursts in 3 %",
    "3 degrees",
    "lognormal sides",
    "bursts in 10 %",
    "bimodal sides",
    "one side slow by 3 %",
    "autocorrelated",
}
MARGINS = [0.01, pytest.param(0.02, marks=pytest.mark.slow)]
SEEING = ["normal", "3 degrees", "2 degrees", "lognormal sides", "bursts in 3 %"]


def _drawn(name: str, ratio: float = 1.0, *, gates: int = GATES) -> FloatArray:
    shape = (gates * POLICY.family, FOLLOWED)
    return MODELS[name](np.random.default_rng(20), shape) + math.log(ratio)


def _gates_with(hit: npt.NDArray[np.bool_]) -> int:
    return int(hit.reshape(-1, POLICY.family).any(axis=1).sum())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("margin", MARGINS)
def test_identical_code_is_not_accused(name: str, margin: float) -> None:
    found = decide(_drawn(name), margin=margin, each=EACH[name])

    alarms = _gates_with((found.regressed > 0) | (found.improved > 0))

    assert upper_bound(alarms, GATES) < POLICY.alpha


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in MODELS]
)
def test_an_effect_on_the_margin_stays_undecided(name: str) -> None:
    found = decide(_drawn(name, 1.02, gates=MANY_GATES), margin=0.02, truth=1.02, each=EACH[name])

    wrong = _gates_with((found.regressed > 0) | (found.improved > 0) | (found.unchanged > 0))

    assert upper_bound(wrong, MANY_GATES) < MISSED[name] * POLICY.alpha
    assert upper_bound(_gates_with(found.missed), MANY_GATES) < MISSED[name] * POLICY.alpha


@pytest.mark.parametrize("name", SEEING)
@pytest.mark.parametrize(("ratio", "margin"), [(1.03, 0.01), (1.05, 0.02)])
def test_a_slowdown_is_seen_within_34_launches(name: str, ratio: float, margin: float) -> None:
    found = decide(_drawn(name, ratio, gates=FEW_GATES), margin=margin)

    seen = int(((0 < found.regressed) & (found.regressed <= 34)).sum())

    assert lower_bound(seen, len(found.regressed)) > 0.9


@pytest.mark.parametrize("name", SEEING)
def test_identical_code_is_called_unchanged_within_45_launches(name: str) -> None:
    found = decide(_drawn(name, gates=FEW_GATES), margin=0.02)

    cleared = int(((0 < found.unchanged) & (found.unchanged <= 45)).sum())

    assert lower_bound(cleared, len(found.unchanged)) > 0.9


def test_praise_is_as_sure_as_blame() -> None:
    faster = decide(_drawn("normal", 1 / 1.05), margin=0.02)
    slower = decide(_drawn("normal", 1.05), margin=0.02)

    assert pytest.approx((slower.regressed > 0).mean(), abs=0.01) == (faster.improved > 0).mean()
    assert 0 == (faster.regressed > 0).sum() == (slower.improved > 0).sum()


def _from_rounds(ratio: float, series: int, launches: int) -> FloatArray:
    random = np.random.default_rng(21)
    shape = (series * launches, 20)
    machine = random.normal(0, 0.02, (shape[0], 1)) * np.arange(shape[1])
    base, head = (
        machine + autocorrelated(0.03, 0.5)(random, shape) + 0.7 * (random.random(shape) < 0.02)
        for _ in range(2)
    )
    pairs = zip(np.exp(base), ratio * np.exp(head), strict=True)
    return np.array([location(*pair) for pair in pairs]).reshape(series, launches)


def test_drifting_rounds_neither_accuse_nor_hide() -> None:
    series, last = 300, SHORT.looks[-1]
    alike = decide(_from_rounds(1.0, series, last), margin=0.02, policy=SHORT)
    slower = decide(_from_rounds(1.05, series, last), margin=0.02, policy=SHORT)

    alarms = int(((alike.regressed > 0) | (alike.improved > 0)).sum())
    assert upper_bound(alarms, series) < POLICY.alpha
    assert lower_bound(int((slower.regressed > 0).sum()), series) > 0.9


RECORDED = load_recorded(RECORDED_FILE)
RECORDINGS = tuple(dict.fromkeys(name.partition("/")[0] for name in RECORDED))
QUIET = tuple(recording for recording in RECORDINGS if recording.startswith("quiet"))


def _drawn_again(recording: str, *, neighbours: int = 1, dose: float = 1.0) -> FloatArray:
    random = np.random.default_rng(22)
    shape = (RECORDED_GATES, FOLLOWED)
    together = [launches for name, launches in RECORDED.items() if name.startswith(recording + "/")]
    drawn = [resampled(one, neighbours=neighbours, dose=dose)(random, shape) for one in together]
    return np.stack(drawn, axis=1).reshape(-1, shape[1])


def test_each_recording_holds_a_family() -> None:
    assert [POLICY.family] * 7 == [
        sum(name.startswith(recording + "/") for name in RECORDED) for recording in RECORDINGS
    ]
    assert 3 == len(QUIET)


@pytest.mark.parametrize("recording", RECORDINGS)
@pytest.mark.parametrize("neighbours", [1, 8])
@pytest.mark.parametrize("margin", MARGINS)
def test_recorded_identical_code_is_not_accused(recording: str, neighbours: int, margin: float) -> None:
    found = decide(_drawn_again(recording, neighbours=neighbours), margin=margin)

    alarms = _gates_with((found.regressed > 0) | (found.improved > 0))

    assert upper_bound(alarms, RECORDED_GATES) < POLICY.alpha


@pytest.mark.parametrize(
    ("dose", "margin", "launches", "share"),
    [(1.03, 0.01, 34, 0.73), (1.03, 0.01, 75, 0.87), (1.05, 0.02, 34, 0.84), (1.05, 0.02, 75, 0.93)],
)
def test_a_dose_in_recorded_launches_is_seen(dose: float, margin: float, launches: int, share: float) -> None:
    found = [decide(_drawn_again(recording, dose=dose), margin=margin).regressed for recording in QUIET]
    regressed = np.concatenate(found)

    seen = int(((0 < regressed) & (regressed <= launches)).sum())

    assert lower_bound(seen, regressed.size) > share


@pytest.mark.parametrize(("margin", "share"), [(0.01, 0.45), (0.02, 0.16)])
def test_recorded_identical_code_left_open(margin: float, share: float) -> None:
    found = [decide(_drawn_again(recording), margin=margin) for recording in QUIET]
    undecided = np.concatenate([one.regressed + one.improved + one.unchanged == UNDECIDED for one in found])

    assert upper_bound(int(undecided.sum()), undecided.size) < share
