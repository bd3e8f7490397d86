"""Launches and policy in, estimate and verdict out."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence

from perfkit.records import Benchmark
from perfkit.stats.interval import error_per_look, location_interval
from perfkit.stats.location import location
from perfkit.stats.planning import deciding_look, expected_half_width
from perfkit.verdict.model import Comparison, Estimate, LaunchPair, Need, Policy, TimedVerdict

LARGEST_LOG = math.log(sys.float_info.max)


def estimate(pairs: Sequence[LaunchPair], policy: Policy) -> Estimate | None:
    """Return the ratio and its interval at the last look that was reached, None before the first.

    ``pairs`` stand in the order they were measured in; those after the look are left for the next one.
    """
    launches = last_look(len(pairs), policy)
    if launches is None:
        return None
    seen = pairs[:launches]
    logs = [location(pair.base_s, pair.head_s) for pair in seen]
    error = look_error(policy)
    interval = location_interval(logs, [pair.preloader for pair in seen], error=error)
    centre, half_width = float(interval.centre), float(interval.half_width)
    return Estimate(
        ratio=math.exp(centre),
        low=_ratio(centre - half_width),
        high=_ratio(centre + half_width),
        confidence=1 - error,
        launches=launches,
        launch_sd=statistics.stdev(logs) if launches > 1 else None,
        unit="preloaders" if interval.by_preloaders else "launches",
    )


def timed_verdict(estimate: Estimate, margin: float) -> TimedVerdict:
    """Return what the interval alone says; ``margin`` is a relative change (0.02 is 2 %)."""
    return interval_verdict(estimate.low, estimate.high, margin)


def interval_verdict(low: float, high: float, margin: float) -> TimedVerdict:
    """Return what an interval of a ratio says, where lower is better."""
    if low > 1 + margin:
        return "REGRESSED"
    if high < 1 - margin:
        return "IMPROVED"
    if 1 - margin < low and high < 1 + margin:
        return "UNCHANGED"
    return "INCONCLUSIVE"


def direction(estimate: Estimate) -> str | None:
    """Return "slower by 0.4 to 2.6 %" or "faster by …", None where the interval contains no change."""
    if estimate.low > 1:
        return f"slower by {100 * (estimate.low - 1):.1f} to {100 * (estimate.high - 1):.1f} %"
    if estimate.high < 1:
        return f"faster by {100 * (1 - estimate.high):.1f} to {100 * (1 - estimate.low):.1f} %"
    return None


def compare(
    benchmark: Benchmark,
    pairs: Sequence[LaunchPair],
    policy: Policy,
    *,
    margin: float,
    gating: bool = True,
    launch_s: float | None = None,
) -> Comparison:
    """Judge one benchmark by its launches; ``launch_s`` is what one more of them takes, in seconds."""
    judged = estimate(pairs, policy)
    verdict = timed_verdict(judged, margin) if judged else "INCONCLUSIVE"
    seen = pairs[: judged.launches] if judged else pairs
    missing = need(judged, pairs, policy, margin=margin, launch_s=launch_s)
    return Comparison(
        benchmark=benchmark,
        verdict=verdict,
        margin=margin,
        gating=gating,
        estimate=judged,
        base_s=_typical_time([pair.base_s for pair in seen]),
        head_s=_typical_time([pair.head_s for pair in seen]),
        need=missing if verdict == "INCONCLUSIVE" else None,
        message=None if judged else _before_first_look(len(pairs), policy),
    )


def need(
    judged: Estimate | None,
    pairs: Sequence[LaunchPair],
    policy: Policy,
    *,
    margin: float,
    launch_s: float | None = None,
) -> Need | None:
    """Return about how many more launches would decide, None where no look that is left would.

    What ``judged``, the estimate from ``pairs``, says of ratio and scatter is taken for the truth; before
    the first look, that look is what is missing. ``launch_s`` is what one more launch takes, in seconds.
    """
    look = _deciding_look(judged, pairs, policy, margin) if judged else policy.looks[0]
    if look is None:
        return None
    launches = look - len(pairs)
    return Need(launches=launches, seconds=None if launch_s is None else launches * launch_s)


def look_error(policy: Policy) -> float:
    """Return the two-sided error of one interval: alpha shared over comparisons and looks."""
    return error_per_look(policy.alpha, family=policy.family, looks=len(policy.looks))


def last_look(launches: int, policy: Policy) -> int | None:
    """Return the last look that so many launches reach, None before the first."""
    return max((look for look in policy.looks if look <= launches), default=None)


def _ratio(log: float) -> float:
    """Return the ratio of a log ratio; infinite where no number is as large."""
    # Two preloaders that differ bound next to nothing.
    return math.exp(log) if log < LARGEST_LOG else math.inf


def _deciding_look(
    judged: Estimate, pairs: Sequence[LaunchPair], policy: Policy, margin: float
) -> int | None:
    preloaders = len({pair.preloader for pair in pairs[: judged.launches]})
    units = preloaders if judged.unit == "preloaders" else judged.launches
    half_width = math.log(judged.high / judged.ratio)
    return deciding_look(
        math.log(judged.ratio),
        half_width / expected_half_width(1.0, units, error=look_error(policy)),
        looks=[look for look in policy.looks if look > len(pairs)],
        error=look_error(policy),
        margin=margin,
        launches_per_unit=judged.launches / units,
    )


def _before_first_look(launches: int, policy: Policy) -> str:
    return f"{launches} of the {policy.looks[0]} launches that the first look needs"


def _typical_time(launches: Sequence[Sequence[float]]) -> float | None:
    """Return the median over launches of their median rounds, None where there are none."""
    # As the ratio beside it: means of a few stalls in rounds would contradict it for no reason.
    return statistics.median(map(statistics.median, launches)) if launches else None
