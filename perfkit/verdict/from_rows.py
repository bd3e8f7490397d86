"""A gate's rows in the ledger as launches and policy: every verdict can be recomputed from them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from perfkit.records import WALL_TIME, Row, Side
from perfkit.verdict.judge import compare
from perfkit.verdict.model import Comparison, LaunchPair, Policy, Verdict

# Findings on benchmarks that could not be compared.
NOT_TIMED = frozenset({"NEW", "MISSING", "CHANGED", "FAILED", "TIMEOUT"})


def policy_entries(
    policy: Policy, *, margin: float, gating: bool, verdict: Verdict | None = None
) -> dict[str, str]:
    """Return what a row says of the rules it was measured under, and of what came out where that is known."""
    entries = {
        "alpha": repr(policy.alpha),
        "family": str(policy.family),
        "looks": ",".join(map(str, policy.looks)),
        "margin": repr(margin),
        "gating": "true" if gating else "false",
    }
    return entries if verdict is None else {**entries, "verdict": verdict}


def policy_of(rows: Sequence[Row]) -> Policy:
    """Return the rules that rows of a gate were measured under."""
    entries = rows[0].policy
    return Policy(
        alpha=float(entries["alpha"]),
        family=int(entries["family"]),
        looks=tuple(int(look) for look in entries["looks"].split(",")),
    )


def pairs_of(rows: Sequence[Row]) -> tuple[LaunchPair, ...]:
    """Return the launches of one benchmark in one run, in order, from the rows of both sides."""
    base, head = _timed(rows, "base"), _timed(rows, "head")
    return tuple(
        LaunchPair(
            launch=launch,
            preloader=head[launch].placement.preloader or 0,
            base_s=base[launch].outcome.values,
            head_s=head[launch].outcome.values,
        )
        for launch in sorted(base.keys() & head.keys())
    )


def joined_pairs(runs: Sequence[Sequence[LaunchPair]]) -> tuple[LaunchPair, ...]:
    """Return the launches of several runs on one pair as one series; no two runs share a preloader."""
    joined: list[LaunchPair] = []
    for pairs in runs:
        offset = max((pair.preloader for pair in joined), default=0)
        joined += [
            LaunchPair(
                launch=len(joined) + place,
                preloader=offset + pair.preloader,
                base_s=pair.base_s,
                head_s=pair.head_s,
            )
            for place, pair in enumerate(pairs)
        ]
    return tuple(joined)


def comparison_of(rows: Sequence[Row], prior: Sequence[Sequence[Row]] = ()) -> Comparison:
    """Return the verdict on one benchmark from its rows in a run, and in the runs that it continued."""
    policy = policy_of(rows)
    last = rows[-1]
    margin, gating = float(last.policy["margin"]), last.policy["gating"] == "true"
    # The launches before a failure are of no use; the failure's own row, which has the cause, comes last.
    finding = next((row for row in reversed(rows) if row.policy.get("verdict") in NOT_TIMED), None)
    if finding is not None:
        return Comparison(
            benchmark=finding.outcome.benchmark,
            verdict=_verdict(finding.policy["verdict"]),
            margin=margin,
            gating=gating,
            message=finding.outcome.message,
        )
    pairs = joined_pairs([pairs_of(run) for run in (*prior, rows)])
    return compare(last.outcome.benchmark, pairs, policy, margin=margin, gating=gating)


def _verdict(text: str) -> Verdict:
    known: Mapping[str, Verdict] = {verdict: verdict for verdict in get_args(Verdict)}
    return known[text]


def _timed(rows: Sequence[Row], side: Side) -> dict[int, Row]:
    """Return the row of each launch that has times of one side."""
    return {
        row.placement.launch: row
        for row in rows
        if row.placement.side == side and row.outcome.metric == WALL_TIME and row.outcome.values
    }
