"""What differs between two profiles, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perfkit.model.profiles import RatioInterval

# Both profiles are divided by the number of these, so that they describe equal work.
Unit = Literal["step", "sample", "whole run", "call"]
PartKind = Literal["own code", "library", "wait", "phase", "operator", "kernel", "worker"]


@dataclass(frozen=True, kw_only=True)
class Amount:
    """The time of something on both sides in seconds per unit of work, and its calls per unit where known."""

    base_s: float
    head_s: float
    base_calls: float | None = None
    head_calls: float | None = None

    @property
    def moved_s(self) -> float:
        """Head less base."""
        return self.head_s - self.base_s


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a whole: what it is, its place in the code, and its own parts, the most moved first.

    ``was`` is its name on the base side where that differs.
    """

    name: str
    kind: PartKind
    amount: Amount
    place: str = ""
    was: str = ""
    through: tuple[Part, ...] = ()


def most_moved_first(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts sorted by how far they moved, in either direction."""
    return tuple(sorted(parts, key=lambda part: -abs(part.amount.moved_s)))


@dataclass(frozen=True, kw_only=True)
class Section:
    """One way to divide a step, or a whole run: parts that add up to it together with the remainder."""

    title: str
    whole: Amount
    parts: tuple[Part, ...]

    @property
    def remainder_s(self) -> float:
        """The seconds of the whole's move that no part explains."""
        return self.whole.moved_s - sum(part.amount.moved_s for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two profiles compared per ``unit`` of equal work; ``findings`` are sentences about what matters most.

    ``ratio`` is head / base of steps without a profiler, where both sides were measured in turns.
    """

    base: str
    head: str
    unit: Unit
    whole: Amount
    sections: tuple[Section, ...]
    findings: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    ratio: RatioInterval | None = None


@dataclass(frozen=True, kw_only=True)
class FlameFrame:
    """A function as it was called along one path of callers, and what it called in turn.

    ``amount`` is its time with all that it called, ``own`` the part spent in itself and in calls too small
    for a frame of their own: what ``inner`` and ``own`` add up to is ``amount``, on both sides. ``was`` is
    its name on the base side where that differs.
    """

    name: str
    place: str
    amount: Amount
    own: Amount
    was: str = ""
    inner: tuple[FlameFrame, ...] = ()
