"""A verdict from runs that measured each commit at another time, not in turns, so its interval is wider.

The machine and what else runs on it change from hour to hour, so what was measured within an hour is alike
and says nothing of another hour. Values are therefore the levels of occasions, which lie apart; how much
those of one commit differ widens every interval and every verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from perfkit.gating.judge import LARGEST_LOG, timed_verdict
from perfkit.model import Benchmark, Row
from perfkit.model.comparisons import Comparison, Estimate, Policy
from perfkit.stats.apart import Spread, half_width_apart, occasions_to_decide, pooled_spread
from perfkit.units import counted

# The levels of identical code differ the more, the more time lies between them, up to three quarters of an
# hour: docs/measured/evidence.md has the table.
_LEAST_GAP = timedelta(hours=1)
# A commit that was measured in one or two hours may have met an unusual one and not show it: then up to 11 %
# of real comparisons of identical code accused, however much was known of other commits.
FEWEST_OCCASIONS = 3
_SHA_DIGITS = 10


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

    All rows are of one version, machine and environment, and have values. An occasion counts once, and there
    is no verdict where either commit has fewer than three.
    """
    gap = max(_LEAST_GAP, _between(base, head))
    levels = {"base": occasion_levels(base, gap), "head": occasion_levels(head, gap)}
    sizes = (len(levels["base"]), len(levels["head"]))
    spread = pooled_spread([occasion_levels(rows, gap) for rows in _by_commit(history).values()])
    times = {side: math.exp(statistics.fmean(values)) for side, values in levels.items()}
    if spread is None or min(sizes) < FEWEST_OCCASIONS:
        return Comparison(
            benchmark=benchmark,
            verdict="INCONCLUSIVE",
            margin=margin,
            gating=gating,
            base_s=times["base"],
            head_s=times["head"],
            message=_refusal(sizes, gap, base[0].commit.sha, head[0].commit.sha),
        )
    difference = statistics.fmean(levels["head"]) - statistics.fmean(levels["base"])
    judged = _estimate(difference, spread, sizes, policy)
    verdict = timed_verdict(judged, margin, one_sided=policy.one_sided)
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


def occasion_levels(rows: Iterable[Row], gap: timedelta) -> list[float]:
    """Return the level of each occasion: the mean over its launches of the log of their median round.

    An occasion ends where nothing was measured for as long as ``gap``.
    """
    occasions: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.recorded_at):
        if not occasions or row.recorded_at - occasions[-1][-1].recorded_at >= gap:
            occasions.append([])
        occasions[-1].append(row)
    return [
        statistics.fmean(math.log(statistics.median(row.outcome.values)) for row in occasion)
        for occasion in occasions
    ]


def _between(base: Sequence[Row], head: Sequence[Row]) -> timedelta:
    """Return the time that lies between all of one commit's rows and all of the other's, negative for none.

    Over so much time the machine may have changed, which rows of a commit that lie nearer do not show.
    """
    times = [[row.recorded_at for row in rows] for rows in (base, head)]
    return max(min(times[1]) - max(times[0]), min(times[0]) - max(times[1]))


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
        unit="occasions",
    )


def _refusal(sizes: tuple[int, int], gap: timedelta, base: str, head: str) -> str:
    """Say what there is, what is needed and why, and what to type."""
    far, why = "an hour", ""
    if gap > _LEAST_GAP:
        far, why = f"{math.ceil(gap / timedelta(hours=1))} hours", ", as base and head lie,"
    return (
        f"base was measured on {counted(sizes[0], 'occasion')} and head on {sizes[1]} (what lies less than"
        f" {far} apart{why} is one); {FEWEST_OCCASIONS} of each are needed, since the machine's speed changes"
        f" from hour to hour: repeat `perfkit backfill {base[:_SHA_DIGITS]} {head[:_SHA_DIGITS]}` at other"
        f" hours, or `perfkit gate --base {base[:_SHA_DIGITS]} --head {head[:_SHA_DIGITS]}`"
    )


def _message(
    verdict: str, difference: float, spread: Spread, sizes: tuple[int, int], policy: Policy, margin: float
) -> str | None:
    if verdict != "INCONCLUSIVE":
        return None
    noise = f"occasions of the same code differ by {100 * spread.sd:.1f} % (sd)"
    error = policy.error_at(policy.looks[0])
    more = occasions_to_decide(
        difference, spread, sizes, error=error, margin=margin, one_sided=policy.one_sided
    )
    if more is None:
        return f"{noise}: no number of them in reason would decide, `perfkit gate` may"
    return f"{noise}: about {counted(more, 'more occasion')} of each commit would decide"
