"""The lines of a markdown table."""

from __future__ import annotations

from collections.abc import Sequence


def table_head(headings: Sequence[str]) -> list[str]:
    """Return the two lines above a table's rows."""
    return [table_row(headings), table_row([":---"] * len(headings))]


def table_row(cells: Sequence[str]) -> str:
    """Return one line of a table; a cell may hold no bare "|" and no end of line."""
    return f"| {' | '.join(cells)} |"
