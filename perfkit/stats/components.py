"""Where variance comes from: nested levels of replication, each within the one above."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfkit.stats.apart import pooled_spread


@dataclass(frozen=True, kw_only=True)
class Components:
    """Standard deviations of log ratios: between preloaders, between launches of one, and between its rounds.

    ``preloaders`` excludes what launches alone would make preloaders differ by; ``launches`` is as seen and
    includes the error from each launch's own rounds. None where a level was not replicated.
    """

    preloaders: float | None
    launches: float | None
    rounds: float | None


def variance_components(
    locations: Mapping[object, Sequence[float]], rounds: Sequence[Sequence[float]]
) -> Components:
    """Return the components by the one-way random-effects analysis of variance (Searle 1971).

    ``locations`` holds the log ratios of the launches by preloader, ``rounds`` those of each launch's rounds.
    """
    groups = [group for group in locations.values() if group]
    launches, within = pooled_spread(groups), pooled_spread(rounds)
    between = None if launches is None or len(groups) == 1 else _between(groups, launches.sd)
    return Components(
        preloaders=between,
        launches=None if launches is None else launches.sd,
        rounds=None if within is None else within.sd,
    )


def shared_variance(groups: Sequence[Sequence[float]]) -> float:
    """Return the variance that values of a group have in common, in parts of their own; 0 where none shows.

    It is infinite where groups differ and no two values of one do.
    """
    within = pooled_spread(groups)
    if within is None or len(groups) == 1:
        return 0.0
    between = _between(groups, within.sd)
    if not within.sd:
        return math.inf if between else 0.0
    return (between / within.sd) ** 2


def _between(groups: Sequence[Sequence[float]], within_sd: float) -> float:
    """Return what the means of groups differ by beyond what the spread within them explains."""
    sizes = [len(group) for group in groups]
    total, others = sum(sizes), len(groups) - 1
    grand = statistics.fmean(value for group in groups for value in group)
    mean_square = sum(len(group) * (statistics.fmean(group) - grand) ** 2 for group in groups) / others
    typical_size = (total - sum(size**2 for size in sizes) / total) / others
    return math.sqrt(max((mean_square - within_sd**2) / typical_size, 0.0))
