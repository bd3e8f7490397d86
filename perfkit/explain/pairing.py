"""Finds the same function on both sides, though it was renamed or moved to another file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfkit.explain.blame import Blame
from perfkit.explain.work import Work

# How alike the calls per unit of work of a function under its old name and its new one must be.
_SAME_CALLS = 0.1


class Key(NamedTuple):
    """What a function is known by: lines move with every change above them."""

    file: str
    function: str


class Pair(NamedTuple):
    """A function on both sides, None where that side has none like it."""

    base: Blame | None
    head: Blame | None


def pair_functions(base: Sequence[Blame], head: Sequence[Blame], work: Work) -> list[Pair]:
    """Return each own function once, with what it was before.

    First by file and name; what is left over by name alone (moved), then within one file by equal calls
    per unit of work from equal callees (renamed), where only one pair of functions fits.
    """
    bases, heads = _by_key(base), _by_key(head)
    pairs = [Pair(bases.pop(key), heads.pop(key)) for key in [*bases] if key in heads]
    pairs += _moved(bases, heads)
    pairs += _renamed(bases, heads, work)
    return pairs + [Pair(one, None) for one in bases.values()] + [Pair(None, one) for one in heads.values()]


def _by_key(blames: Sequence[Blame]) -> dict[Key, Blame]:
    """Return the own functions by key; those that share one, as lambdas do, are added up."""
    found: dict[Key, Blame] = {}
    for one in blames:
        if one.function is None:
            continue
        key = Key(one.function.file, one.function.function)
        found[key] = found[key].added(one) if key in found else one
    return found


def _moved(bases: dict[Key, Blame], heads: dict[Key, Blame]) -> list[Pair]:
    names = {key.function for key in bases} & {key.function for key in heads}
    pairs = []
    for name in sorted(names):
        old, new = _only(bases, name), _only(heads, name)
        if old is not None and new is not None and not name.startswith("<"):
            pairs.append(Pair(bases.pop(old), heads.pop(new)))
    return pairs


def _only(blames: Mapping[Key, Blame], name: str) -> Key | None:
    found = [key for key in blames if key.function == name]
    return found[0] if len(found) == 1 else None


def _renamed(bases: dict[Key, Blame], heads: dict[Key, Blame], work: Work) -> list[Pair]:
    alike = [
        (old, new)
        for old in sorted(bases)
        for new in sorted(heads)
        if old.file == new.file and _alike(bases[old], heads[new], work)
    ]
    olds, news = Counter(old for old, _ in alike), Counter(new for _, new in alike)
    clear = [(old, new) for old, new in alike if olds[old] == news[new] == 1]
    return [Pair(bases.pop(old), heads.pop(new)) for old, new in clear]


def _alike(old: Blame, new: Blame, work: Work) -> bool:
    before, after = old.calls / work.base, new.calls / work.head
    same_calls = abs(after - before) <= _SAME_CALLS * max(before, after)
    shared = old.through.keys() & new.through.keys()
    either = old.through.keys() | new.through.keys()
    return same_calls and (not either or len(shared) * 2 >= len(either))
