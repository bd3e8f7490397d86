"""A launch that a throttled device spoilt is kept apart and made once more."""

from __future__ import annotations

import itertools

import pytest

from perfkit.gating.run import unthrottled
from perfkit.runner.lockstep.launch import Failure, LaunchRecord
from perfkit.runner.machine.facts import DeviceState

COOL = DeviceState(index=0, temperature_c=40)
HOT = DeviceState(index=0, temperature_c=90, reasons=("too hot for the driver",))


def _launch(number: int, *, failures: tuple[Failure, ...] = (), marks: tuple[str, ...] = ()) -> LaunchRecord:
    record = LaunchRecord(
        timings={}, failures=failures, reports={}, seconds={"test_a": float(number)}, marks=marks
    )
    aside = (record,) if marks else ()
    return LaunchRecord(
        timings={}, failures=failures, reports={}, seconds={"test_a": float(number)}, set_aside=aside
    )


@pytest.mark.parametrize(
    ("after", "counts", "spoilt", "marks"),
    [
        ([COOL], 1.0, [], ()),
        ([HOT, COOL], 2.0, [1.0], ()),
        ([HOT, HOT, COOL], 3.0, [1.0, 2.0], ()),
        ([HOT, HOT, HOT, COOL], 3.0, [1.0, 2.0], ("throttled",)),
    ],
)
def test_a_throttled_launch_is_repeated_twice_at_most(
    after: list[DeviceState], counts: float, spoilt: list[float], marks: tuple[str, ...]
) -> None:
    numbers, states = itertools.count(1), iter([state for end in after for state in (COOL, end)])

    record = unthrottled(lambda: _launch(next(numbers)), lambda: (next(states),))

    assert (counts, marks) == (record.seconds["test_a"], record.marks)
    assert spoilt == [one.seconds["test_a"] for one in record.set_aside]
    assert all(one.marks == ("throttled",) for one in record.set_aside)
    assert "40" == record.facts["gpu0_temperature_c_before"]


def test_what_the_launches_set_aside_is_kept_as_well() -> None:
    numbers, states = itertools.count(1), iter([COOL, HOT, COOL, COOL])

    record = unthrottled(
        lambda: _launch(next(numbers), marks=("no room for both sides",)), lambda: (next(states),)
    )

    assert [(1.0, "no room for both sides"), (1.0, "throttled"), (2.0, "no room for both sides")] == [
        (one.seconds["test_a"], *one.marks) for one in record.set_aside
    ]
    assert all(not one.set_aside for one in record.set_aside)


def test_a_failure_is_not_tried_again() -> None:
    failure = Failure(node="test_a", side="head", status="error", message="ValueError")
    numbers = itertools.count(1)

    record = unthrottled(lambda: _launch(next(numbers), failures=(failure,)), lambda: (HOT,))

    assert (2, ("throttled",)) == (next(numbers), record.marks)


def test_without_devices_a_launch_is_what_it_was() -> None:
    record = unthrottled(lambda: _launch(1), tuple)

    assert ({}, (), ()) == (record.facts, record.marks, record.set_aside)
