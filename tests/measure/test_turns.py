"""A launch keeps the rounds that its sides ran, in pairs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from perfkit.model import SIDES, Side
from perfkit.runner.agent.clock import DeviceTimes
from perfkit.runner.lockstep import turns
from perfkit.runner.lockstep.runner import Runner
from perfkit.runner.lockstep.turns import plan_loops

PLAN = plan_loops(1e-5, launch_s=0.1)


def _runner(side: Side, values: list[float], typical: list[float]) -> Runner:
    runner = Runner(SimpleNamespace(side=side), "test_it", limit_s=1.0)  # type: ignore[arg-type]
    runner.values, runner.typical = values, typical
    return runner


@pytest.mark.parametrize(
    ("base_typical", "head_typical", "kept"),
    [
        ([1.0, 2.0], [1.5, 2.5], ((1.0, 2.0), (1.5, 2.5))),
        ([1.0, 2.0], [], ((), ())),
        ([1.0, 2.0], [1.5], ((), ())),
        ([], [], ((), ())),
    ],
)
def test_typical_times_are_kept_where_every_round_has_them(
    base_typical: list[float], head_typical: list[float], kept: tuple[tuple[float, ...], tuple[float, ...]]
) -> None:
    values = {"base": [1.2, 2.2], "head": [1.7, 2.7]}
    runners = {
        side: _runner(side, values[side], typical)
        for side, typical in zip(SIDES, (base_typical, head_typical), strict=True)
    }

    timing = turns.timing_of(runners, PLAN)

    assert kept == (timing.base_typical_s, timing.head_typical_s)
    assert ((1.2, 2.2), (1.7, 2.7)) == (timing.base_s, timing.head_s)


def test_times_of_the_device_are_kept_where_every_round_has_them() -> None:
    runners = {side: _runner(side, [1.0, 2.0], []) for side in SIDES}
    runners["base"].host_s, runners["base"].device_s = [0.1, 0.2], [0.9, 1.9]
    runners["head"].host_s, runners["head"].marks = [0.2], {"launch-bound"}

    timing = turns.timing_of(runners, PLAN)

    assert {
        "base": DeviceTimes(host_s=(0.1, 0.2), device_s=(0.9, 1.9)),
        "head": DeviceTimes(marks=("launch-bound",)),
    } == timing.devices


def test_without_an_accelerator_a_launch_has_no_device_times() -> None:
    assert {} == turns.timing_of({side: _runner(side, [1.0], []) for side in SIDES}, PLAN).devices


@pytest.mark.parametrize(
    ("waited_s", "rounds_s", "seconds"),
    [
        ((), (), 0.0),
        ((0.0, 0.0, 3.0, 0.001), (0.005, 0.005, 3.005, 0.006), 3.0),
        ((0.004, 0.004, 0.1, 0.15), (0.005, 0.005, 0.101, 0.151), 0.0),
        ((2.0, 2.5, 3.0), (2.1, 2.6, 3.1), 0.0),
        ((2.0, 2.0, 5.5), (2.1, 2.1, 5.6), 3.5),
    ],
)
def test_a_round_that_stands_still_is_distinguished_from_one_that_waits(
    waited_s: tuple[float, ...], rounds_s: tuple[float, ...], seconds: float
) -> None:
    assert seconds == pytest.approx(turns.stood_still(waited_s, rounds_s), abs=0.01)
