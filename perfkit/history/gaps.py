"""Which commit to measure next: the one where a history is least certain."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping

# The known levels of one commit, by benchmark and version.
Levels = Mapping[tuple[str, str], float]


def next_place(
    wanted: Collection[int],
    settled: Collection[int],
    levels: Mapping[int, Levels],
    *,
    margin: float,
) -> int | None:
    """Return the place in history to measure next, None where no wanted one is left.

    The ends come first. Then it is the wanted place nearest to the middle of the largest gap between
    ``settled`` places, which are measured or about to be; gaps at whose ends the known ``levels`` differ by
    more than ``margin``, a share, come before all others. Of equals the older one comes first.
    """
    left = sorted(set(wanted) - set(settled))
    if not left:
        return None
    ends = (min(wanted), max(wanted))
    for end in ends:
        if end not in settled:
            return end
    cuts = sorted({*settled, *ends})
    gaps = [
        (_differ(levels.get(begin, {}), levels.get(end, {}), margin), len(inside), -begin, begin, end)
        for begin, end in itertools.pairwise(cuts)
        if (inside := [place for place in left if begin < place < end])
    ]
    *_, begin, end = max(gaps)
    inside = [place for place in left if begin < place < end]
    return inside[(len(inside) - 1) // 2]


def _differ(one: Levels, other: Levels, margin: float) -> bool:
    """Tell whether any benchmark's level differs by more than a share between two commits."""
    return any(
        min(one[key], other[key]) > 0 and abs(math.log(other[key] / one[key])) > math.log1p(margin)
        for key in one.keys() & other.keys()
    )
