"""Terminal views of the ledger: its runs, one run's rows, and what checking and compacting did."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from perfkit.identity import shown_run_id
from perfkit.invocation import follow_up
from perfkit.model import ALL_STEPS, WALL_TIME, Outcome, Row, RunSummary
from perfkit.model.upkeep import Action, Compaction, Merge, Part, Problem, Repair, Verification
from perfkit.report.history import sparkline
from perfkit.report.names import BrokenName, Folded, columns_table
from perfkit.stats.summary import summary_of
from perfkit.units import amount_text, counted, human_bytes

_SHA_DIGITS = 7
_TRACE_COLUMNS = 32
_WORDS = {
    "recovered": ("recovered", "would recover"),
    "quarantined": ("moved into quarantine", "would move into quarantine"),
    "removed": ("removed", "would remove"),
    "rewritten": ("written anew", "would write anew"),
}


def runs_table(runs: Sequence[RunSummary], *, last: int = 0) -> Table:
    """Return one line for each of the last runs, or of all where ``last`` is 0, newest last."""
    left = len(runs) - last if last else 0
    title = f"{counted(left, 'older run')}: {follow_up('perfkit ledger list --last 0')}" if left > 0 else None
    texts, numbers = ("recorded (UTC)", "source", "commit"), ("bench-\nmarks", "launches", "failed")
    table = columns_table("run", texts=texts, numbers=numbers, title=title)
    for run in runs[max(left, 0) :]:
        commit = run.commits[0][:_SHA_DIGITS] + (" dirty" if run.dirty else "")
        table.add_row(
            shown_run_id(run.run_id),
            f"{run.recorded_at:%Y-%m-%d %H:%M}",
            run.source,
            commit if len(run.commits) == 1 else f"{len(run.commits)} commits",
            str(run.benchmarks),
            str(run.launches),
            str(run.failed) if run.failed else "",
        )
    return table


def rows_view(rows: Sequence[Row]) -> Group:
    """Return the rows of a run, and what a training's steps took and held from first to last."""
    followed = [row.outcome for row in rows if row.outcome.metric.name.startswith(ALL_STEPS)]
    if not followed:
        return Group(rows_table(rows))
    bars = columns_table(
        f"{followed[0].loops:,} steps a value, first to last", texts=["from"], numbers=["to"]
    )
    for one in followed:
        ends = (amount_text(end(one.values), one.metric.unit) for end in (min, max))
        name = one.metric.name.partition(": ")[2] or "time of a step"
        bars.add_row(f"{name:<16} {sparkline(one.values, _TRACE_COLUMNS)}", *ends)
    return Group(rows_table(rows), Text(), Folded(followed[0].message or ""), Text(), bars)


def rows_table(rows: Sequence[Row]) -> Table:
    """Return a line per launch; a commit that all share stands in the title."""
    commits = {row.commit.sha for row in rows}
    launches = {row.placement.launch for row in rows}
    title = f"run {rows[0].run_id}" + (f", commit {min(commits)[:_SHA_DIGITS]}" if len(commits) == 1 else "")
    texts = [*(["commit"] if len(commits) > 1 else []), *(["launch"] if len(launches) > 1 else [])]
    numbers = ("rounds", "mean", "sd", "median")
    table = columns_table("benchmark", texts=texts, numbers=numbers, title=title)
    for row in rows:
        places = {"commit": row.commit.sha[:_SHA_DIGITS], "launch": str(row.placement.launch)}
        shown = [places[heading] for heading in texts]
        table.add_row(_name(row.outcome, row.policy.marks), *shown, *_numbers(row.outcome))
    return table


def rows_sentence(rows: Sequence[Row]) -> str:
    """Return how many rows a run has, and how many of them failed."""
    failed = sum(row.outcome.status != "ok" for row in rows)
    return f"run {rows[0].run_id}: {counted(len(rows), 'row')}, {failed or 'none'} of them not measured"


def _numbers(outcome: Outcome) -> list[str]:
    summary = summary_of(outcome)
    if outcome.status != "ok" or summary is None:
        return [outcome.status, "-", "-", "-"]
    numbers = (summary.mean, summary.sd, summary.median)
    return [str(summary.n), *(amount_text(one, outcome.metric.unit) for one in numbers)]


def _name(outcome: Outcome, marks: Sequence[str] = ()) -> BrokenName:
    """Return a benchmark's name with what was measured of it and its marks, or why it was not."""
    file, separator, test = outcome.benchmark.name.partition("::")
    # The slash in a name of another tool, such as "BM_Sort/8", is of no folder.
    name = file.rpartition("/")[2] + separator + test if separator else file
    metric = "" if outcome.metric == WALL_TIME else f" ({outcome.metric.name})"
    is_measured = outcome.status == "ok" and outcome.is_measured
    message = f": {outcome.message}" if outcome.message and not is_measured else ""
    marked = f" [{', '.join(marks)}]" if marks else ""
    return BrokenName(f"{name}{metric}{message}{marked}")


