"""``perfkit mcp``."""

from __future__ import annotations

from pathlib import Path

import typer

from perfkit.cli import options
from perfkit.cli.output import log


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(epilog=options.examples("perfkit mcp", "perfkit mcp --repo ../project"))(mcp)


def mcp(*, repo: options.RepoOption = None) -> None:
    """Serve this repository to one client of the Model Context Protocol, on standard input and output.

    Its tools answer with the JSON documents of the commands. One call runs at a time; cancelled calls and
    those of clients that are gone leave nothing behind. Paths outside of the repository are refused.
    """
    from perfkit.extras import need
    from perfkit.repo.commits import open_repository

    need("mcp", by="perfkit mcp")
    folder = (repo or Path.cwd()).resolve()
    options.project_in(folder)
    top = open_repository(folder)
    log(f"serving {top} on standard input and output", to_json=options.STANDARD_OUTPUT)
    from perfkit.features.mcp.server import serve

    serve(folder, top)
