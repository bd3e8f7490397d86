"""What a gate's kept rows say of a commit and the row before it in the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perfkit.model import Row
from perfkit.model.change_log import GateRatio

# Returns the whole rows of the times of a benchmark in a run.
TimesOf = Callable[[str, str], Sequence[Row]]


def gate_ratio(
    run_id: str, benchmark: str, times_of: TimesOf, *, base: str | None, head: str
) -> GateRatio | None:
    """Return what a gate found for one benchmark: the estimate that its verdict rests on.

    None where the gate compared other commits, where a launch failed, where the benchmark's own source
    differs between the sides, and before the first look.
    """
    rows = times_of(run_id, benchmark)
    sides = {(row.placement.side, row.commit.sha) for row in rows}
    versions = {row.outcome.benchmark.version for row in rows}
    failed = any(row.outcome.status != "ok" for row in rows)
    if sides != {("base", base), ("head", head)} or len(versions) > 1 or failed:
        return None
    # They are imported here, so that a ledger without gates is read without the libraries that judge one.
    from perfkit.gating.rows import comparison_of
    from perfkit.model.policies import judged_policy

    policy = judged_policy(rows[0])
    found = comparison_of(rows, [times_of(run, benchmark) for run in policy.continues]).estimate
    if found is None:
        return None
    return GateRatio(ratio=found.ratio, low=found.low, high=found.high, alpha=policy.rules.alpha)
