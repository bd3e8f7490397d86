"""What long work calls in order to report its progress; the views implement it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perfkit.model.comparisons import Comparison


class Log(Protocol):
    """Receives sentences on what is done."""

    def info(self, text: str) -> None:
        """Report a stage that begins, or the result of one."""


class Progress(Log, Protocol):
    """Receives sentences on what is done, and the share that is done."""

    def advance(self, share: float) -> None:
        """Report which share of the work is done, from 0 to 1."""


class ComparisonProgress(Log, Protocol):
    """Receives the state of a comparison, between launches only: nothing may run while something is timed."""

    def begin(self, title: str) -> None:
        """Report what is compared."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Report the benchmarks, the seconds passed, and those left of the budget (None without one)."""


class Quiet:
    """Receives the state of a comparison and shows nothing."""

    def begin(self, title: str) -> None:
        """Pass nothing on."""

    def info(self, text: str) -> None:
        """Pass nothing on."""

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Pass nothing on."""
