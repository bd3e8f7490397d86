"""What a command says: a view for people, or JSON for machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

STANDARD_OUTPUT = "-"
_PIPE_COLUMNS = 100


def show(view: RenderableType, *, to_json: str | None = None) -> None:
    """Print a view; to standard error when standard output carries JSON."""
    from rich.console import Console

    stream = sys.stderr if to_json == STANDARD_OUTPUT else sys.stdout
    width = None if stream.isatty() else _PIPE_COLUMNS
    console = Console(file=stream, width=width, highlight=False)
    # A text is laid out already, and a "[" in it is no markup.
    console.print(view, markup=False, soft_wrap=isinstance(view, str))


def write_json(result: object, destination: str | None) -> None:
    """Write a result as JSON to a file or to standard output, where it was asked for.

    Raises:
        UsageError: the file cannot be written.
    """
    if destination is None:
        return
    import msgspec

    text = msgspec.json.format(msgspec.json.encode(result)).decode() + "\n"
    if destination == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    write_text(Path(destination), text)


def write_text(file: Path, text: str) -> None:
    """Write a text to a file.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file} ({error.strerror or error})") from error
