"""The root command and its verbs."""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

import typer

from perfkit.cli import (
    accept,
    backfill,
    calibrate,
    compare,
    doctor,
    experiment,
    explain,
    gate,
    ledger,
    log,
    profile,
    show,
    tricks,
    view,
)
from perfkit.cli.options import examples

app = typer.Typer(
    name="perfkit",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    epilog=examples(
        "perfkit gate",
        "perfkit profile train --out profiles/first_profile.stat",
        "pytest benchmarks/ --benchmark-autosave",
        "perfkit log",
    ),
)
gate.register(app)
profile.register(app)
show.register(app)
explain.register(app)
view.register(app)
log.register(app)
ledger.register(app)
backfill.register(app)
compare.register(app)
doctor.register(app)
calibrate.register(app)
experiment.register(app)
tricks.register(app)
accept.register(app)


@app.callback()
def perfkit(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=lambda value: _say_version(value=value), is_eager=True)
    ] = False,
) -> None:
    """Profile PyTorch training code, keep every measurement by git commit, and see what each change cost."""


def _say_version(*, value: bool) -> None:
    if value:
        typer.echo(f"perfkit {importlib.metadata.version('perfkit')}")
        raise typer.Exit
