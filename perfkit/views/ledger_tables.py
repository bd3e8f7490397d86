"""The ledger in the terminal: a table of runs, and a table of one run's rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from perfkit.records import WALL_TIME, Outcome, Row, RunSummary
from perfkit.stats.summary import summarise
from perfkit.units import human_seconds

_ID_DIGITS = 12
_SHA_DIGITS = 10


def runs_table(runs: Sequence[RunSummary]) -> Table:
    """Return one line per run, newest last."""
    table = Table()
    for heading in ("run", "recorded (UTC)", "source", "commit"):
        table.add_column(heading, no_wrap=True)
    for heading in ("benchmarks", "launches", "failed"):
        table.add_column(heading, justify="right")
    for run in runs:
        table.add_row(
            run.run_id[-_ID_DIGITS:],
            f"{run.recorded_at:%Y-%m-%d %H:%M}",
            run.source,
            _commits(run),
            str(run.benchmarks),
            str(run.launches),
            str(run.failed) if run.failed else "",
        )
    return table


def _commits(run: RunSummary) -> str:
    first = run.commits[0][:_SHA_DIGITS] + (" dirty" if run.dirty else "")
    return first if len(run.commits) == 1 else f"{len(run.commits)} commits"


def rows_table(rows: Sequence[Row]) -> Table:
    """Return one line per launch of each benchmark: mean, sd and median over its rounds."""
    table = Table(title=f"run {rows[0].run_id}", title_justify="left")
    table.add_column("benchmark", overflow="fold", ratio=1)
    for heading in ("commit", "launch"):
        table.add_column(heading, no_wrap=True)
    for heading in ("rounds", "mean", "sd", "median"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    outcome = row.outcome
    name, place = _name(outcome), [row.commit.sha[:_SHA_DIGITS], str(row.placement.launch)]
    summary = summarise(outcome.values)
    if outcome.status != "ok" or summary is None:
        return [f"{name}: {escape(outcome.message or '')}", *place, outcome.status, "-", "-", "-"]
    return [name, *place, str(summary.n), *map(human_seconds, (summary.mean, summary.sd, summary.median))]


def _name(outcome: Outcome) -> str:
    short = escape(outcome.benchmark.name.rpartition("/")[2])
    return short if outcome.metric == WALL_TIME else f"{short} ({outcome.metric.name})"
