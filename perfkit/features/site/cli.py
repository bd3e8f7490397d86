"""``perfkit report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, stages


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit report", "perfkit report --out public/performance", "perfkit report --trends docs/trends"
        )
    )(report)


def report(
    *,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Folder of the pages (default: site).")
    ] = None,
    trends: Annotated[
        Path | None,
        typer.Option("--trends", metavar="FOLDER", help="Write only a picture of each trend, to link to."),
    ] = None,
    benchmarks: Annotated[
        list[str] | None,
        typer.Option("--benchmark", metavar="NAME", help="Only pictures of this one; may be given often."),
    ] = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Write static pages of the history: an overview, a chart for each benchmark, gates, profiles, machines.

    They open from a disk and from any web server, and load nothing from elsewhere. Equal ledgers give equal
    files. The table `tool.perfkit.report` of the configuration links commits to a forge.
    """
    from perfkit.config import load_project
    from perfkit.errors import UsageError

    if out is not None and trends is not None:
        raise UsageError("--out and --trends exclude one another: the pages have pictures of all trends")
    if benchmarks and trends is None:
        raise UsageError("--benchmark chooses pictures, and pages have all benchmarks; add --trends FOLDER")
    project = load_project(Path.cwd())
    place = options.ledger_at(ledger or project.ledger_place, to_read=True)
    if trends is not None:
        with stages(only_drawn=True) as progress:
            progress.info("reading the history")
            from perfkit.features.site.command import write_trends

            written = write_trends(
                project=project, ledger=place, folder=trends, benchmarks=tuple(benchmarks or ())
            )
        text = f"{written.folder}: {written.files} pictures"
    else:
        with stages() as progress:
            progress.info("reading the ledger")
            from perfkit.features.site.command import DEFAULT_OUT, make_report

            folder = out or project.path(project.config.report.out or DEFAULT_OUT)
            written = make_report(project=project, ledger=place, out=folder, progress=progress)
        text = f"{written.folder / 'index.html'}: {written.files} files"
    removed = f", {written.removed} removed" if written.removed else ""
    emit(f"{text}, {written.changed} of them new or changed{removed}", written, json=json)
