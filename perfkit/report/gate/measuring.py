"""Shows what a change edits of how it is measured, alike in every medium."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.model.comparisons import MeasuringEdit
from perfkit.report.markdown_table import cell_code, escape, table_head, table_row
from perfkit.report.names import fitted

_MOST = 6
_HEADINGS = ("how it is measured", "edited by this change", "counts here")
_PATH = 32


def measuring_view(edits: Sequence[MeasuringEdit]) -> list[RenderableType]:
    """Return the table of a terminal, which fits 80 columns; nothing where nothing is edited."""
    if not edits:
        return []
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="yellow")
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for edit in edits[:_MOST]:
        table.add_row(Text(fitted(_place(edit), _PATH)), Text(edit.what), Text(edit.effect))
    return [Group(table, *(Text(line) for line in _more(edits)))]


def measuring_markdown(edits: Sequence[MeasuringEdit]) -> str:
    """Return the table of a comment."""
    if not edits:
        return ""
    rows = (
        table_row([cell_code(_place(edit)), escape(edit.what), escape(edit.effect)]) for edit in edits[:_MOST]
    )
    headings = tuple(heading.capitalize() for heading in _HEADINGS)
    return "\n".join((*table_head(headings), *rows, *("\n" + line for line in _more(edits))))


def _place(edit: MeasuringEdit) -> str:
    return f"marker of {edit.path.rpartition('::')[2]}" if edit.kind == "marker" else edit.path


def _more(edits: Sequence[MeasuringEdit]) -> list[str]:
    return [f"and {len(edits) - _MOST} more (--json)"] if len(edits) > _MOST else []
