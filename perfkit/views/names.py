"""Shortens node ids and paths to what tells them apart, or to what fits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

from perfkit.views.console import visible

# A name is broken between its parts, and inside a part only where that is too wide for a line.
_PARTS = re.compile(r"(?<=::)|(?<=[/\s])|(?=\[)")
_WORDS = re.compile(r"(?<=[_.,=:-])")
_LEAST_COLUMNS = 12


@dataclass(frozen=True)
class BrokenName:
    """A name in a table: where it is too wide it goes on in the next line, never broken inside a word."""

    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(broken(visible(self.name), options.max_width)), no_wrap=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        columns = cell_len(visible(self.name))
        return Measurement(min(_LEAST_COLUMNS, columns), columns)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each node id the shortest ending, from a "/" or "::" on, that no other one has.

    A node id that is itself the ending of another stands whole.
    """
    distinct = set(names)
    uses = Counter(ending for name in distinct for ending in _endings(name))
    return {name: next((ending for ending in _endings(name) if uses[ending] == 1), name) for name in distinct}


def broken(name: str, columns: int) -> Iterator[str]:
    """Yield a name in lines that fit; a word that does not fit is cut in its middle."""
    line = ""
    for piece in _pieces(name, columns):
        if line.strip() and cell_len(f"{line}{piece}".rstrip()) > columns:
            yield line.rstrip()
            line = ""
        line = f"{line}{_cut(piece, max(columns - cell_len(line), 1))}"
    yield line.rstrip()


def _pieces(name: str, columns: int) -> Iterator[str]:
    """Yield what is not to be broken: the parts of a name, or the words of a part that is too wide."""
    for part in _PARTS.split(name):
        yield from [part] if cell_len(part.rstrip()) <= columns else _WORDS.split(part)


def fitted(name: str, columns: int) -> str:
    """Return a path or node id that fits, without its first folders or cut in its middle."""
    tail = without_folders(name, columns)
    return _cut(tail, columns)


def without_folders(name: str, columns: int) -> str:
    """Return a path or node id without the first folders that do not fit; its end says most."""
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
