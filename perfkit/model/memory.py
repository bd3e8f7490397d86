"""What an accelerator's allocator held, by the stacks that asked for it, and what differs between two."""

from __future__ import annotations

from dataclasses import dataclass

_GIB = 1 << 30


@dataclass(frozen=True, kw_only=True)
class StackMemory:
    """The bytes that tensors hold by one stack, which names places as "file:line function", innermost first.

    It is empty where the allocator's history was not recorded.
    """

    device: int
    stack: tuple[str, ...]
    size: int
    blocks: int


@dataclass(frozen=True, kw_only=True)
class MemorySnapshot:
    """An allocator at one moment, in bytes; its parts add up to ``reserved``.

    Attributes:
        name: The file's name.
        reserved: What the allocator has from the devices.
        segments: How many pieces it has it in.
        stacks: What tensors asked for, by who asked, the largest first.
        rounding: What tensors got beyond that.
        waiting: What waits for another stream before it can be used again.
        fragments: What is free in segments of which a part is in use, so that it cannot be given back.
        unused: What is free in whole segments.
        largest_free: The largest free block: no tensor above it fits without another segment.
        peak_reserved: The most that was reserved on one device while history was recorded, and now.
        peak_allocated: The most that tensors had on one device meanwhile, rounding included.
        events: How many events of the history there are; without any the peaks are those of the moment.
    """

    name: str
    reserved: int
    segments: int
    stacks: tuple[StackMemory, ...]
    rounding: int
    waiting: int
    fragments: int
    unused: int
    largest_free: int
    peak_reserved: int
    peak_allocated: int
    events: int

    @property
    def requested(self) -> int:
        """What all tensors together asked for."""
        return sum(one.size for one in self.stacks)

    def fits(self, gib: float) -> bool | None:
        """Tell whether what ran would fit into so many GiB of a device; None where it depends.

        It did not need more than was reserved. It cannot do with less than tensors had at their peak. In
        between it depends on how the allocator cuts segments.
        """
        if self.peak_reserved <= gib * _GIB:
            return True
        return False if self.peak_allocated > gib * _GIB else None


@dataclass(frozen=True, kw_only=True)
class MemoryPart:
    """A part of what was reserved on both sides, in bytes, and how many blocks.

    ``place`` is the innermost line of its stack that is in no library. ``stack`` is empty for what no stack
    asked for, such as fragments.
    """

    name: str
    base: int
    head: int
    base_blocks: int | None = None
    head_blocks: int | None = None
    place: str = ""
    stack: tuple[str, ...] = ()

    @property
    def moved(self) -> int:
        """Head less base."""
        return self.head - self.base


@dataclass(frozen=True, kw_only=True)
class MemoryDifference:
    """Two snapshots compared: ``parts``, the most moved first, add up to ``whole``."""

    base: str
    head: str
    whole: MemoryPart
    parts: tuple[MemoryPart, ...]
    base_peak: int
    head_peak: int
