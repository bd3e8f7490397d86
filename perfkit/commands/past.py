"""Earlier runs beside new ones: under a gate's report, and at the end of a pytest session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from perfkit.errors import LedgerError
from perfkit.ledger.store import Here, Ledger, Wanted
from perfkit.model import Row
from perfkit.model.comparisons import GateReport
from perfkit.model.history import Trend

# A picture of fewer runs shows nothing; one of more has no more columns.
_FEWEST, _MOST = 5, 40
# Enough runs to show how much sessions differ, and few enough to be read quickly from any ledger.
_RUNS = 30


def with_past(report: GateReport, *, ledger: Path, root: Path) -> GateReport:
    """Return a gate's report with earlier levels of what regressed; an error becomes a note."""
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
    past = {}
    for one in regressed:
        own = [
            trend.levels for trend in trends if (trend.benchmark, trend.version) == (one.name, one.version)
        ]
        past[one.name] = max(own, key=len, default=())
    return replace(report, past={name: levels for name, levels in past.items() if len(levels) >= _FEWEST})


def _in_order(ledger: Path, here: Here, root: Path, *, before: datetime) -> Sequence[Trend]:
    # Imported late: few gates find anything, and the history takes long to import.
    from perfkit.commands.history import facts_of_commits
    from perfkit.ledger.history.trends import Order, arrange, chained, select
    from perfkit.repo.commits import KnownCommits

    found = Ledger(ledger).trends(Wanted(here=here))
    order = Order.of(facts_of_commits(KnownCommits(root), found).values())
    earlier = (
        select(trend, [place for place, at in enumerate(trend.recorded_at) if at < before])
        for trend in found.trends
    )
    arranged = arrange((trend for trend in earlier if len(trend)), order)
    return [chained(trend) if trend.lockstep else trend for trend in arranged]


def compared_with_last(rows: Sequence[Row], ledger: Ledger) -> tuple[str, ...]:
    """Return lines on how a pytest session's times differ from the last runs here, none without any."""
    from perfkit.ledger.history.change_points import moved_since_last
    from perfkit.report.history import last_runs_lines

    first = rows[0]
    here = Here(
        benchmarks={row.outcome.benchmark.name for row in rows},
        machine_id=first.machine.machine_id,
        env_id=first.environment.env_id,
        runs=_RUNS,
    )
    try:
        found = ledger.trends(Wanted(here=here))
    except LedgerError as error:
        return (f"not compared with earlier runs: {error}",)
    measured = None if first.commit.dirty else first.commit.sha
    return tuple(last_runs_lines(moved_since_last(rows, found.trends), measured=measured))
