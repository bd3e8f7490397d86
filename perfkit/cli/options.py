"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LedgerOption = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="PATH", help="Folder of the ledger (default: the configured one)."),
]
JsonOption = Annotated[
    str | None,
    typer.Option(
        "--json", metavar="FILE", help="Write the result as JSON to a file, or to standard output (-)."
    ),
]


def examples(*lines: str) -> str:
    """Return an epilog for a command's ``--help`` that shows how it is used, a line per example."""
    return "\n\n".join(("Examples:", *(f"$ {line}" for line in lines)))
