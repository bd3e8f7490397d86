"""``perfkit work``, which workers of an engine call; no person needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb, which no help lists."""
    app.command(hidden=True)(work)


def work(
    task: Path,
    *,
    into: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the task's ledger file goes.")],
) -> None:
    """Do the task that a file holds with the code in this folder, and write the ledger file it ends in."""
    from perfkit.features.cluster.work import run_work

    run_work(task, folder=Path.cwd(), into=into, log=typer.echo)
