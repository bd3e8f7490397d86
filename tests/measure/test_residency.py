"""Both sides stay on one device where there is room for them, by what they were measured to need."""

from __future__ import annotations

import pytest

from perfkit.measure.lockstep.residency import Room, residency

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
    """Two peaks, two contexts and a tenth of the device to spare; what is not known yet runs alone."""
    room = Room(total=80 * GIB, free=free * GIB)
    peaks = [None if peak is None else peak * GIB for peak in (base, head)]

    assert decided == residency(room, *peaks)
