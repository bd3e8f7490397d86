"""Whether a gate on this machine can decide at a margin, judged by the scatter of identical code."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS
from perfkit.gating.judge import interval_error, last_look, pair_location
from perfkit.model import Machine
from perfkit.model.comparisons import LaunchPair, Policy
from perfkit.model.fitness import Condition, Fitness, Noise
from perfkit.stats.interval import widening
from perfkit.stats.planning import expected_half_width, minimum_detectable_effect

_FEWEST_LAUNCHES = 5


def judge_noise(
    pairs: Mapping[str, Sequence[LaunchPair]],
    *,
    launch_s: float,
    policy: Policy,
    margin: float,
    seconds_per_benchmark: float,
) -> tuple[Noise, ...]:
    """Return for each benchmark what a gate under ``policy`` could see, from launches of identical code.

    ``launch_s`` is what one launch of one benchmark takes, its share of everything else included.
    Benchmarks with too few launches to tell a scatter are left out.
    """
    reached = last_look(int(seconds_per_benchmark / launch_s), policy)
    return tuple(
        _noise(name, found, launch_s=launch_s, launches=reached, policy=policy, margin=margin)
        for name, found in pairs.items()
        if len(found) >= _FEWEST_LAUNCHES
    )


def judge_fitness(
    machine: Machine,
    conditions: Sequence[Condition],
    noises: Sequence[Noise],
    *,
    policy: Policy,
    margin: float,
    seconds_per_benchmark: float,
) -> Fitness:
    """Return whether identical code could be told from a change of ``margin`` by every benchmark."""
    fit = bool(noises) and all(_decides(noise, margin) for noise in noises)
    return Fitness(
        machine=machine,
        margin=margin,
        policy=policy,
        seconds_per_benchmark=seconds_per_benchmark,
        conditions=tuple(conditions),
        noises=tuple(noises),
        fit=fit,
        exit_code=EXIT_PASS if fit else EXIT_INCONCLUSIVE if noises else EXIT_NOT_MEASURED,
    )


def _noise(
    name: str,
    pairs: Sequence[LaunchPair],
    *,
    launch_s: float,
    launches: int | None,
    policy: Policy,
    margin: float,
) -> Noise:
    sd = statistics.stdev(map(pair_location, pairs))
    half_width, effect = None, None
    if launches is not None:
        # What launches of one generation may have in common widens the interval of a gate.
        wide = sd * widening([pair.preloader for pair in pairs], policy.shared_variance)
        error = interval_error(pairs, policy, look=launches)
        half_width, effect = _reach(wide, launches, error=error, policy=policy, margin=margin)
    return Noise(
        benchmark=name,
        measured=len(pairs),
        launch_sd=sd,
        launch_s=launch_s,
        launches=launches or 0,
        half_width=half_width,
        effect=effect,
    )


def _reach(sd: float, launches: int, *, error: float, policy: Policy, margin: float) -> tuple[float, float]:
    """Return the half-width after so many launches, and the slowdown that they find."""
    trimmed_from = policy.trimmed_from
    half_width = expected_half_width(sd, launches, error=error, trimmed_from=trimmed_from)
    return math.expm1(half_width), minimum_detectable_effect(
        sd, launches, error=error, margin=margin, trimmed_from=trimmed_from
    )


def _decides(noise: Noise, margin: float) -> bool:
    return noise.half_width is not None and noise.half_width < margin
