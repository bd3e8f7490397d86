"""``perfkit help`` and ``perfkit schema``."""

from __future__ import annotations

import difflib
from typing import Annotated, Any

import typer

from perfkit.cli.options import examples
from perfkit.cli.output import show, write_text
from perfkit.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add both verbs."""
    app.command("help", epilog=examples("perfkit help", "perfkit help gate", "perfkit help ledger compact"))(
        help_
    )
    app.command(epilog=examples("perfkit schema", "perfkit schema gate"))(schema)


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
    known_as = "perfkit"
    for name in names:
        known = {one: found for one, found in getattr(command, "commands", {}).items() if not found.hidden}
        if not known:
            raise UsageError(
                f"`{known_as}` has no commands of its own; `{_help_of(known_as)}` shows its help"
            )
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            meant = f"did you mean `{known_as} {near[0]}`? " if near else ""
            raise UsageError(
                f'there is no command "{known_as} {name}"; {meant}`{_help_of(known_as)}` lists what there is'
            )
        command, known_as = known[name], f"{known_as} {name}"


def _help_of(known_as: str) -> str:
    return " ".join(("perfkit help", *known_as.split()[1:]))


def schema(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Which document; all are listed without it.")
    ] = None,
) -> None:
    """Print the JSON Schema of what a command writes with --json, with its version."""
    import msgspec
    from rich.table import Table

    from perfkit.commands.schemas import DOCUMENTS, document_named, schema_of

    if name is None:
        table = Table("document", "version", "written by", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        table.columns[1].justify = "right"
        for one in DOCUMENTS:
            table.add_row(one.name, str(one.version), one.written_by)
        show(table)
        return
    described = msgspec.json.encode(schema_of(document_named(name)))
    write_text(msgspec.json.format(described).decode() + "\n")
