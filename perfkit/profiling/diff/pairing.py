"""Finds the same function on both sides, though it was renamed or moved to another file."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perfkit.profiling.diff.blame import Blame
from perfkit.profiling.diff.work import Work

# A renamed function may differ by this share in its calls per unit of work.
_SAME_CALLS = 0.1


class Key(NamedTuple):
    """The file and name of a function; its line would change with every change above it."""

    file: str
    function: str


class Pair(NamedTuple):
    """A function on both sides, or on one side with None for the other."""

    base: Blame | None
    head: Blame | None


def pair_functions(base: Sequence[Blame], head: Sequence[Blame], work: Work) -> list[Pair]:
    """Return each own function once, with the function that it was on base.

    Functions of the same file and name are the same. Of the others those are the same that have one name and
    the longest end of path in common (they moved with their folder), then those with one name alone (they
    moved to another file), then those of one file with as many calls per unit of work and the same callees
    (they were renamed). A pair is made only where no other function fits.
    """
    bases, heads = _by_key(base), _by_key(head)
    pairs = [Pair(bases.pop(key), heads.pop(key)) for key in [*bases] if key in heads]
    pairs += _moved(bases, heads)
    pairs += _renamed(bases, heads, work)
    return pairs + [Pair(one, None) for one in bases.values()] + [Pair(None, one) for one in heads.values()]


def _by_key(blames: Sequence[Blame]) -> dict[Key, Blame]:
    """Return the own functions by key; functions of one key, such as lambdas, are added up."""
    found: dict[Key, Blame] = {}
    for one in blames:
        if one.function is None:
            continue
        key = Key(one.function.file, one.function.function)
        found[key] = found[key].added(one) if key in found else one
    return found


def _moved(bases: dict[Key, Blame], heads: dict[Key, Blame]) -> list[Pair]:
    """Return the functions that are in other files on head, those first whose paths have most in common."""
    by_name = _pairs_of(_by_end_of_path(bases, 0), _by_end_of_path(heads, 0))
    pairs: list[Pair] = []
    longest = max((key.file.count("/") + 1 for key in [*bases, *heads]), default=0)
    for parts in range(longest, 0, -1):
        alike = _pairs_of(_by_end_of_path(bases, parts), _by_end_of_path(heads, parts))
        pairs += [Pair(bases.pop(old), heads.pop(new)) for old, new in alike]
    # Of several functions of one name, the two that are left over at last need not be the same.
    left = [(old, new) for old, new in by_name if old in bases and new in heads]
    return pairs + [Pair(bases.pop(old), heads.pop(new)) for old, new in left]


def _by_end_of_path(keys: Iterable[Key], parts: int) -> dict[Key, list[Key]]:
    """Return functions by their name and the last ``parts`` of their path, where these say who they are."""
    found: dict[Key, list[Key]] = defaultdict(list)
    for key in keys:
        path = key.file.split("/")
        # A lambda is known by its file alone, and an __init__.py by its package.
        least = 0 if not key.function.startswith("<") else 2 if path[-1] == "__init__.py" else 1
        if least <= parts <= len(path):
            found[Key("/".join(path[len(path) - parts :]), key.function)].append(key)
    return found


def _pairs_of(olds: Mapping[Key, list[Key]], news: Mapping[Key, list[Key]]) -> list[tuple[Key, Key]]:
    """Return the functions of which each side has exactly one with the same end of path."""
    both = sorted(olds.keys() & news.keys())
    return [(olds[end][0], news[end][0]) for end in both if len(olds[end]) == len(news[end]) == 1]


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
