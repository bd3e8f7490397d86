"""Planning a comparison: detectable changes and launches needed; sizes and margins are relative changes."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from perfkit.model.calibration import Components
from perfkit.stats.interval import TRIMMED_FROM, degrees_of_freedom, student_quantile

# Beyond this, less a margin, a logarithm has no number.
_LARGEST_LOG = math.log(sys.float_info.max) - 1


def expected_half_width(sd: float, units: int, *, error: float, trimmed_from: int = TRIMMED_FROM) -> float:
    """Return the half-width to expect, on the log scale, from ``units`` values of deviation ``sd``."""
    degrees = degrees_of_freedom(units, trimmed_from=trimmed_from)
    return student_quantile(degrees, error) * sd / math.sqrt(units)


def minimum_detectable_effect(
    sd: float,
    launches: int,
    *,
    error: float,
    margin: float,
    power: float = 0.95,
    trimmed_from: int = TRIMMED_FROM,
) -> float:
    """Return the smallest slowdown that is judged REGRESSED with probability ``power``."""
    half_width, scatter = _expected_reach(sd, launches, error=error, trimmed_from=trimmed_from)
    above = half_width + NormalDist().inv_cdf(power) * scatter
    return (1 + margin) * math.exp(above) - 1 if above < _LARGEST_LOG else math.inf


def deciding_look(
    centre: float,
    sd: float,
    *,
    errors: Mapping[int, float],
    margin: float,
    threshold: float | None = None,
    launches_per_unit: float = 1.0,
    trimmed_from: int = TRIMMED_FROM,
    one_sided: bool = False,
) -> int | None:
    """Return the first look whose interval around ``centre`` would decide, None where none would."""
    distance = distance_to_margin(centre, margin, threshold=threshold, one_sided=one_sided)
    for look, error in errors.items():
        units = int(look / launches_per_unit)
        if units > 1 and expected_half_width(sd, units, error=error, trimmed_from=trimmed_from) < distance:
            return look
    return None


def launches_per_generation(
    *, generation_s: float, launch_s: float, shared_variance: float, most: int
) -> int:
    """Return how many launches to make of a generation, at least one: so that an interval narrows soonest."""
    best = math.sqrt(generation_s / (launch_s * shared_variance)) if launch_s > 0 else most
    return max(1, min(round(best), most))


def distance_to_margin(
    centre: float, margin: float, *, threshold: float | None = None, one_sided: bool = False
) -> float:
    """Return how wide, on the log scale, half of an interval around a ratio may be that still decides."""
    faster, slower = _limits(margin)
    praised, accused = _limits(margin if threshold is None else threshold)
    inside = slower - centre if one_sided else min(centre - faster, slower - centre)
    return max(inside, centre - accused, praised - centre)


def _limits(change: float) -> tuple[float, float]:
    # Nothing is faster by 100 % or more.
    return math.log1p(-change) if change < 1 else -math.inf, math.log1p(change)


def decidable_margin(
    sd: float, launches: int, *, error: float, power: float = 0.9, trimmed_from: int = TRIMMED_FROM
) -> float:
    """Return the smallest margin at which identical code is judged UNCHANGED with probability ``power``."""
    half_width, scatter = _expected_reach(sd, launches, error=error, trimmed_from=trimmed_from)
    return math.expm1(half_width + NormalDist().inv_cdf((1 + power) / 2) * scatter)


def _expected_reach(sd: float, launches: int, *, error: float, trimmed_from: int) -> tuple[float, float]:
    half_width = expected_half_width(sd, launches, error=error, trimmed_from=trimmed_from)
    degrees = degrees_of_freedom(launches, trimmed_from=trimmed_from)
    return half_width, math.hypot(sd / math.sqrt(launches), half_width / math.sqrt(2 * degrees))


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
