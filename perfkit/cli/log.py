"""``perfkit log``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit, stages
from perfkit.errors import UsageError

_log = typer.Typer(
    invoke_without_command=True,
    epilog=options.examples(
        "perfkit log", "perfkit log --check", 'perfkit log note HEAD "Vectorised the triplet loss"'
    ),
)


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.add_typer(_log, name="log")


@_log.callback()
def log(
    context: typer.Context,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if the file differs from the ledger.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default: perf_log.md.")] = None,
    ledger: options.LedgerOption = None,
    json: options.JsonOption = None,
) -> None:
    """Render the perf-change log: a row per commit with (mean, sd) of each configured benchmark."""
    command = context.invoked_subcommand
    if command is not None:
        given = {"--check": check, "--out": out, "--ledger": ledger, "--json": json}
        for option in (option for option, value in given.items() if value):
            raise UsageError(
                f"{option} belongs behind the command, or to `perfkit log` alone;"
                f" see `perfkit log {command} --help`"
            )
        return
    from perfkit.commands.log import render_log
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    file = out or project.path(project.config.log.file)
    rows = options.ledger_at(ledger or project.ledger_place, to_read=True)
    with stages(only_drawn=True) as progress:
        progress.info("reading the ledger")
        result = render_log(project=project, ledger=rows, file=file, check=check)
    entries = sum(len(table.entries) for table in result.log.tables)
    text = f"{file}: {entries} rows, {'written' if result.changed else 'up to date'}"
    emit(text, result.log, json=json)


@_log.command(epilog=options.examples('perfkit log note 1a2b3c4 "Reused the distance matrix in the metrics"'))
def note(
    commit: str, text: str, *, ledger: options.LedgerOption = None, json: options.JsonOption = None
) -> None:
    """Describe a commit in your own words; the log shows it in place of the commit's subject."""
    from perfkit.commands.log import note_commit
    from perfkit.config import load_project

    project = load_project(Path.cwd())
    place = options.ledger_at(ledger or project.ledger_place)
    kept = note_commit(project=project, ledger=place, ref=commit, text=text)
    emit(f"{kept.commit[:10]}: {kept.text}", kept, json=json)
