"""From ledger rows to the change log.

A commit may have been measured in many runs. Its cell shows the run that measured it in alternation with
the row before, else the one with most launches, else the newest; but when the newest run failed, the cell
says so. A run with uncommitted changes on any side is not used for any commit, and neither is one that
changes the code on purpose.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeVar

from perfkit.errors import ConfigError
from perfkit.history.gates import gate_ratio
from perfkit.records import OF_CHANGED_CODE, Environment, Row
from perfkit.records.change_log import Cell, ChangeLog, Column, Entry, History, Table
from perfkit.records.policies import JudgedPolicy
from perfkit.stats.summary import paired_ratio, summarise, summary_of
from perfkit.views.markdown_table import cell_code

Key = TypeVar("Key")

_DEFAULT_COLUMNS = 4
# These findings of a gate only say that its sides differ; they do not mean that the benchmark failed.
_NO_FAILURES = frozenset({"NEW", "MISSING", "CHANGED", "SKIPPED"})
_UNKNOWN_TIME = datetime.max.replace(tzinfo=UTC)


def build_change_log(rows: Sequence[Row], columns: Sequence[Column], history: History) -> ChangeLog:
    """Return the log of ``rows``; without columns it has the benchmarks with the longest history.

    Raises:
        ConfigError: a column could mean more than one benchmark.
    """
    own = [row for row in rows if row.source not in OF_CHANGED_CODE]
    timed = [row for row in own if row.outcome.metric.name == "time" and not row.outcome.metric.exact]
    dirty_runs = {row.run_id for row in own if row.commit.dirty}
    clean = [row for row in timed if row.run_id not in dirty_runs]
    chosen = tuple(columns) or _longest_histories(clean)
    _check_unambiguous(chosen, {row.outcome.benchmark.name for row in clean})
    shown = [row for row in clean if any(column.shows(row.outcome.benchmark.name) for column in chosen)]
    by_machine = _group(shown, lambda row: row.machine.machine_id)
    return ChangeLog(
        tables=tuple(_table(group, chosen, history) for group in by_machine.values()),
        dirty_runs=len(dirty_runs),
    )


def _check_unambiguous(columns: Sequence[Column], names: Iterable[str]) -> None:
    known = sorted(names)
    for column in columns:
        meant = [name for name in known if column.shows(name)]
        if len(meant) > 1:
            raise ConfigError(
                f'log column "{column.benchmark}" could mean {" or ".join(meant[:2])}; give the whole node id'
            )


def _longest_histories(rows: Sequence[Row]) -> tuple[Column, ...]:
    measured = {(row.outcome.benchmark.name, row.commit.sha) for row in rows}
    commits = Counter(name for name, _ in sorted(measured))
    names = sorted(commits, key=lambda name: (-commits[name], name))[:_DEFAULT_COLUMNS]
    return tuple(Column(title=cell_code(name.rpartition("::")[2]), benchmark=name) for name in names)


def _table(rows: Sequence[Row], columns: tuple[Column, ...], history: History) -> Table:
    by_commit = _group(rows, lambda row: row.commit.sha)
    ordered = sorted(by_commit, key=lambda sha: _place(sha, by_commit[sha][0], history))
    of_columns = [[row for row in rows if column.shows(row.outcome.benchmark.name)] for column in columns]
    entries = tuple(
        Entry(
            commit=sha,
            description=history.notes.get(sha) or by_commit[sha][0].commit.subject or "",
            cells=tuple(_cell(mine, sha, before) for mine in of_columns),
        )
        for before, sha in itertools.pairwise([None, *ordered])
        if sha is not None
    )
    return Table(
        machine=max(rows, key=lambda row: row.recorded_at).machine,
        environments=_shown_environments(rows, entries),
        columns=columns,
        entries=entries,
    )


def _shown_environments(rows: Sequence[Row], entries: Sequence[Entry]) -> tuple[Environment, ...]:
    """Return the environments of the runs that cells show, in the order of recording."""
    known = {row.environment.env_id: row.environment for row in rows}
    shown = {cell.env_id for entry in entries for cell in entry.cells if cell is not None}
    return tuple(environment for env_id, environment in known.items() if env_id in shown)


def _place(sha: str, row: Row, history: History) -> tuple[float, datetime, str]:
    """Return the sort key of a commit: its place in history; commits that git does not know come last."""
    return (history.order.get(sha, float("inf")), row.commit.time or _UNKNOWN_TIME, sha)


def _cell(rows: Sequence[Row], sha: str, before: str | None) -> Cell | None:
    """Return what the rows of one column say of a commit; None where they say nothing."""
    own = [row for row in rows if row.commit.sha == sha]
    if not own:
        return None
    newest = max(own, key=lambda row: row.recorded_at)
    failed = [row for row in own if row.run_id == newest.run_id and _is_failure(row)]
    if failed:
        return Cell(failure=_failure(failed, own, newest.run_id), env_id=newest.environment.env_id)
    measured = [row for row in rows if row.outcome.status == "ok" and row.outcome.is_measured]
    if all(row.commit.sha != sha for row in measured):
        return None
    run_id = _choose_run(measured, sha, before)
    shown = [row for row in measured if row.run_id == run_id]
    current = max(rows, key=lambda row: row.recorded_at).outcome.benchmark.version
    cell = _measured_cell(shown, sha, current)
    if shown[0].source == "gate":
        whole = [row for row in rows if row.run_id == run_id]
        return replace(cell, gate=gate_ratio(whole, base=before, head=sha))
    return replace(cell, ratio=paired_ratio(_pairs(shown, sha, before)))


def _is_failure(row: Row) -> bool:
    """Tell whether a benchmark failed or was skipped; one that a gate could not compare did not fail."""
    policy = row.policy
    compared = not (isinstance(policy, JudgedPolicy) and policy.verdict in _NO_FAILURES)
    return row.outcome.status != "ok" and compared


def _failure(failed: Sequence[Row], own: Sequence[Row], run_id: str) -> str:
    launches = sum(row.run_id == run_id for row in own)
    row = failed[0]
    word = "skipped" if row.outcome.status == "skipped" else "failed"
    share = f" ({len(failed)} of {launches} launches)" if launches > 1 else ""
    cause = row.outcome.message or row.outcome.status
    return f"{word}{share}: {cause}"


def _choose_run(rows: Sequence[Row], sha: str, before: str | None) -> str:
    """Return the run to show for a commit: interleaved with the row before, most launches, newest."""
    own = _group((row for row in rows if row.commit.sha == sha), lambda row: row.run_id)
    beside = {row.run_id for row in rows if row.commit.sha == before and _is_alternating(row)}
    return max(own, key=lambda run: (run in beside, len(own[run]), own[run][-1].recorded_at))


def _is_alternating(row: Row) -> bool:
    """Tell whether a run compares later commits with the one of this row."""
    return row.placement.side == "base" if row.source == "gate" else row.placement.block is not None


def _measured_cell(rows: Sequence[Row], sha: str, version: str) -> Cell:
    own = [row for row in rows if row.commit.sha == sha]
    summary = summary_of(own[0].outcome) if len(own) == 1 else summarise([_location(row) for row in own])
    return Cell(
        mean=summary.mean if summary else None,
        sd=summary.sd if summary else None,
        launches=len(own),
        env_id=own[0].environment.env_id,
        other_version=own[0].outcome.benchmark.version != version,
    )


def _pairs(rows: Sequence[Row], sha: str, before: str | None) -> list[tuple[float, float]]:
    """Return (before, this) of each block in which one version of the benchmark ran on both commits."""
    located = {
        (row.commit.sha, row.placement.block, row.outcome.benchmark.version): _location(row)
        for row in rows
        if row.placement.block is not None
    }
    return [
        (located[before, block, version], mine)
        for (commit, block, version), mine in located.items()
        if before is not None and commit == sha and (before, block, version) in located
    ]


def _location(row: Row) -> float:
    summary = row.outcome.summary
    return statistics.fmean(row.outcome.values) if summary is None else summary.mean


def _group(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)
