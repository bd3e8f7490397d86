"""What was counted, where it came from, and what could not be counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A part of a count: what it is, such as "aten::mm", and the own line or function that it comes from.

    ``place`` is "" where no own line is on the stack; ``text`` is the line itself, by which it is known when
    its number has changed.
    """

    what: str
    place: str
    amount: float
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Count:
    """A metric's value in each counted iteration, and the causes of the last one, largest first."""

    metric: str
    unit: str
    values: tuple[float, ...]
    causes: tuple[Cause, ...]

    @property
    def exact(self) -> bool:
        """Tell whether the count repeated to the digit."""
        return len(self.values) > 1 and len(set(self.values)) == 1


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Everything counted, and why the other metrics were not.

    ``training`` tells that a backward pass and an optimizer's step were among what was counted.
    """

    counts: tuple[Count, ...]
    not_counted: Mapping[str, str]
    training: bool = False


def as_message(counts: Counts) -> dict[str, object]:
    """Return counts as data that JSON can hold."""
    return dataclasses.asdict(counts)
