"""``perfkit ledger import``: what other tools measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfkit.cli.options import JsonOption, LedgerOption, examples, ledger_at, project_in
from perfkit.cli.output import tell
from perfkit.errors import NotMeasuredError, PerfkitError, UsageError

if TYPE_CHECKING:
    from perfkit.exchange.formats import Format
    from perfkit.jobs.ledger_exchange import ImportReport

_SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(
        "import",
        epilog=examples(
            "perfkit ledger import .asv/results",
            "perfkit ledger import .benchmarks output.json dev/bench/data.js",
            "perfkit ledger import result.json.gz --commit v1.2",
        ),
    )(import_)


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Files, or folders with such files below them.")
    ],
    *,
    format_: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="The format of all files (default: what is in them)."),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(metavar="REF", help="The commit of files that name none: a ref, or 40 hex digits."),
    ] = None,
    repo: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Where commits are looked up (default: this folder)."),
    ] = None,
    ledger: LedgerOption = None,
    json: JsonOption = None,
) -> None:
    """Add what other tools measured to the ledger: every result, its commit, its time and its machine.

    Read are results of pytest-benchmark, asv, pyperf, Google Benchmark and github-action-benchmark, and plain
    series. A file for each commit is added, and what was imported before is not added again.
    """
    from perfkit.jobs.ledger_exchange import ImportRequest, import_files
    from perfkit.views.progress import StageProgress

    project = project_in(None)
    start = repo or project.root
    if not start.is_dir():
        raise UsageError(f"--repo {start} is not a folder")
    request = ImportRequest(
        places=tuple(files),
        ledger=ledger_at(ledger or project.ledger_path),
        start=start,
        format=_format(format_),
        commit=commit,
    )
    with StageProgress() as progress:
        progress.say("importing")
        report = import_files(request, progress=progress.tell)
    tell(_told(report), report, json=json, failure=_failure(report))


def _format(text: str | None) -> Format | None:
    """Return the format that ``--format`` names.

    Raises:
        UsageError: it is none that is known.
    """
    from perfkit.exchange.formats import FORMATS

    for name in FORMATS:
        if text == name:
            return name
    if text is not None:
        raise UsageError(f'--format must be one of {", ".join(FORMATS)}, found "{text}"')
    return None


def _told(report: ImportReport) -> str:
    """Return what was done in sentences, and what is doubtful in a line each."""
    from perfkit.units import counted
    from perfkit.views.names import visible

    added = report.added
    commits = {run.commit for run in added}
    rows = sum(run.rows - run.present for run in added)
    lines = [
        f"imported {counted(len(added), 'run')} of {counted(len(commits), 'commit')} from "
        f"{counted(report.files, 'file')} into {report.ledger}: {counted(rows, 'result')}"
        if added
        else f"imported nothing from {counted(report.files, 'file')} into {report.ledger}"
    ]
    failed = sum(run.failed for run in added)
    if failed:
        lines.append(f"of these, {failed} say that the benchmark failed or was skipped")
    present, partly = len(report.runs) - len(added), sum(run.present for run in added)
    if present:
        lines.append(f"{counted(present, 'run')} {'is' if present == 1 else 'are'} in the ledger already")
    if partly:
        lines.append(f"{counted(partly, 'result')} of the other runs were in the ledger already")
    lines += [f"look at this: {visible(doubt)}" for doubt in report.doubts[:_SHOWN]]
    if len(report.doubts) > _SHOWN:
        lines.append(f"and at {len(report.doubts) - _SHOWN} more such things, which --json FILE names")
    return "\n".join(lines)


def _failure(report: ImportReport) -> PerfkitError | None:
    """Return what is wrong with the files that could not be imported."""
    from perfkit.views.names import visible

    if not report.problems:
        return None
    first, *others = map(visible, report.problems)
    failure = NotMeasuredError(first)
    for other in others:
        failure.add_note(other)
    return failure
