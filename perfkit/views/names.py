"""Shortens node ids and paths to what tells them apart, or to what fits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from rich.cells import cell_len


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each node id the shortest ending, from a "/" or "::" on, that no other one has.

    A node id that is itself the ending of another stands whole.
    """
    distinct = set(names)
    uses = Counter(ending for name in distinct for ending in _endings(name))
    return {name: next((ending for ending in _endings(name) if uses[ending] == 1), name) for name in distinct}


def fitted(name: str, columns: int) -> str:
    """Return a path or node id that fits, without its first folders or cut in its middle."""
    tail = without_folders(name, columns)
    if cell_len(tail) <= columns:
        return tail
    half = (columns - 1) // 2
    return f"{tail[: columns - 1 - half]}…{tail[len(tail) - half :]}"


def without_folders(name: str, columns: int) -> str:
    """Return a path or node id without the first folders that do not fit; its end says most."""
    path, bracket, parameters = name.partition("[")
    while cell_len(f"{path}{bracket}{parameters}") > columns and "/" in path.removeprefix("…/"):
        path = f"…/{path.removeprefix('…/').partition('/')[2]}"
    return f"{path}{bracket}{parameters}"


def _endings(name: str) -> list[str]:
    """Return the endings of a node id from the shortest to the whole; parameters are never cut."""
    path = name.partition("[")[0]
    starts = [0, *(found.end() for found in re.finditer("/|::", path))]
    return [name[start:] for start in reversed(starts)]
