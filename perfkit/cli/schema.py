"""``perfkit schema``."""

from __future__ import annotations

from typing import Annotated

import typer

from perfkit.cli.options import examples
from perfkit.cli.output import show, write_text


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=examples("perfkit schema", "perfkit schema gate"))(schema)


def schema(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Which document; all are listed without it.")
    ] = None,
) -> None:
    """Print the JSON Schema of what a command writes with --json, with its version."""
    import msgspec

    from perfkit.commands.schemas import DOCUMENTS, document_named, schema_of
    from perfkit.report.schemas import documents_table

    if name is None:
        show(documents_table([(one.name, one.version, one.written_by) for one in DOCUMENTS]))
        return
    described = msgspec.json.encode(schema_of(document_named(name)))
    write_text(msgspec.json.format(described).decode() + "\n")
