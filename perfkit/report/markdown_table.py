"""Writes the lines of a markdown table, parts that open on demand, and free text in markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfkit.report.console import visible

# What begins markup wherever it stands: a "_" behind a letter does not, and neither does a bare "&".
_MARKUP = re.compile(r"[\\`\[<|]|\*(?=\S)|~(?=~)|(?<=~)~|(?<![^\W_])_|&(?=#?\w+;)")
# What makes a heading, a list, a quotation or a line of the text that it begins.
_BEGINNING = re.compile(r"^(?=(?:#{1,6}|[-+=]+)(?:\s|$)|>)")
# A forge sends a message to whom a text mentions; behind the sign comes one that nobody sees.
_MENTION = re.compile(r"(?<![\w@])@(?=\w)")
_BEFORE_BAR = ("\\", "\\\\")
_TICKS = re.compile("`+")


def table_head(headings: Sequence[str]) -> list[str]:
    """Return the two lines above a table's rows."""
    return [table_row(headings), table_row([":---"] * len(headings))]


def table_row(cells: Sequence[str]) -> str:
    """Return one line of a table; a cell may hold no bare "|" and no end of line."""
    return f"| {' | '.join(cells)} |"


def collapsed(summary: str, text: str) -> str:
    """Return a part of which only the summary is shown until a reader opens it."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def escape(text: str) -> str:
    """Keep free text from ending a cell or turning into markup."""
    line = _MARKUP.sub(r"\\\g<0>", visible(" ".join(text.split())))
    return _MENTION.sub("@\N{WORD JOINER}", _BEGINNING.sub(r"\\", line))


def code(text: str) -> str:
    """Return text as code: nothing in it is markup, not even a backtick."""
    line = visible(" ".join(text.split()))
    ticks = max(map(len, _TICKS.findall(line)), default=0)
    if not ticks and line:
        return f"`{line}`"
    fence = "`" * max(ticks + 1, 2)
    return f"{fence} {line} {fence}"


def cell_code(text: str) -> str:
    """Return text as code in a table, where a bare "|" would end the cell even so."""
    # Some readers take a backslash before "\\|" for one that escapes that backslash, so their number is odd.
    return re.sub(r"(\\*)\|", lambda found: f"{found[1]}{_BEFORE_BAR[len(found[1]) % 2]}|", code(text))
