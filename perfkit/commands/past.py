"""What a gate's report shows of the time before it: how benchmarks that regressed ran until then."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from perfkit.ledger.store import Here, Ledger, Wanted
from perfkit.model.comparisons import GateReport
from perfkit.model.history import Trend

# A picture of fewer runs shows nothing; one of more has no more columns.
_FEWEST, _MOST = 5, 40


def with_past(report: GateReport, *, ledger: Path, root: Path) -> GateReport:
    """Return a report with the levels of what regressed in the last runs before it, in the order of commits.

    They are of the same machine and version of a benchmark, in any environment: a gate holds its own steady,
    and other runs have other ones. Only a gate in which something regressed asks the ledger. What cannot be
    read is a note: the verdict stands without a picture.
    """
    regressed = [one.benchmark for one in report.comparisons if one.verdict == "REGRESSED"]
    if not regressed:
        return report
    here = Here(
        benchmarks={one.name for one in regressed},
        machine_id=report.machine.machine_id,
        env_id=None,
        runs=_MOST,
    )
    try:
        trends = _in_order(ledger, here, root, before=report.recorded_at)
    except Exception as error:  # noqa: BLE001 (no picture may cost a verdict)
        return replace(report, notes=(*report.notes, f"no pictures of earlier runs: {error}"))
    past = {one.name: _levels(trends, one.name, one.version) for one in regressed}
    return replace(report, past={name: levels for name, levels in past.items() if len(levels) >= _FEWEST})


def _in_order(ledger: Path, here: Here, root: Path, *, before: datetime) -> Sequence[Trend]:
    # Few gates find anything, and what a history imports takes long.
    from perfkit.commands.history import facts_of_commits
    from perfkit.ledger.history.trends import Order, arrange, chained, select

    found = Ledger(ledger).trends(Wanted(here=here))
    order = Order.of(facts_of_commits(root, found).values())
    earlier = (
        select(trend, [place for place, at in enumerate(trend.recorded_at) if at < before])
        for trend in found.trends
    )
    arranged = arrange((trend for trend in earlier if len(trend)), order)
    return [chained(trend) if trend.lockstep else trend for trend in arranged]


def _levels(trends: Collection[Trend], benchmark: str, version: str) -> tuple[float, ...]:
    """Return the levels of the longer trend: of gates, or of runs that measured commits apart."""
    own = [trend.levels for trend in trends if (trend.benchmark, trend.version) == (benchmark, version)]
    return max(own, key=len, default=())
