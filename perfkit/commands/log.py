"""``perfkit log``: render the perf-change log from the ledger, check it, and keep notes on commits."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.commands.text_files import read_text, replace_between_markers, replace_text
from perfkit.config import Project
from perfkit.errors import NotMeasuredError, OutOfDateError, UsageError
from perfkit.identity import utc_now
from perfkit.ledger.annotations import Note, add_note, read_notes
from perfkit.ledger.history.change_log import build_change_log, most_measured
from perfkit.ledger.store import Ledger
from perfkit.model import Row
from perfkit.model.history import ChangeLog, Column, GateRatio, History
from perfkit.repo.commits import history_order, open_repository, resolve
from perfkit.repo.git import reading_only
from perfkit.report.change_log import render_change_log, trend_name
from perfkit.units import counted

_TITLE = "# Performance change log\n"


@dataclass(frozen=True, kw_only=True)
class RenderedLog:
    """The log, and the file that shows it."""

    log: ChangeLog
    file: Path
    changed: bool


@reading_only()
def render_log(*, project: Project, ledger: Path, file: Path, check: bool) -> RenderedLog:
    """Write the log between its markers in ``file``; what people wrote around them stays."""
    log = read_change_log(project=project, ledger=ledger)
    if not log.tables:
        raise NotMeasuredError(_nothing_to_render(log, project, ledger))
    before = read_text(file, default=_TITLE)
    after = replace_between_markers(before, render_change_log(log), name="log")
    changed = after != before or not file.exists()
    if check and changed:
        raise OutOfDateError(f"{file} does not show what the ledger {ledger} has; run `perfkit log`")
    if changed:
        replace_text(file, after, option="--out")
    return RenderedLog(log=log, file=file, changed=changed)


def _nothing_to_render(log: ChangeLog, project: Project, ledger: Path) -> str:
    of = "any benchmark of [tool.perfkit.log]" if project.config.log.columns else "any benchmark"
    found, first = "", ""
    if log.dirty_runs:
        found = f", only {counted(log.dirty_runs, 'run')} on uncommitted changes"
        first = "commit your changes, then "
    return (
        f"nothing to render yet: {ledger} has no time of {of} at a commit{found}; {first}measure with"
        " `pytest --benchmark-autosave` or `perfkit gate`, and run `perfkit log` again"
    )


@reading_only()
def read_change_log(*, project: Project, ledger: Path) -> ChangeLog:
    """Return the change log of a ledger with the project's columns."""
    kept = Ledger(ledger)
    columns = [
        Column(title=column.title, benchmark=column.benchmark) for column in project.config.log.columns
    ]
    shown = columns or most_measured(kept.timed_benchmarks())
    found = kept.measurements([column.benchmark for column in shown])
    history = History(
        order=history_order(project.root, {one.commit for one in found.measured}),
        notes={commit: note.text for commit, note in read_notes(ledger).items()},
    )
    return build_change_log(
        found,
        shown,
        history,
        gate_ratio_of=functools.partial(_gate_ratio, kept.times_of),
        picture_of=functools.partial(_picture_of, project),
    )


def _gate_ratio(
    times_of: Callable[[str, str], Sequence[Row]], run_id: str, name: str, base: str | None, head: str
) -> GateRatio | None:
    # A ledger without gates is read without the libraries that judge one.
    from perfkit.gating.rows import gate_ratio

    return gate_ratio(times_of, run_id, name, base, head)


def _picture_of(project: Project, benchmark: str, machine_id: str) -> str | None:
    """Return the path from the log to the picture of a trend, None where there is none."""
    log = project.config.log
    if log.trends is None:
        return None
    picture = project.path(log.trends) / trend_name(benchmark, machine_id)
    return (
        Path(os.path.relpath(picture, project.path(log.file).parent)).as_posix()
        if picture.is_file()
        else None
    )


@reading_only()
def note_commit(*, project: Project, ledger: Path, ref: str, text: str) -> Note:
    """Keep a change description for a commit; the log shows it in place of the commit's subject."""
    if not text.strip():
        raise UsageError('a note needs a text; `perfkit log note COMMIT "text"`')
    commit = resolve(open_repository(project.root), ref)
    note = Note(commit=commit.sha, text=text.strip(), recorded_at=utc_now())
    add_note(ledger, note)
    return note
