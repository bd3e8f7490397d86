"""Which commits run the same code for a benchmark.

The ledger keeps pairs of commits, since a trace decides on both at once: it compares what ran on them, and
all files that differ between them, such as data and constants of modules. The hash of what ran has none of
these, so equal hashes in two runs prove nothing. Pairs add up, and hold for one version of a benchmark on one
machine in one environment: another Python may take another branch. Those found with benchmark files laid over
the commits hold for runs with the same files.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Kind(NamedTuple):
    """Within what a pair of commits holds."""

    benchmark: str
    version: str
    machine_id: str
    env_id: str
    overlay: str | None = None


@dataclass(frozen=True)
class SameCode:
    """The commits that run the same code, by kind: each commit with all of its group."""

    groups: dict[Kind, dict[str, frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Iterable[tuple[Kind, str, str]]) -> SameCode:
        """Join pairs of commits into groups."""
        same = cls()
        for pair in pairs:
            same.join(*pair)
        return same

    def join(self, kind: Kind, one: str, other: str) -> None:
        """Note that two commits run the same code."""
        joined = self.group(kind, one) | self.group(kind, other)
        self.groups.setdefault(kind, {}).update(dict.fromkeys(joined, joined))

    def group(self, kind: Kind, sha: str) -> frozenset[str]:
        """Return the commits that run the same code as one, with itself."""
        return self.groups.get(kind, {}).get(sha, frozenset({sha}))

    def nearest(
        self, kind: Kind, sha: str, measured: Mapping[str, object], place: Callable[[str], float]
    ) -> str | None:
        """Return the nearest commit that runs the same code as one, a ``measured`` commit if possible."""
        group = self.group(kind, sha) - {sha}
        return min(
            group.intersection(measured) or group,
            key=lambda one: (abs(place(one) - place(sha)), one),
            default=None,
        )

    def acquitted(
        self,
        kind: Kind,
        first: str,
        last: str,
        commits_of: Callable[[str, str], frozenset[str] | None],
        place: Callable[[str], float],
    ) -> frozenset[str]:
        """Return the commits after the first, up to the last, that made no change between the two.

        Commits between two that run the same code made none together.
        """
        found: set[str] = set()
        groups = frozenset(self.groups.get(kind, {}).values())
        inside = (commits_of(first, last) if groups else None) or frozenset()
        for group in groups:
            own = sorted(group & (inside | {first}), key=place)
            whole = commits_of(own[0], own[-1]) if own else frozenset()
            parts = [whole] if whole is not None else itertools.starmap(commits_of, itertools.pairwise(own))
            found.update(*filter(None, parts))
        return inside & found
