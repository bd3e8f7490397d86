"""A verdict from runs that measured each commit at another time, not in turns, so its interval is wider.

Two runs of the same code differ, since the machine and what else runs on it change from hour to hour. Commits
that were measured more than once show by how much; every interval and every verdict includes that.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from perfkit.records import Benchmark, Row
from perfkit.records.comparisons import Comparison, Estimate, Policy
from perfkit.stats.apart import Spread, half_width_apart, pooled_spread, runs_to_decide
from perfkit.units import counted
from perfkit.verdict.judge import LARGEST_LOG, timed_verdict

# One repetition does not tell a deviation: the interval would span a factor of thousands.
_FEWEST_DEGREES = 2


def compare_apart(
    benchmark: Benchmark,
    *,
    base: Sequence[Row],
    head: Sequence[Row],
    history: Sequence[Row],
    policy: Policy,
    margin: float,
    gating: bool,
) -> Comparison:
    """Judge one benchmark by the rows of both commits; ``history`` has those of all commits, theirs included.

    All rows are of one version, machine and environment, and have values. A run counts once: its value is
    the mean over its launches of the log of their median round.
    """
    levels = {"base": list(run_levels(base).values()), "head": list(run_levels(head).values())}
    spread = pooled_spread([list(run_levels(rows).values()) for rows in _by_commit(history).values()])
    sizes = (len(levels["base"]), len(levels["head"]))
    times = {side: math.exp(statistics.fmean(values)) for side, values in levels.items()}
    measured = f"{counted(sizes[0], 'run')} of base, {sizes[1]} of head"
    if spread is None or spread.degrees < _FEWEST_DEGREES:
        return Comparison(
            benchmark=benchmark,
            verdict="INCONCLUSIVE",
            margin=margin,
            gating=gating,
            base_s=times["base"],
            head_s=times["head"],
            message=f"too few runs to say anything: {measured}, and no more repetitions of any commit",
        )
    difference = statistics.fmean(levels["head"]) - statistics.fmean(levels["base"])
    judged = _estimate(difference, spread, sizes, policy)
    verdict = timed_verdict(judged, margin)
    return Comparison(
        benchmark=benchmark,
        verdict=verdict,
        margin=margin,
        gating=gating,
        estimate=judged,
        base_s=times["base"],
        head_s=times["head"],
        message=_message(verdict, difference, spread, sizes, policy, margin),
    )


def run_levels(rows: Iterable[Row]) -> Mapping[str, float]:
    """Return for each run the mean over its launches of the log of their median round."""
    launches: dict[str, list[float]] = {}
    for row in rows:
        launches.setdefault(row.run_id, []).append(math.log(statistics.median(row.outcome.values)))
    return {run: statistics.fmean(values) for run, values in launches.items()}


def _by_commit(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    commits: dict[str, list[Row]] = {}
    for row in rows:
        commits.setdefault(row.commit.sha, []).append(row)
    return commits


def _estimate(difference: float, spread: Spread, sizes: tuple[int, int], policy: Policy) -> Estimate:
    error = policy.error_at(policy.looks[0])
    half_width = half_width_apart(spread, sizes, error=error)
    return Estimate(
        ratio=math.exp(difference),
        low=math.exp(difference - half_width),
        high=math.exp(min(difference + half_width, LARGEST_LOG)),
        confidence=1 - error,
        launches=sum(sizes),
        launch_sd=spread.sd,
        unit="runs",
    )


def _message(
    verdict: str, difference: float, spread: Spread, sizes: tuple[int, int], policy: Policy, margin: float
) -> str | None:
    if verdict != "INCONCLUSIVE":
        return None
    noise = f"runs of the same code differ by {100 * spread.sd:.1f} % (sd)"
    more = runs_to_decide(difference, spread, sizes, error=policy.error_at(policy.looks[0]), margin=margin)
    if more is None:
        return f"{noise}: no number of runs in reason would decide, `perfkit gate` may"
    return f"{noise}: about {counted(more, 'more run')} of each commit would decide"
