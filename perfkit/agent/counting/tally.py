"""Sums of amounts by what they are and where they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from .model import Cause

# The name of what is counted, and its place in the code.
Source = tuple[str, str]
Tally = Counter[Source]

_MOST_CAUSES = 100


def causes_of(tally: Mapping[Source, float]) -> tuple[Cause, ...]:
    """Return the causes in a tally, largest first; those of one size by name, so that the order repeats."""
    largest = sorted(tally.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Cause(what=what, place=place, amount=float(amount))
        for (what, place), amount in largest[:_MOST_CAUSES]
        if amount
    )
