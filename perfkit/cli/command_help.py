"""``perfkit help``."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from perfkit.cli.options import examples
from perfkit.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("help", epilog=examples("perfkit help", "perfkit help gate", "perfkit help ledger compact"))(
        help_
    )


def help_(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[COMMAND [SUBCOMMAND]]", help="Whose help to show.")
    ] = None,
) -> None:
    """Show the help of perfkit or of one command: what --help shows."""
    root = context.find_root()
    command: Any = root.command
    if names:
        command.load(names[0])
    _check_known(command, names or [])
    command.main([*(names or []), "--help"], prog_name=root.info_name, standalone_mode=False)


def _check_known(command: Any, names: list[str]) -> None:  # noqa: ANN401 (the library's own type moves)
    """Refuse a command that there is not, with the one that was probably meant."""
    said = "perfkit"
    for name in names:
        known = {one: found for one, found in getattr(command, "commands", {}).items() if not found.hidden}
        if not known:
            raise UsageError(f"`{said}` has no commands of its own; `{_of(said)}` shows its help")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            meant = f"did you mean `{said} {near[0]}`? " if near else ""
            raise UsageError(f'there is no command "{said} {name}"; {meant}`{_of(said)}` lists what there is')
        command, said = known[name], f"{said} {name}"


def _of(said: str) -> str:
    return " ".join(("perfkit help", *said.split()[1:]))
