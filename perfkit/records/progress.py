"""Who is told how long work stands: the views implement it, and everything that takes long calls it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perfkit.records.comparisons import Comparison


class Voice(Protocol):
    """Is told what happens."""

    def say(self, text: str) -> None:
        """Say which stage begins, or what came of one."""


class Progress(Voice, Protocol):
    """Is told what happens, and how much of it is done."""

    def tell(self, share: float) -> None:
        """Say which share of the work is done, from 0 to 1."""


class ComparisonProgress(Voice, Protocol):
    """Is told how a comparison stands, between launches only: nothing may run while something is timed."""

    def begin(self, title: str) -> None:
        """Say what is compared."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Say how the benchmarks stand, and how many seconds are left of the budget."""


class Quiet:
    """Is told how a comparison stands, and passes nothing on."""

    def begin(self, title: str) -> None:
        """Pass nothing on."""

    def say(self, text: str) -> None:
        """Pass nothing on."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Pass nothing on."""
