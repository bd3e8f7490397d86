"""Node ids cut to what tells them apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each node id the shortest ending, from a "/" or "::" on, that no other one has.

    A node id that is itself the ending of another stands whole.
    """
    distinct = set(names)
    uses = Counter(ending for name in distinct for ending in _endings(name))
    return {name: next((ending for ending in _endings(name) if uses[ending] == 1), name) for name in distinct}


def _endings(name: str) -> list[str]:
    """Return the endings of a node id, shortest first, the whole one last; parameters are never cut."""
    path = name.partition("[")[0]
    starts = [0, *(found.end() for found in re.finditer("/|::", path))]
    return [name[start:] for start in reversed(starts)]
