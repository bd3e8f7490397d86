"""What a gate's kept rows say of a commit and the row before it in the log."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit.records import Row
from perfkit.records.change_log import GateRatio


def gate_ratio(rows: Sequence[Row], *, base: str | None, head: str) -> GateRatio | None:
    """Return what a gate found for one benchmark, ``rows`` being all of that benchmark in the gate's run.

    None where the gate compared other commits, where a launch failed, where the benchmark's own source
    differs between the sides, and before the first look.
    """
    sides = {(row.placement.side, row.commit.sha) for row in rows}
    versions = {row.outcome.benchmark.version for row in rows}
    failed = any(row.outcome.status != "ok" for row in rows)
    if sides != {("base", base), ("head", head)} or len(versions) > 1 or failed:
        return None
    # They are imported here, so that a ledger without gates is read without the libraries that judge one.
    from perfkit.verdict.from_rows import pairs_of, policy_of
    from perfkit.verdict.judge import estimate

    policy = policy_of(rows)
    found = estimate(pairs_of(rows), policy)
    if found is None:
        return None
    return GateRatio(ratio=found.ratio, low=found.low, high=found.high, alpha=policy.alpha)
