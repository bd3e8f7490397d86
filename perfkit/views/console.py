"""The console that every command prints with, on whatever terminal, pipe or encoding it finds."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_COLUMNS = 100
_ANY_TEXT = "perfkit.any-text"
# What stands for characters that an encoding lacks; a question mark stands for all others.
_SPELLED = str.maketrans(
    {
        "±": "+-",
        "×": "x",
        "µ": "u",
        "μ": "u",
        "…": "...",
        "→": "->",
        "–": "-",  # noqa: RUF001 (an en dash)
        "—": "-",
        "’": "'",  # noqa: RUF001 (a quotation mark)
        "‘": "'",  # noqa: RUF001 (likewise)
        "“": '"',
        "”": '"',
        "•": "*",
        "·": ".",
        "†": "+",
        "‡": "++",
        "✓": "ok",
        "✗": "no",
        "≤": "<=",
        "≥": ">=",
        "─": "-",
        "━": "-",
        "│": "|",
        "╸": "-",
        "╺": "-",
        "█": "#",
        "▏": "|",
        "\N{NO-BREAK SPACE}": " ",
    }
)
# Bytes of a file's name that are no text are kept by Python as these characters, and written as they were.
_FIRST_BYTE, _LAST_BYTE, _BYTE_OFFSET = "\udc80", "\udcff", 0xDC00


def console_on(stream: TextIO) -> Console:
    """Return a console: as wide as the terminal, or as COLUMNS says, or 100 columns in a pipe."""
    from rich.console import Console

    # Rich reads COLUMNS by itself, and would take a pipe for a terminal of 80 columns.
    told = stream.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(file=stream, width=None if told else _PIPE_COLUMNS, highlight=False)


def let_any_text_through() -> None:
    """Have both output streams spell out what their encoding lacks, where Python would raise an error.

    Whatever prints is covered by that: a result must not be lost for the sake of one sign.
    """
    codecs.register_error(_ANY_TEXT, _spelled_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ANY_TEXT)


def _spelled_out(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character = error.object[error.start]
    if _FIRST_BYTE <= character <= _LAST_BYTE:
        return bytes([ord(character) - _BYTE_OFFSET]), error.start + 1
    return _in_encoding(character.translate(_SPELLED), error.encoding), error.start + 1


def _in_encoding(text: str, encoding: str) -> str:
    return text.encode(encoding, "replace").decode(encoding)
