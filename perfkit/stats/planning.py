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
    """Return the half-width to expect, on the log scale, from ``units`` values of deviation ``sd``.

    From ``trimmed_from`` units on, a tenth of them is left out at each end.
    """
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
    """Return the smallest slowdown that is judged REGRESSED with probability ``power``, after ``launches``.

    ``sd`` is that of the launches' log ratios. The centre must lie the half-width above the margin; both
    scatter, the half-width by about one part in the root of twice its degrees of freedom. It is infinite
    where no number is as large.
    """
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
    """Return the first look whose interval around ``centre`` would decide, None where none would.

    ``centre`` is a log ratio, taken as the truth; ``sd`` that of the units the interval counts; ``errors``
    holds the looks in their order, with the two-sided error of each. A change beyond ``threshold`` (not
    given: the margin) accuses or praises. If ``one_sided``, only the upper limit must be below the margin.
    """
    distance = distance_to_margin(centre, margin, threshold=threshold, one_sided=one_sided)
    for look, error in errors.items():
        units = int(look / launches_per_unit)
        if units > 1 and expected_half_width(sd, units, error=error, trimmed_from=trimmed_from) < distance:
            return look
    return None


def launches_per_generation(
    *, generation_s: float, launch_s: float, shared_variance: float, most: int
) -> int:
    """Return how many launches to make of a generation, at least one: so that an interval narrows soonest.

    A generation costs ``generation_s`` seconds before its first launch, and a launch ``launch_s``; launches
    of one generation have a variance in common that is ``shared_variance`` times their own. The optimum of
    (launch_s + generation_s / m) (1 + shared_variance m) is that of sampling in clusters (Cochran 1977, 9.6).
    """
    best = math.sqrt(generation_s / (launch_s * shared_variance)) if launch_s > 0 else most
    return max(1, min(round(best), most))


def distance_to_margin(
    centre: float, margin: float, *, threshold: float | None = None, one_sided: bool = False
) -> float:
    """Return how wide, on the log scale, half of an interval around a ratio may be that still decides.

    It lies wholly between the margins (if ``one_sided``: below the upper one), or wholly beyond ``threshold``
    on either side (not given: the margin).
    """
    faster, slower = _limits(margin)
    praised, accused = _limits(margin if threshold is None else threshold)
    inside = slower - centre if one_sided else min(centre - faster, slower - centre)
    return max(inside, centre - accused, praised - centre)


def _limits(change: float) -> tuple[float, float]:
    """Return the log ratios of becoming faster and slower by a relative change."""
    # Nothing is faster by 100 % or more.
    return math.log1p(-change) if change < 1 else -math.inf, math.log1p(change)


def decidable_margin(
    sd: float, launches: int, *, error: float, power: float = 0.9, trimmed_from: int = TRIMMED_FROM
) -> float:
    """Return the smallest margin at which identical code is judged UNCHANGED with probability ``power``.

    ``sd`` is that of the launches' log ratios. The interval has to lie inside the margin on both sides, and
    both its centre and its half-width scatter.
    """
    half_width, scatter = _expected_reach(sd, launches, error=error, trimmed_from=trimmed_from)
    return math.expm1(half_width + NormalDist().inv_cdf((1 + power) / 2) * scatter)


def _expected_reach(sd: float, launches: int, *, error: float, trimmed_from: int) -> tuple[float, float]:
    """Return the half-width to expect, and by how much its sum with the centre scatters."""
    half_width = expected_half_width(sd, launches, error=error, trimmed_from=trimmed_from)
    degrees = degrees_of_freedom(launches, trimmed_from=trimmed_from)
    return half_width, math.hypot(sd / math.sqrt(launches), half_width / math.sqrt(2 * degrees))