def verification_view(found: Verification) -> str:
    """Return whether a ledger is sound, then a line for each problem with what to do about it."""
    amount = f"{_number(found.rows, 'row')} of {_number(found.runs, 'run')}"
    problems, files = _number(len(found.problems), "problem"), _number(found.files, "file")
    verdict = (
        f"NOT SOUND: {problems} in {found.ledger}; {amount} can be read"
        if found.problems
        else f"SOUND: {found.ledger} is as it was written, {files} with {amount}"
    )
    notes = []
    if found.unsealed:
        notes.append(
            f"No checksum in {_number(found.unsealed, 'file')}, since written by an older perfkit; "
            "decoded whole. Compacting gives one."
        )
    if found.quarantined:
        notes.append(f"{_number(found.quarantined, 'file')} in quarantine, which nothing reads: .quarantine/")
    return _text(verdict, map(_problem, found.problems), notes)


def compaction_view(done: Compaction) -> str:
    """Return what became of the files, then a line for each part."""
    notes = []
    if done.removed:
        would = "would be" if done.dry_run else "were"
        notes.append(
            f"{_number(len(done.removed), 'file')} {would} removed whose place others had taken before."
        )
    if done.in_git and done.parts and not done.dry_run:
        notes.append("Git keeps the removed files in its history; commit the new ones with the removals.")
    lines = [*map(_problem, done.problems), *map(_part, done.parts)]
    return _text(_compacted(done), lines, notes)


def _compacted(done: Compaction) -> str:
    before = _number(sum(len(part.files) for part in done.parts), "file")
    after = _number(done.files_after, "file")
    bytes_before = sum(part.bytes_before for part in done.parts)
    bytes_after = sum(part.bytes_after or 0 for part in done.parts)
    sizes = f", {human_bytes(bytes_before)} into {human_bytes(bytes_after)}" if bytes_after else ""
    if done.parts and done.dry_run:
        verdict = f"{before} would be put into {len(done.parts):,}, which leaves {after}"
    elif done.parts:
        verdict = f"{before} became {len(done.parts):,}{sizes}; the ledger has {after}"
    else:
        verdict = f"Nothing was compacted among {after}"
        if not done.problems:
            verdict += ": no month that is over has two files that fit into one"
    if done.problems:
        bad = _number(len(done.problems), "file")
        verdict += f"; {bad} cannot be read, and the others of such a month stay as they are"
    return verdict


def repair_view(done: Repair) -> str:
    """Return what was done, then a line for each file, and what is left."""
    acts, left = _number(len(done.actions), "repair"), _number(len(done.left), "problem")
    if done.dry_run:
        verdict = f"{acts} would be made in {done.ledger}, and {left} would be left"
    elif done.left:
        verdict = f"NOT SOUND: {acts} made and {left} left in {done.ledger}"
    else:
        verdict = f"SOUND: {acts} made, and nothing is left to do in {done.ledger}"
    notes = []
    if any(action.kind == "quarantined" for action in done.actions) and not done.dry_run:
        notes.append("Nothing was deleted: .quarantine/ has each file.")
    if done.tracked and not done.dry_run:
        notes[-1] += " Where git has a sound one, bring it back:"
        notes.append(f"  git -C {shlex.quote(done.ledger)} checkout -- {shlex.join(done.tracked)}")
    lines = [*(_action(action, dry_run=done.dry_run) for action in done.actions), *map(_problem, done.left)]
    return _text(verdict, lines, notes)


def merge_view(done: Merge) -> str:
    """Return what was taken over, then a line for each file that was not."""
    notes = []
    if done.removed:
        notes.append(
            f"{_number(len(done.removed), 'file')} went here whose rows are in a compacted one that came."
        )
    if done.staged:
        notes.append(
            f"{_number(done.staged, 'run')} there, cut off or still going on, did not come: "
            f"`perfkit ledger list --ledger {done.other}` recovers what was cut off."
        )
    return _text(_merged(done), map(_problem, done.problems), notes)


def _merged(done: Merge) -> str:
    taken = _number(done.runs, "run")
    if done.statements:
        taken += f" and {_number(done.statements, 'annotation')}"
    verdict = (
        f"{taken} {'would be' if done.dry_run else 'were'} taken over from {done.other}; "
        f"{_number(done.known, 'run')} of it {'was' if done.known == 1 else 'were'} here before"
    )
    if done.problems:
        return f"NOT ALL: {verdict}, and {_number(len(done.problems), 'file')} stayed there"
    return verdict


def _text(verdict: str, lines: Iterable[str], notes: Sequence[str]) -> str:
    """Return it all as lines that only the terminal wraps: the commands and paths in them can be copied."""
    return "\n".join((f"{verdict}.", *(f"  {line}" for line in lines), *notes))


def _problem(problem: Problem) -> str:
    return f"{problem.file}: {problem.what}; {problem.advice}"


def _action(action: Action, *, dry_run: bool) -> str:
    to = f" (now {action.to})" if action.to and not dry_run else ""
    return f"{_WORDS[action.kind][dry_run]} {action.file}: {action.why}{to}"


def _part(part: Part) -> str:
    before = f"{part.month or 'all'}: {_number(len(part.files), 'file')}, {human_bytes(part.bytes_before)}"
    if part.bytes_after is None:
        return before
    return f"{before}, became {human_bytes(part.bytes_after)} with {_number(part.rows or 0, 'row')}"


def _number(number: int, noun: str) -> str:
    return counted(number, noun).replace(str(number), f"{number:,}", 1)
