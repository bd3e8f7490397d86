"""Which tricks are tried, and at which sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfkit.errors import UsageError
from perfkit.records.tricks import TrickCase

if TYPE_CHECKING:
    from perfkit.tricks.trick import Trick

# Compiling takes longer than all the others together: it is tried where it is named.
_ONLY_WHEN_NAMED = frozenset({"compiler"})


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The cases to measure, and why other tricks are not tried here: {"pinned_memory": "needs CUDA"}."""

    cases: tuple[TrickCase, ...]
    left_out: Mapping[str, str]


def trick_named(name: str) -> Trick:
    """Return a trick of the catalogue, or the pair that is no trick at all.

    Raises:
        UsageError: there is none of this name.
    """
    from perfkit.tricks.catalogue import find
    from perfkit.tricks.identical import IDENTICAL

    if name == IDENTICAL.name:
        return IDENTICAL
    try:
        return find(name)
    except ValueError as error:
        raise UsageError(str(error)) from error


def choose(only: Sequence[str], sizes: Sequence[int], *, sweep: bool) -> Choice:
    """Return the named tricks, all without names, at the given sizes, or at each trick's own.

    With ``sweep`` those are all sizes of a trick, else its default.

    Raises:
        UsageError: there is no trick of a name.
    """
    from perfkit.tricks.catalogue import catalogue
    from perfkit.tricks.trick import is_available

    cases: list[TrickCase] = []
    left_out: dict[str, str] = {}
    for trick in [trick_named(name) for name in only] or catalogue():
        reason = is_available(trick)
        if reason is None and not only and trick.needs in _ONLY_WHEN_NAMED:
            reason = "compiles: tried where it is named with --only"
        if reason is not None:
            left_out[trick.name] = reason
            continue
        own = trick.sizes if sweep else (trick.default_size,)
        cases += [
            TrickCase(trick=trick.name, size=size, title=trick.title, size_means=trick.size_means)
            for size in sizes or own
        ]
    return Choice(cases=tuple(cases), left_out=left_out)
