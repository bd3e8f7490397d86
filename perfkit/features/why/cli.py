"""``perfkit why``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfkit.cli import options
from perfkit.cli.output import emit
from perfkit.extras import need


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(
        epilog=options.examples(
            "perfkit why train.py",
            "perfkit why package.module:function --steps 300",
            "perfkit why train.py --try -- --epochs 1",
        )
    )(why)


def why(
    target: Annotated[
        str, typer.Argument(help='A configured name, "package.module:function", a script or a notebook.')
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS]", help="What the target finds in sys.argv.")
    ] = None,
    *,
    steps: Annotated[int | None, typer.Option(help="Sample this many steps, not 20 seconds of them.")] = None,
    tries: Annotated[
        bool,
        typer.Option("--try", help="Try the first change side by side, where it can be made from outside."),
    ] = False,
    wait: options.WaitOption = None,
    json: options.JsonOption = None,
) -> None:
    """Name what slows a training loop, by file and line, and what the next change would give.

    The loop is run three times, sampled, counted and with its memory watched, which takes about a minute.
    """
    need("torch", by="perfkit why")
    from perfkit.config import load_project
    from perfkit.features.why.causes import find_causes
    from perfkit.features.why.view import why_view
    from perfkit.report.progress import PassProgress

    project = load_project(Path.cwd())
    with PassProgress(enabled=not options.is_quiet()) as progress:
        report = find_causes(
            target, arguments or (), project=project, steps=steps, wait_s=wait, tries=tries, progress=progress
        )
    emit(why_view(report, arguments or ()), report, json=json, verdict=report.verdict)
