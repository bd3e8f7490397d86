"""What a command says: a view for people, or JSON for machines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from perfkit.cli.options import STANDARD_OUTPUT

if TYPE_CHECKING:
    from rich.console import RenderableType


def show(view: RenderableType, *, to_json: str | None = None) -> None:
    """Print a view; to standard error when standard output carries JSON."""
    from perfkit.views.console import console_on

    stream = sys.stderr if to_json == STANDARD_OUTPUT else sys.stdout
    # A text is laid out already, and a "[" in it must not be read as markup.
    console_on(stream).print(view, markup=False, soft_wrap=isinstance(view, str))


def write_json(result: object, destination: str | None) -> None:
    """Write a result as JSON to a file or to standard output, where it was asked for.

    Raises:
        UsageError: the file cannot be written.
    """
    if destination is None:
        return
    import msgspec

    from perfkit.jobs.text_files import replace_text

    text = msgspec.json.format(msgspec.json.encode(result)).decode() + "\n"
    if destination == STANDARD_OUTPUT:
        sys.stdout.write(text)
        return
    replace_text(Path(destination), text, option="--json")
