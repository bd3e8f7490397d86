"""Shows what a command would print as text or as HTML, for notebooks and scripts."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from perfkit.report.console import visible_console

if TYPE_CHECKING:
    from rich.console import RenderableType

_COLUMNS = 100
# A notebook has colours of its own, dark or light, so that of the text is left to it.
_FORMAT = (
    '<pre style="font-family: ui-monospace, Menlo, Consolas, monospace; white-space: pre; overflow-x: auto;'
    ' line-height: 1.25">{code}</pre>'
)


def as_text(view: RenderableType) -> str:
    """Return a view as lines of at most 100 columns, without colours."""
    file = io.StringIO()
    visible_console()(file=file, width=_COLUMNS, highlight=False, color_system=None).print(_plain(view))
    return file.getvalue().rstrip("\n")


def as_html(view: RenderableType) -> str:
    """Return a view as an HTML element with colours; everything in it is escaped."""
    console = visible_console()(
        file=io.StringIO(), width=_COLUMNS, highlight=False, record=True, force_terminal=True
    )
    console.print(_plain(view))
    return console.export_html(inline_styles=True, code_format=_FORMAT)


def _plain(view: RenderableType) -> RenderableType:
    """Return text as it is: rich would take ":train:" for a picture, and brackets for a style."""
    from rich.text import Text

    return Text(view) if isinstance(view, str) else view
