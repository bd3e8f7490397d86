"""Memory: of a loop by line and by phase, of an allocator's snapshot, and the difference of two."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass
from typing import Literal

_GIB = 1 << 30
# What a loop makes on first use, such as an optimizer's state, is there after this many steps; growth in each
# of at least this many others is no chance.
_STEPS_OF_SETUP = 2
_FEWEST_OF_GROWTH = 3


@dataclass(frozen=True, kw_only=True)
class LineMemory:
    """What one line allocated, in bytes: the storages of tensors, or Python's objects.

    ``allocated`` has the bytes of each step, freed ones too (unknown of Python's objects); ``alive`` those
    that were there at the end of each step. ``what`` is the operator that allocated most.
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
    """The memory of a loop by line, over ``steps`` steps (0: the whole run is one), in bytes."""

    steps: int
    lines: tuple[LineMemory, ...]
    peak: tuple[int, ...] = ()
    not_seen: str = ""

    @property
    def shows_growth(self) -> bool:
        """Whether there were enough steps to distinguish growth from chance."""
        return self.steps >= _STEPS_OF_SETUP + _FEWEST_OF_GROWTH


@dataclass(frozen=True, kw_only=True)
class PhaseMemory:
    """The peak bytes that an accelerator's allocator gave to tensors and reserved in one phase.

    ``unusable`` was free at its end in parts of segments; ``retries`` counts how often memory was given back
    first.
    """

    name: str
    allocated: int
    reserved: int
    unusable: int
    retries: int


@dataclass(frozen=True, kw_only=True)
class StackMemory:
    """The bytes of tensors by one stack of "file:line function", innermost first, if it was recorded."""

    device: int
    stack: tuple[str, ...]
    size: int
    blocks: int


@dataclass(frozen=True, kw_only=True)
class MemorySnapshot:
    """An allocator at one moment, in bytes: stacks, rounding, waiting, fragments and unused add up.

    ``stacks`` has the largest first. ``waiting`` is used by another stream, ``fragments`` are free parts of
    used segments, ``unused`` whole free segments. Peaks are per device while ``events`` were recorded.
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
        """Return whether it would fit into this many GiB; None where that depends on segments."""
        if self.peak_reserved <= gib * _GIB:
            return True
        return False if self.peak_allocated > gib * _GIB else None


@dataclass(frozen=True, kw_only=True)
class MemoryPart:
    """A part of what was reserved on both sides, in bytes and blocks; fragments have no stack."""

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
