"""Memory: of a loop by line and by phase, of an allocator's snapshot, and the difference of two."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass
from typing import Literal

_GIB = 1 << 30
# What a loop makes on first use, such as an optimizer's state, is there after so many steps; growth in each
# of at least so many others is no chance.
_STEPS_OF_SETUP = 2
_FEWEST_OF_GROWTH = 3


@dataclass(frozen=True, kw_only=True)
class LineMemory:
    """What one line allocated: the storages of tensors, or Python's objects.

    ``place`` is the innermost line of the user's own code, or of a library where none was on the stack.
    ``allocated`` has the bytes of each step, freed ones too; it is empty for Python's objects, of which only
    living ones are known. ``alive`` has the bytes that were there at the end of each step and had been
    allocated since the first one began. ``what`` is the operator that allocated most.
    """

    kind: Literal["tensors", "Python"]
    place: str
    alive: tuple[int, ...]
    allocated: tuple[int, ...] = ()
    what: str = ""
    text: str = ""

    @property
    def step_bytes(self) -> float | None:
        """The bytes allocated in a step, as the median of those after the set-up; None where not known."""
        return (
            statistics.median(self.allocated[_STEPS_OF_SETUP:] or self.allocated) if self.allocated else None
        )

    @property
    def stays_bytes(self) -> int:
        """The bytes alive after the last step."""
        return self.alive[-1]

    @property
    def growth_bytes(self) -> float:
        """The bytes by which it grew in a step, on average of those after the set-up; 0 without any."""
        later = self.alive[_STEPS_OF_SETUP - 1 :]
        return (later[-1] - later[0]) / (len(later) - 1) if len(later) > 1 else 0.0

    @property
    def leaks(self) -> bool:
        """Whether it grew in each step after the set-up, and there were enough of them to be no chance."""
        later = self.alive[_STEPS_OF_SETUP - 1 :]
        moves = [after - before for before, after in itertools.pairwise(later)]
        return len(moves) >= _FEWEST_OF_GROWTH and all(move > 0 for move in moves)


@dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """The memory of a loop by line, over ``steps`` steps (0: no step was seen, and the whole run is one).

    ``peak`` has the most bytes that Python's objects took in each step. ``not_seen`` names what is missing.
    """

    steps: int
    lines: tuple[LineMemory, ...]
    peak: tuple[int, ...] = ()
    not_seen: str = ""

    @property
    def tells_growth(self) -> bool:
        """Whether there were enough steps to tell growth from chance."""
        return self.steps >= _STEPS_OF_SETUP + _FEWEST_OF_GROWTH


@dataclass(frozen=True, kw_only=True)
class PhaseMemory:
    """The most bytes that an accelerator's allocator gave to tensors and reserved in one phase of all steps.

    ``unusable`` is what was free at its end in parts of segments, which nothing larger can use; ``retries``
    how often the allocator had to give memory back first.
    """

    name: str
    allocated: int
    reserved: int
    unusable: int
    retries: int


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
        """Return whether what ran would fit into so many GiB of a device; None where it depends.

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
