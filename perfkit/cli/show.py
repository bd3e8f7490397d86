"""``perfkit show``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli.options import JsonOption, examples
from perfkit.cli.output import show as show_view
from perfkit.cli.output import write_json


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=examples(
            "perfkit show profiles/first_profile.stat",
            "perfkit show old.prof new.trace.json.gz",
            "perfkit show first_profile.stat --filtered mypackage",
            "perfkit show trace.json --json - | jq .[0].phases",
        )
    )(show)


def show(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Profiles, of whatever kind.")],
    *,
    txt: Annotated[bool, typer.Option("--txt", help="Print every function, in pstats' columns.")] = False,
    filtered: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE", help="Take this package for your own code, and show it (repeatable)."
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Show what profiles say: of cProfile (.stat, .prof), torch.profiler (.json, .json.gz) or perfkit.

    Totals, training steps and the time of each, whom the loop waits for, and where its time goes. Files are
    read in a process of their own with little memory, and nothing in them is run.
    """
    from perfkit.config import load_project
    from perfkit.jobs.show import read_profiles
    from perfkit.views.reading.terminal import reading_view
    from perfkit.views.reading.text import reading_text

    own = tuple(filtered or ())
    readings = read_profiles(files, project=load_project(Path.cwd()), own=own)
    for reading in readings:
        as_text = txt or own
        view = reading_text(reading, own_only=bool(own)) if as_text else reading_view(reading)
        show_view(view, to_json=json)
    write_json(readings, json)
