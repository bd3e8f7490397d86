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
    """One part of a whole, with its own parts, the most moved first; ``was`` is its name on base."""

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
    """Two profiles compared per ``unit`` of equal work; ``ratio`` is of steps without a profiler."""

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
    """A function along one path of callers: ``amount`` with all that it called, ``own`` without.

    ``own`` includes calls too small for a frame; ``was`` is its name on base.
    """

    name: str
    place: str
    amount: Amount
    own: Amount
    was: str = ""
    inner: tuple[FlameFrame, ...] = ()
