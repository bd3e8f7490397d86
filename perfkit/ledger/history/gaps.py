"""Which commit to measure next: the one where a history is least certain."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

# The known levels of one commit, by benchmark and version.
Levels = Mapping[tuple[str, str], float]


class Gaps:
    """Places in history that are wanted, with what is known at some of them.

    The ends come first. Then it is the wanted place nearest to the middle of the largest gap between settled
    places, which are measured or about to be; gaps at whose ends the known levels differ by more than
    ``margin``, a share, come before all others. Of equals the older one comes first.
    """

    def __init__(self, wanted: Iterable[int], *, margin: float) -> None:
        self._wanted = sorted(set(wanted))
        self._margin = math.log1p(margin)
        self._settled: set[int] = set()
        self._levels: dict[int, Levels] = {}
        self._differences: dict[tuple[int, int], bool] = {}

    @property
    def settled(self) -> int:
        """How many of the wanted places are settled."""
        return len(self._settled.intersection(self._wanted))

    def settle(self, place: int) -> None:
        """Note that a place is measured or about to be."""
        self._settled.add(place)

    def learn(self, place: int, levels: Levels) -> None:
        """Note the levels at a place, once."""
        self._levels[place] = levels

    def next(self) -> int | None:
        """Return the place to measure next, None where no wanted one is left."""
        left = [place for place in self._wanted if place not in self._settled]
        if not left:
            return None
        ends = (self._wanted[0], self._wanted[-1])
        for end in ends:
            if end not in self._settled:
                return end
        gaps = [
            (self.differ(begin, end), until - since, -begin, since)
            for begin, end in itertools.pairwise(sorted({*self._settled, *ends}))
            if (since := bisect_right(left, begin)) < (until := bisect_left(left, end))
        ]
        _, inside, _, since = max(gaps)
        return left[since + (inside - 1) // 2]

    def differ(self, begin: int, end: int) -> bool:
        """Tell whether any benchmark's level differs by more than the margin between two places."""
        if begin not in self._levels or end not in self._levels:
            return False
        if (begin, end) not in self._differences:
            one, other = self._levels[begin], self._levels[end]
            self._differences[begin, end] = any(
                min(one[key], other[key]) > 0 and abs(math.log(other[key] / one[key])) > self._margin
                for key in one.keys() & other.keys()
            )
        return self._differences[begin, end]
