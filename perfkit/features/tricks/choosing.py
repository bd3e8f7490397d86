"""Which tricks are tried, and at which sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfkit.errors import UsageError
from perfkit.features.tricks.records import TOGETHER, TrickCase

if TYPE_CHECKING:
    from perfkit.features.tricks.trick import Trick

# Compiling takes longer than all other tricks together, so it is tried only where it is named.
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
    from perfkit.features.tricks.catalogue import find
    from perfkit.features.tricks.identical import IDENTICAL

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
    found, left_out = _available(only)
    cases = [
        TrickCase(trick=trick.name, size=size, title=trick.title, size_means=trick.size_means)
        for trick in found
        for size in sizes or (trick.sizes if sweep else (trick.default_size,))
    ]
    return Choice(cases=tuple(cases), left_out=left_out)


def choose_for_loop(only: Sequence[str], loop: str) -> Choice:
    """Return the named tricks, all without names, that can be applied to a loop from outside.

    Raises:
        UsageError: there is no trick of a name, or a named one cannot be applied so.
    """
    for name in only:
        if trick_named(name).on_loop is None:
            raise UsageError(f"{name} cannot be applied to a loop from outside; write it into the code")
    found, left_out = _available(only)
    cases = [TrickCase(trick=trick.name, loop=loop, title=trick.title) for trick in found if trick.on_loop]
    return Choice(cases=tuple(cases), left_out=left_out)


def best_pair(cases: Sequence[TrickCase]) -> tuple[TrickCase, TrickCase] | None:
    """Return the first case and the first other one that it can be joined with; None without such."""
    for other in cases[1:]:
        if other.trick not in trick_named(cases[0].trick).excludes:
            return cases[0], other
    return None


def together(cases: Sequence[TrickCase]) -> TrickCase:
    """Return the case of several tricks on the same loop at once."""
    return TrickCase(
        trick=TOGETHER.join(case.trick for case in cases),
        loop=cases[0].loop,
        title=" and ".join(case.title for case in cases),
    )


def _available(only: Sequence[str]) -> tuple[list[Trick], dict[str, str]]:
    """Return the tricks that can be tried here, and why others cannot."""
    from perfkit.features.tricks.catalogue import catalogue
    from perfkit.features.tricks.trick import is_available

    found: list[Trick] = []
    left_out: dict[str, str] = {}
    for trick in [trick_named(name) for name in only] or catalogue():
        reason = is_available(trick)
        if reason is None and not only and trick.needs in _ONLY_WHEN_NAMED:
            reason = "compiles: tried where it is named with --only"
        if reason is None:
            found.append(trick)
        else:
            left_out[trick.name] = reason
    return found, left_out
