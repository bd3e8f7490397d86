"""A trick at one size, and whether both of its sides do the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TrickCase:
    """One trick at one size; the other fields are what a report says of it."""

    trick: str
    size: int
    title: str
    size_means: str

    @property
    def name(self) -> str:
        """What it is called in tables: "channels_last[16]"."""
        return f"{self.trick}[{self.size}]"


@dataclass(frozen=True, kw_only=True)
class Equivalence:
    """Whether both sides give the same; ``largest`` is the largest difference as a share of what is allowed.

    Where nothing may differ, it is 0 or infinite. ``problem`` says why it could not be checked.
    """

    equal: bool
    largest: float | None = None
    problem: str = ""
