"""``perfkit ledger import`` and ``export``: what other tools measured, and what they can read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, stages, write_text
from perfkit.errors import NotMeasuredError, PerfkitError, UsageError

if TYPE_CHECKING:
    from perfkit.features.exchange.command import ExportReport, ImportReport

_SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add the verbs."""
    app.command(
        "import",
        epilog=options.examples(
            "perfkit ledger import .asv/results",
            "perfkit ledger import .benchmarks output.json dev/bench/data.js",
            "perfkit ledger import result.json.gz --commit v1.2",
        ),
    )(import_)
    app.command(
        "export",
        epilog=options.examples(
            "perfkit ledger export --format csv --out results.csv",
            "perfkit ledger export --format asv --out asv-results",
            "perfkit ledger export --format pytest-benchmark --commit HEAD --out .benchmarks/perfkit",
            "perfkit ledger export --format tensorboard",
        ),
    )(export)


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
        Path | None, typer.Option(metavar="PATH", help="Where commits are looked up (default: this folder).")
    ] = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Add what other tools measured to the ledger: every result, its commit, its time and its machine.

    Reads results of pytest-benchmark, asv, pyperf, Google Benchmark and github-action-benchmark, and plain
    series. What was imported before is not added again.
    """
    from perfkit.features.exchange.command import ImportRequest, import_files
    from perfkit.features.exchange.formats import FORMATS

    project = options.project_in(None)
    start = repo or project.root
    if not start.is_dir():
        raise UsageError(f"--repo {start} is not a folder")
    request = ImportRequest(
        places=tuple(files),
        ledger=options.ledger_at(ledger or project.ledger_place),
        start=start,
        format=None if format_ is None else _checked_format(format_, FORMATS),
        commit=commit,
    )
    with stages() as progress:
        progress.info("importing")
        report = import_files(request, progress=progress.advance)
    emit(_summary(report), report, json=json, failure=_failure(report))


def export(
    *,
    format_: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", help="csv, json, asv, pytest-benchmark, tensorboard, wandb or mlflow."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A file, or a new folder for asv and pytest-benchmark (default: standard output); for "
            "tensorboard, wandb and mlflow the folder that they look in (default: runs, . and MLflow's own).",
        ),
    ] = None,
    benchmark: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this one: its node id, or the end of it; may be given often."
        ),
    ] = None,
    commit: Annotated[
        str | None, typer.Option(metavar="REF", help="Only this one: a ref, or the first digits of its hash.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="Only this one: the beginning or the end of its id.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="NAME", help='Only runs of this source, such as gate or "import:asv".'),
    ] = None,
    ledger: options.LedgerOption = None,
) -> None:
    """Write rows of the ledger in a format that other tools read.

    csv and json have all columns of each row. asv gets a folder of results, and pytest-benchmark a file for
    each run and commit, with times alone. tensorboard, wandb (offline) and mlflow get a run for each run of
    the ledger: the steps of trainings, and the means of benchmarks.
    """
    from perfkit.features.exchange.command import EXPORT_FORMATS, ExportRequest, export_rows

    request = ExportRequest(
        ledger=options.ledger_at(ledger or options.project_in(None).ledger_place, to_read=True),
        start=Path.cwd(),
        format=_checked_format(format_, EXPORT_FORMATS),
        out=out,
        benchmarks=tuple(benchmark or ()),
        commit=commit,
        run=run,
        source=source,
    )
    with stages(only_drawn=True) as progress:
        progress.info("exporting")
        report = export_rows(request)
    _show_export(report, out)


def _show_export(report: ExportReport, out: Path | None) -> None:
    """Print what was written, on standard error where the file itself is on standard output."""
    from perfkit.report.console import visible_lines
    from perfkit.units import counted

    if report.text is not None:
        # A file and a pipe get a sign that steers a terminal as it is: CSV has no other spelling of it.
        is_seen = sys.stdout.isatty()
        write_text(visible_lines(report.text) if is_seen else report.text)
    elif report.runs is not None:
        place = "" if out is None else f": {out}"
        typer.echo(f"wrote {counted(report.rows, 'row')} into {counted(len(report.runs), 'run')}{place}")
    else:
        typer.echo(f"wrote {counted(report.rows, 'row')} into {counted(len(report.files), 'file')}: {out}")
    for what, count in report.left_out.items():
        typer.echo(f"perfkit: left out: {count} {what}", err=True)


def _checked_format(text: str, formats: Sequence[Any]) -> Any:  # noqa: ANN401 (one of them)
    if text not in formats:
        raise UsageError(f'--format must be one of {", ".join(formats)}, found "{text}"')
    return text


def _summary(report: ImportReport) -> str:
    """Return what was done in sentences, and what is doubtful in a line each."""
    from perfkit.report.console import visible
    from perfkit.units import counted

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
        lines.append(f"of these, {failed} are benchmarks that failed or were skipped")
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
    from perfkit.report.console import visible

    if not report.problems:
        return None
    first, *others = map(visible, report.problems)
    failure = NotMeasuredError(first)
    for other in others:
        failure.add_note(other)
    return failure
