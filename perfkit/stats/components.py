"""Variance within and between groups of values: pooled over samples, and by nested levels of replication."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfkit.model.calibration import Components
from perfkit.stats.distributions import student_quantile
from perfkit.stats.planning import distance_to_margin

_MOST_SESSIONS = 100


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A standard deviation and its degrees of freedom."""

    sd: float
    degrees: int


def pooled_spread(
    samples: Sequence[Sequence[float]], variance: Callable[[Sequence[float]], float] = statistics.variance
) -> Spread | None:
    """Return the deviation within samples, pooled over them; None where no sample has two values."""
    repeated = [sample for sample in samples if len(sample) > 1]
    degrees = sum(len(sample) - 1 for sample in repeated)
    if not degrees:
        return None
    squares = sum(variance(sample) * (len(sample) - 1) for sample in repeated)
    return Spread(sd=math.sqrt(squares / degrees), degrees=degrees)


def unpaired_half_width(spread: Spread, sizes: tuple[int, int], *, error: float) -> float:
    """Return the half-width of the difference of two means, of this many values each, by Student's t."""
    scale = math.sqrt(sum(1 / size for size in sizes))
    return student_quantile(spread.degrees, error) * spread.sd * scale


def sessions_to_decide(
    difference: float,
    spread: Spread,
    sizes: tuple[int, int],
    *,
    error: float,
    margin: float,
    one_sided: bool = False,
) -> int | None:
    """Return how many more values of each sample would decide, None where a hundred would not."""
    distance = distance_to_margin(difference, margin, one_sided=one_sided)
    for more in range(1, _MOST_SESSIONS + 1):
        grown = Spread(sd=spread.sd, degrees=spread.degrees + 2 * more)
        if unpaired_half_width(grown, (sizes[0] + more, sizes[1] + more), error=error) < distance:
            return more
    return None


def variance_components(
    locations: Mapping[object, Sequence[float]], rounds: Sequence[Sequence[float]]
) -> Components:
    """Return the components by the one-way random-effects analysis of variance (Searle 1971)."""
    groups = [group for group in locations.values() if group]
    launches, within = pooled_spread(groups), pooled_spread(rounds)
    between = None if launches is None or len(groups) == 1 else _between(groups, launches.sd)
    return Components(
        preloaders=between,
        launches=None if launches is None else launches.sd,
        rounds=None if within is None else within.sd,
    )


def shared_variance(groups: Sequence[Sequence[float]]) -> float:
    """Return the variance shared by values of a group, relative to their own; 0 if none shows."""
    within = pooled_spread(groups)
    if within is None or len(groups) == 1:
        return 0.0
    between = _between(groups, within.sd)
    if not within.sd:
        return math.inf if between else 0.0
    return (between / within.sd) ** 2


def _between(groups: Sequence[Sequence[float]], within_sd: float) -> float:
    sizes = [len(group) for group in groups]
    total, others = sum(sizes), len(groups) - 1
    grand = statistics.fmean(value for group in groups for value in group)
    mean_square = sum(len(group) * (statistics.fmean(group) - grand) ** 2 for group in groups) / others
    typical_size = (total - sum(size**2 for size in sizes) / total) / others
    return math.sqrt(max((mean_square - within_sd**2) / typical_size, 0.0))
