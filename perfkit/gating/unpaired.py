"""A verdict on runs that measured each commit at another time, so that its interval is wider.

A machine's speed changes from hour to hour, so runs within an hour are alike and no measure of another
hour. The values are therefore the levels of sessions, which lie apart; how much sessions of one commit differ
widens every interval and every verdict.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import timedelta

from perfkit.gating.judge import LARGEST_LOG, timed_verdict
from perfkit.model import Benchmark, Row
from perfkit.model.comparisons import Comparison, Estimate, Policy, Verdict
from perfkit.stats.components import Spread, pooled_spread, sessions_to_decide, unpaired_half_width
from perfkit.units import counted

# The levels of identical code differ the more, the more time lies between them, up to three quarters of an
# hour: docs/measured/evidence.md has the figures.
_LEAST_GAP = timedelta(hours=1)
# One or two sessions may be unusual ones and not show it: then up to 11 % of real comparisons of identical
# code accused, however much was known of other commits.
FEWEST_SESSIONS = 3
_SHA_DIGITS = 10


def compare_unpaired(
    benchmark: Benchmark,
    *,
    base: Sequence[Row],
    head: Sequence[Row],
    history: Sequence[Row],
    policy: Policy,
    margin: float,
    gating: bool,
) -> Comparison:
    """Judge one benchmark by the rows of both commits; ``history`` has those of all commits, these included.

    All rows have values and are of one version, machine and environment. There is no verdict where a commit
    has fewer than three sessions.
    """
    gap = max(_LEAST_GAP, _between(base, head))
    base_levels, head_levels = session_levels(base, gap), session_levels(head, gap)
    sizes = (len(base_levels), len(head_levels))
    commits: dict[str, list[Row]] = {}
    for row in history:
        commits.setdefault(row.commit.sha, []).append(row)
    spread = pooled_spread([session_levels(rows, gap) for rows in commits.values()])
    verdict: Verdict = "INCONCLUSIVE"
    estimate = None
    if spread is None or min(sizes) < FEWEST_SESSIONS:
        message: str | None = _too_few(sizes, gap, base[0].commit.sha, head[0].commit.sha)
    else:
        difference = statistics.fmean(head_levels) - statistics.fmean(base_levels)
        estimate = _estimate(difference, spread, sizes, policy)
        verdict = timed_verdict(estimate, margin, one_sided=policy.one_sided)
        undecided = verdict == "INCONCLUSIVE"
        message = _to_decide(difference, spread, sizes, policy, margin) if undecided else None
    return Comparison(
        benchmark=benchmark,
        verdict=verdict,
        margin=margin,
        gating=gating,
        estimate=estimate,
        base_s=math.exp(statistics.fmean(base_levels)),
        head_s=math.exp(statistics.fmean(head_levels)),
        message=message,
    )


def session_levels(rows: Iterable[Row], gap: timedelta) -> list[float]:
    """Return the level of each session: the mean over its launches of the log of their median round.

    A session ends where nothing was measured for as long as ``gap``.
    """
    sessions: list[list[Row]] = []
    for row in sorted(rows, key=lambda row: row.recorded_at):
        if not sessions or row.recorded_at - sessions[-1][-1].recorded_at >= gap:
            sessions.append([])
        sessions[-1].append(row)
    return [
        statistics.fmean(math.log(statistics.median(row.outcome.values)) for row in session)
        for session in sessions
    ]


def _between(base: Sequence[Row], head: Sequence[Row]) -> timedelta:
    """Return the time between all of one commit's rows and all of the other's, negative for none.

    The machine may have changed over that time, which rows of one commit that lie closer do not show.
    """
    old, new = ([row.recorded_at for row in rows] for rows in (base, head))
    return max(min(new) - max(old), min(old) - max(new))


def _estimate(difference: float, spread: Spread, sizes: tuple[int, int], policy: Policy) -> Estimate:
    error = policy.error_at(policy.looks[0])
    half_width = unpaired_half_width(spread, sizes, error=error)
    return Estimate(
        ratio=math.exp(difference),
        low=math.exp(difference - half_width),
        high=math.exp(min(difference + half_width, LARGEST_LOG)),
        confidence=1 - error,
        launches=sum(sizes),
        launch_sd=spread.sd,
        unit="occasions",
    )


def _too_few(sizes: tuple[int, int], gap: timedelta, base: str, head: str) -> str:
    """Return how many sessions there are, how many are needed and why, and the commands to run."""
    far, why = "an hour", ""
    if gap > _LEAST_GAP:
        far, why = f"{math.ceil(gap / timedelta(hours=1))} hours", ", as base and head lie,"
    return (
        f"base was measured in {counted(sizes[0], 'session')} and head in {sizes[1]} (runs less than"
        f" {far} apart{why} are one); {FEWEST_SESSIONS} of each are needed, since the machine's speed changes"
        f" from hour to hour: repeat `perfkit backfill {base[:_SHA_DIGITS]} {head[:_SHA_DIGITS]}` at other"
        f" hours, or `perfkit gate --base {base[:_SHA_DIGITS]} --head {head[:_SHA_DIGITS]}`"
    )


def _to_decide(
    difference: float, spread: Spread, sizes: tuple[int, int], policy: Policy, margin: float
) -> str:
    noise = f"sessions of the same code differ by {100 * spread.sd:.1f} % (sd)"
    error = policy.error_at(policy.looks[0])
    more = sessions_to_decide(
        difference, spread, sizes, error=error, margin=margin, one_sided=policy.one_sided
    )
    if more is None:
        return f"{noise}: no reasonable number of them would decide, `perfkit gate` may"
    return f"{noise}: about {counted(more, 'more session')} of each commit would decide"
