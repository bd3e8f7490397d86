"""Lists the JSON documents that commands write."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table


def documents_table(documents: Iterable[tuple[str, int, str]]) -> Table:
    """Return a line for each document: its name, its version, and what writes it."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("document", no_wrap=True)
    table.add_column("version", no_wrap=True, justify="right")
    table.add_column("written by")
    for name, version, written_by in documents:
        table.add_row(name, str(version), written_by)
    return table
