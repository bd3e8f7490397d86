"""What differs between two profiles, part by part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from perfkit.records.profiles import RatioInterval

# What both profiles are divided by, so that they are of equal work.
Unit = Literal["step", "sample", "whole run", "call"]
PartKind = Literal["own code", "library", "wait", "phase", "operator", "kernel", "worker"]


@dataclass(frozen=True, kw_only=True)
class Amount:
    """Something on both sides, each per unit of work: seconds, and how often it was called where known."""

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
    """One part of a whole: what it is, where it stands, and what it is made of, the most moved first.

    ``was`` is its name on the base side where that was another one.
    """

    name: str
    kind: PartKind
    amount: Amount
    place: str = ""
    was: str = ""
    through: tuple[Part, ...] = ()


def most_moved_first(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return parts by how far they moved, in whichever direction."""
    return tuple(sorted(parts, key=lambda part: -abs(part.amount.moved_s)))


@dataclass(frozen=True, kw_only=True)
class Section:
    """One way to divide a step, or a whole run: parts that add up to it together with the remainder."""

    title: str
    whole: Amount
    parts: tuple[Part, ...]

    @property
    def remainder_s(self) -> float:
        """What of the whole's move no part explains."""
        return self.whole.moved_s - sum(part.amount.moved_s for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two profiles side by side, per ``unit`` of equal work, and in sentences what matters most.

    ``ratio`` is head / base of clean steps by turns, where both sides were measured together.
    """

    base: str
    head: str
    unit: Unit
    whole: Amount
    sections: tuple[Section, ...]
    findings: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    ratio: RatioInterval | None = None
