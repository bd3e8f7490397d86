"""Both sides stay on one device where there is room for them, by what they were measured to need."""

from __future__ import annotations

import pytest

from perfkit.model import Side
from perfkit.runner.agent.clock import DeviceMemory
from perfkit.runner.lockstep.residency import Room, effect_of, residency, why_alone

GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "base", "head", "decided"),
    [
        (80, 10, 10, "together"),
        (80, 35, 35, "together"),
        (80, 35, 36, "by turns"),
        (80, 60, 20, "by turns"),
        (40, 15, 16, "by turns"),
        (80, None, 10, "by turns"),
        (80, 10, None, "by turns"),
        (0, 0, 0, "by turns"),
    ],
)
def test_measured_peaks_decide(free: int, base: int | None, head: int | None, decided: str) -> None:
    room = Room(total=80 * GIB, free=free * GIB)
    peaks = [None if peak is None else peak * GIB for peak in (base, head)]

    assert decided == residency(room, *peaks)


def _held(peak: int, *, index: int = 0, free: int) -> DeviceMemory:
    """Return the memory of a side that reserves so many GiB of a device of 80, with so many free now."""
    return DeviceMemory(index=index, total=80 * GIB, free=free * GIB, reserved=peak * GIB, peak=peak * GIB)


@pytest.mark.parametrize(
    ("base", "head", "apart"),
    [
        ((_held(30, free=18),), (_held(30, free=18),), False),
        ((_held(38, free=2),), (_held(38, free=2),), True),
        # Somebody else has half of it.
        ((_held(20, free=4),), (_held(16, free=4),), True),
        # They are on two devices, and only one of them is nearly full.
        ((_held(75, free=4),), (_held(10, index=1, free=69),), True),
        ((_held(60, free=19),), (_held(60, index=1, free=19),), False),
        # A side that uses none is in nobody's way.
        ((_held(60, free=19),), (), False),
    ],
)
def test_what_both_reported_beside_one_another_decides(
    base: tuple[DeviceMemory, ...], head: tuple[DeviceMemory, ...], *, apart: bool
) -> None:
    memory: dict[Side, tuple[DeviceMemory, ...]] = {"base": base, "head": head}

    assert apart == (why_alone(memory) is not None)


def test_a_drift_is_not_taken_for_the_other_side() -> None:
    found = effect_of([1.0] * 8, [1.02] * 8, [1.0404] * 8)

    assert found.low < 0 < found.high
    assert (False, False) == (found.disturbs, found.is_small)


def test_the_effect_of_the_other_side_has_an_interval() -> None:
    steady = effect_of([1.0], [1.01], [1.0])
    assert (0.01, 0.01) == pytest.approx((steady.low, steady.high))
    assert effect_of([1.0] * 8, [1.01] * 8, [1.0] * 8).disturbs
    assert effect_of([1.0] * 8, [1.001] * 8, [1.0] * 8).is_small
    scattered = effect_of([1.0, 1.2] * 4, [1.05, 1.25] * 4, [1.0, 1.2] * 4)
    assert (False, False) == (scattered.disturbs, scattered.is_small)
