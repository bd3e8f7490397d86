"""Shortens node ids and paths to what distinguishes them, or to what fits."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfkit.report.console import visible

# A name is broken between its parts, and inside a part only where that is too wide for a line.
_PARTS = re.compile(r"(?<=::)|(?<=[/\s])|(?=\[)")
_WORDS = re.compile(r"(?<=[_.,=:-])")
_LEAST_COLUMNS = 12
# A table is laid out anew only in terminals narrower than this, and only where names would have less room.
# A sentence is never wider, since longer lines are hard to read.
WHOLE_COLUMNS = 80
_ROOM_FOR_NAMES = 30


@dataclass(frozen=True)
class BrokenName:
    """A name in a table: where it is too wide it goes on in the next line, never broken inside a word."""

    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(broken(visible(self.name), options.max_width)), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        columns = cell_len(visible(self.name))
        return Measurement(min(_LEAST_COLUMNS, columns), columns)


@dataclass(frozen=True)
class Folded:
    """A sentence folded to at most 80 columns less ``room_beside``; later lines begin with ``hanging``."""

    text: str
    hanging: str = "  "
    room_beside: int = 0
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(min(options.max_width, WHOLE_COLUMNS - self.room_beside), 1)
        yield Text(textwrap.fill(self.text, width, subsequent_indent=self.hanging), style=self.style)


class NamedTable(Table):
    """A table of names and numbers; in a narrow terminal each name has a line of its own."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [self._needed(place, console, options) for place in range(len(self.columns))]
        room = options.max_width - sum(widths[1:]) - len(widths[1:])
        if options.max_width >= WHOLE_COLUMNS or room >= min(widths[0], _ROOM_FOR_NAMES):
            yield from super().__rich_console__(console, options)
            return
        if self.title:
            yield Text(str(self.title))
        indent = 2 if options.max_width - sum(widths[1:]) - len(widths[1:]) >= 1 else 0
        if self.show_header:
            yield self.columns[0].header
            yield Padding(self._numbers(widths, [one.header for one in self.columns[1:]]), (0, 0, 0, indent))
        cells = zip(*(column.cells for column in self.columns), strict=True)
        for row, (name, *numbers) in zip(self.rows, cells, strict=True):
            style = row.style or ""
            yield console.render_str(name, style=style, markup=False) if isinstance(name, str) else name
            if any(number != "" for number in numbers):
                yield Padding(self._numbers(widths, numbers), (0, 0, 0, indent), style=style)

    def _needed(self, place: int, console: Console, options: ConsoleOptions) -> int:
        """Return how wide a column would be if nothing in it had to be broken."""
        column = self.columns[place]
        cells = [*([column.header] if self.show_header else []), *column.cells]
        whole = options.update(max_width=10_000)
        return max((Measurement.get(console, whole, cell).maximum for cell in cells), default=0)

    def _numbers(self, widths: Sequence[int], cells: Sequence[RenderableType]) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
        for column, width in zip(self.columns[1:], widths[1:], strict=True):
            table.add_column(justify=column.justify, no_wrap=column.no_wrap, width=width, overflow="fold")
        table.add_row(*cells)
        return table


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return each node id's shortest unique ending from a "/" or "::" on."""
    distinct = set(names)
    uses = Counter(ending for name in distinct for ending in _endings(name))
    return {name: next((ending for ending in _endings(name) if uses[ending] == 1), name) for name in distinct}


def broken(name: str, columns: int) -> Iterator[str]:
    """Yield a name in lines that fit; a word that does not fit is cut in its middle."""
    line = ""
    pieces = (
        piece
        for part in _PARTS.split(name)
        for piece in ([part] if cell_len(part.rstrip()) <= columns else _WORDS.split(part))
    )
    for piece in pieces:
        if line.strip() and cell_len(f"{line}{piece}".rstrip()) > columns:
            yield line.rstrip()
            line = ""
        line = f"{line}{_cut(piece, max(columns - cell_len(line), 1))}"
    yield line.rstrip()


def fitted(name: str, columns: int) -> str:
    """Return a path or node id that fits, without its first folders or cut in its middle."""
    return _cut(without_folders(name, columns), columns)


def without_folders(name: str, columns: int) -> str:
    """Return a path or node id without the first folders that do not fit; its end matters most."""
    path, bracket, parameters = name.partition("[")
    while cell_len(f"{path}{bracket}{parameters}") > columns and "/" in path.removeprefix("…/"):
        path = f"…/{path.removeprefix('…/').partition('/')[2]}"
    return f"{path}{bracket}{parameters}"


def _cut(text: str, columns: int) -> str:
    """Return a text that fits, without its middle where it is too wide."""
    if cell_len(text.rstrip()) <= columns:
        return text
    half = (columns - 1) // 2
    return f"{text[: columns - 1 - half]}…{text[len(text) - half :]}"


def _endings(name: str) -> list[str]:
    """Return the endings of a node id from the shortest to the whole; parameters are never cut."""
    path = name.partition("[")[0]
    starts = [0, *(found.end() for found in re.finditer("/|::", path))]
    return [name[start:] for start in reversed(starts)]


def columns_table(
    names: str,
    *,
    texts: Sequence[str] = (),
    numbers: Sequence[str] = (),
    title: str | None = None,
    boxed: bool = True,
    padding: int = 1,
) -> NamedTable:
    """Return an empty table: a column of names, which may be broken, then of texts and of numbers."""
    table = NamedTable(
        title=title,
        title_justify="left",
        box=SIMPLE if boxed else None,
        padding=(0, padding, 0, 0),
        show_edge=False,
        pad_edge=False,
    )
    table.add_column(names, ratio=1, overflow="fold")
    for heading in texts:
        table.add_column(heading, no_wrap=True)
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def spaced(*sections: RenderableType | None) -> Group:
    """Return sections with a blank line after each; one that is None is left out."""
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections if section is not None))


def named_table(title: str, *headings: str) -> Table:
    """Return an empty table with a column of names, which are cut to fit, and columns of numbers."""
    table = NamedTable(box=None, padding=(0, 0, 0, 1), pad_edge=False, expand=True)
    table.add_column(Text(title, style="bold"), no_wrap=True, overflow="ellipsis", ratio=1)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table
