"""``perfkit view``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.options import examples


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit view profiles/first_profile.stat", "perfkit view first_profile.stat --server"
        )
    )(view)


def view(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A cProfile, such as first_profile.stat.")],
    *,
    server: Annotated[
        bool, typer.Option("--server", help="Only print the address; so it is where there is no browser.")
    ] = False,
) -> None:
    """Open a profile in the browser with snakeviz, until Ctrl-C."""
    from perfkit.commands.show import view as run

    sys.exit(run(file, server=server))
