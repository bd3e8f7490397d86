"""Planning a comparison: detectable changes and launches needed; sizes and margins are relative changes."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from statistics import NormalDist

from perfkit.stats.distributions import student_quantile
from perfkit.stats.interval import TRIMMED_FROM, degrees_of_freedom

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
