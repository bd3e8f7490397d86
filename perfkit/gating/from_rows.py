"""A gate's rows in the ledger as launches and policy: every verdict can be recomputed from them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfkit.gating.exact import compare_count, not_compared, without_blame
from perfkit.gating.judge import compare
from perfkit.model import SIDES, TYPICAL_TIME, WALL_TIME, Metric, Row, Side
from perfkit.model.comparisons import Comparison, ExactComparison, LaunchPair, Policy
from perfkit.model.counters import NOT_COUNTED, count_of, is_count
from perfkit.model.policies import JudgedPolicy, judged_policy

# Findings on benchmarks that could not be compared.
NOT_TIMED = frozenset({"NEW", "MISSING", "CHANGED", "FAILED", "TIMEOUT", "SKIPPED"})


def policy_of(rows: Sequence[Row]) -> Policy:
    """Return the rules that rows of a gate were measured under.

    Raises:
        LedgerError: the rows do not hold them.
    """
    return judged_policy(rows[0]).rules


def pairs_of(rows: Sequence[Row]) -> tuple[LaunchPair, ...]:
    """Return the launches of one benchmark in one run, in order, from the rows of both sides."""
    base, head = (_timed(rows, side, WALL_TIME) for side in SIDES)
    typical = {side: _timed(rows, side, TYPICAL_TIME) for side in SIDES}
    return tuple(
        LaunchPair(
            launch=launch,
            preloader=head[launch].placement.preloader or 0,
            base_s=base[launch].outcome.values,
            head_s=head[launch].outcome.values,
            base_typical_s=_values(typical["base"].get(launch)),
            head_typical_s=_values(typical["head"].get(launch)),
            begins=_begins(head[launch]),
            base_cpu_s=_cpu_s(base[launch]),
            head_cpu_s=_cpu_s(head[launch]),
            base_collected_s=_collected_s(base[launch]),
            head_collected_s=_collected_s(head[launch]),
        )
        for launch in sorted(base.keys() & head.keys())
    )


def _cpu_s(row: Row) -> float | None:
    return row.policy.cpu_s if isinstance(row.policy, JudgedPolicy) else None


def _collected_s(row: Row) -> float:
    return (row.policy.collected_s or 0.0) if isinstance(row.policy, JudgedPolicy) else 0.0


def joined_pairs(runs: Sequence[Sequence[LaunchPair]]) -> tuple[LaunchPair, ...]:
    """Return the launches of several runs on one pair as one series; no two runs share a preloader."""
    joined: list[LaunchPair] = []
    for pairs in runs:
        offset = max((pair.preloader for pair in joined), default=0)
        joined += [
            replace(pair, launch=len(joined) + place, preloader=offset + pair.preloader)
            for place, pair in enumerate(pairs)
        ]
    return tuple(joined)


def comparison_of(rows: Sequence[Row], prior: Sequence[Sequence[Row]] = ()) -> Comparison:
    """Return the verdict on one benchmark from its rows in a run, and in the runs that it continued."""
    last = rows[-1]
    policy = judged_policy(last)
    # The launches before a failure decide nothing. The row of the failure comes last and has its cause.
    for row in reversed(rows):
        verdict = judged_policy(row).verdict
        if verdict in NOT_TIMED:
            return Comparison(
                benchmark=row.outcome.benchmark,
                verdict=verdict,
                margin=policy.margin,
                gating=policy.gating,
                message=row.outcome.message,
            )
    pairs = joined_pairs([pairs_of(run) for run in (*prior, rows)])
    return compare(last.outcome.benchmark, pairs, policy_of(rows), margin=policy.margin, gating=policy.gating)


def exact_comparisons_of(rows: Sequence[Row]) -> list[ExactComparison]:
    """Return the comparisons of counts that the rows of both sides of a run lead to."""
    by_count: dict[tuple[str, str], dict[Side, Row]] = {}
    for row in rows:
        if is_count(row) and row.placement.side is not None:
            key = row.outcome.benchmark.name, row.outcome.metric.name
            by_count.setdefault(key, {})[row.placement.side] = row
    return [_exact_comparison(sides.get("base"), sides.get("head")) for sides in by_count.values()]


def _exact_comparison(base: Row | None, head: Row | None) -> ExactComparison:
    row = head or base
    assert row is not None  # noqa: S101 (there is one row at least)
    old, new = (count_of(one) if one is not None else None for one in (base, head))
    benchmark, policy = row.outcome.benchmark, judged_policy(row)
    if old is None or new is None:
        reasons = (_why_not(base), _why_not(head))
        return not_compared(benchmark, row.outcome.metric.name, old, new, reasons, gating=policy.gating)
    found = compare_count(benchmark, old, new, margin=policy.margin, gating=policy.gating)
    return without_blame(found) if policy.rules.same_code else found


def _why_not(row: Row | None) -> str | None:
    """Return the reason a row gives for a count that could not be made."""
    return (row.outcome.message or "").removeprefix(NOT_COUNTED) or None if row is not None else None


def _values(row: Row | None) -> tuple[float, ...]:
    return row.outcome.values if row is not None else ()


def _begins(head: Row) -> Side | None:
    order = head.placement.order
    return None if order is None else "base" if order else "head"


def _timed(rows: Sequence[Row], side: Side, metric: Metric) -> dict[int, Row]:
    """Return the row of each launch that has times of one side."""
    return {
        row.placement.launch: row
        for row in rows
        if row.placement.side == side and row.outcome.metric == metric and row.outcome.values
    }
