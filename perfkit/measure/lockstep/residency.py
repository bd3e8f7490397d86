"""Whether both sides of a comparison have room on one device at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Residency = Literal["together", "by turns"]

# What a process takes besides its tensors: the driver's context, kernels and workspaces of libraries.
_CONTEXT_BYTES = 1 << 30
# Nearly full, an allocator gives memory back and asks again, which takes time of its own.
_KEPT_FREE = 0.1


@dataclass(frozen=True, kw_only=True)
class Room:
    """A device's memory in bytes: all of it, and what is free before either side has begun."""

    total: int
    free: int


def residency(room: Room, base_peak: int | None, head_peak: int | None) -> Residency:
    """Return whether base and head stay on a device together, and take turns by rounds.

    The peaks are what each side's allocator reserved at most in a launch of its own. Together they and two
    contexts have to leave a tenth of the device free; else each launch has the device to itself, and the
    launches of both sides alternate. A side whose peak is not known yet runs alone.
    """
    if base_peak is None or head_peak is None:
        return "by turns"
    needed = base_peak + head_peak + 2 * _CONTEXT_BYTES
    return "together" if needed <= room.free - _KEPT_FREE * room.total else "by turns"
