"""Shows the ledger in the terminal: a table of runs, and a table of one run's rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.table import Table

from perfkit.model import WALL_TIME, Outcome, Row, RunSummary
from perfkit.report.counts import amount_text
from perfkit.report.names import BrokenName, NamedTable
from perfkit.stats.summary import summary_of
from perfkit.units import counted, human_seconds

_ID_DIGITS = 8
_SHA_DIGITS = 7


def runs_table(runs: Sequence[RunSummary], *, last: int = 0) -> Table:
    """Return one line for each of the last runs, or of all where ``last`` is 0, newest last."""
    left = len(runs) - last if last else 0
    title = f"{counted(left, 'older run')}: perfkit ledger list --last 0" if left > 0 else None
    table = NamedTable(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("run", "recorded (UTC)", "source", "commit"):
        table.add_column(heading, no_wrap=True)
    for heading in ("bench-\nmarks", "launches", "failed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs[max(left, 0) :]:
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
    """Return one line per launch of each benchmark: mean, sd and median over its rounds.

    A commit that all share stands in the title, and a launch that is the only one nowhere.
    """
    commits = {row.commit.sha for row in rows}
    launches = {row.placement.launch for row in rows}
    title = f"run {rows[0].run_id}" + (f", commit {min(commits)[:_SHA_DIGITS]}" if len(commits) == 1 else "")
    table = NamedTable(title=title, title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("benchmark", ratio=1)
    for heading in _place_headings(len(commits), len(launches)):
        table.add_column(heading, no_wrap=True)
    for heading in ("rounds", "mean", "sd", "median"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        places = {"commit": row.commit.sha[:_SHA_DIGITS], "launch": str(row.placement.launch)}
        shown = [places[heading] for heading in _place_headings(len(commits), len(launches))]
        table.add_row(_name(row.outcome, row.policy.marks), *shown, *_numbers(row.outcome))
    return table


def rows_sentence(rows: Sequence[Row]) -> str:
    """Return how many rows a run has, and how many of them say that something failed."""
    failed = sum(row.outcome.status != "ok" for row in rows)
    return f"run {rows[0].run_id}: {counted(len(rows), 'row')}, {failed or 'none'} of them not measured"


def _place_headings(commits: int, launches: int) -> list[str]:
    return [*(["commit"] if commits > 1 else []), *(["launch"] if launches > 1 else [])]


def _numbers(outcome: Outcome) -> list[str]:
    summary = summary_of(outcome)
    if outcome.status != "ok" or summary is None:
        return [outcome.status, "-", "-", "-"]
    unit = outcome.metric.unit
    numbers = (summary.mean, summary.sd, summary.median)
    return [
        str(summary.n),
        *(human_seconds(one) if unit == WALL_TIME.unit else amount_text(one, unit) for one in numbers),
    ]


def _name(outcome: Outcome, marks: Sequence[str] = ()) -> BrokenName:
    """Return a benchmark's name with what was measured of it and its marks, or why it was not."""
    file, separator, test = outcome.benchmark.name.partition("::")
    # The slash in a name of another tool, such as "BM_Sort/8", is of no folder.
    name = file.rpartition("/")[2] + separator + test if separator else file
    metric = "" if outcome.metric == WALL_TIME else f" ({outcome.metric.name})"
    message = f": {outcome.message}" if outcome.status != "ok" and outcome.message else ""
    marked = f" [{', '.join(marks)}]" if marks else ""
    return BrokenName(f"{name}{metric}{message}{marked}")
