"""Writes the lines of a markdown table, and free text in markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence


def table_head(headings: Sequence[str]) -> list[str]:
    """Return the two lines above a table's rows."""
    return [table_row(headings), table_row([":---"] * len(headings))]


def table_row(cells: Sequence[str]) -> str:
    """Return one line of a table; a cell may hold no bare "|" and no end of line."""
    return f"| {' | '.join(cells)} |"


def escape(text: str) -> str:
    """Keep free text from ending a cell or turning into markup."""
    return re.sub(r"([|<\\])", r"\\\1", " ".join(text.split()))


def code(text: str) -> str:
    """Return text as code: nothing in it is markup, not even a backtick."""
    line = " ".join(text.split())
    return f"`` {line} ``" if "`" in line else f"`{line}`"


def cell_code(text: str) -> str:
    """Return text as code in a table, where a bare "|" would end the cell even so."""
    return code(text).replace("|", r"\|")
