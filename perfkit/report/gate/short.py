"""Keeps the result of a gate of many benchmarks short: what matters first, the rest folded by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from perfkit.model.comparisons import Comparison

# A result of more benchmarks is kept to so many lines, and lists so many of them and files by name.
LONG = 50
_MOST_LINES = 60
_MOST_ROWS, _MOST_FILES = 10, 5


def first_of_many(comparisons: Sequence[Comparison]) -> tuple[Sequence[Comparison], list[str]]:
    """Return the comparisons that are listed, and a line for each file with others."""
    if len(comparisons) <= LONG:
        return comparisons, []
    rest: dict[str, Counter[str]] = {}
    for one in comparisons[_MOST_ROWS:]:
        rest.setdefault(one.benchmark.name.partition("::")[0], Counter())[one.verdict] += 1
    lines = [f"{file}: {_tally(found)}" for file, found in rest.items()]
    hidden = sum((found for found in [*rest.values()][_MOST_FILES:]), Counter[str]())
    if hidden:
        lines[_MOST_FILES:] = [f"{len(rest) - _MOST_FILES} more files: {_tally(hidden)}"]
    return comparisons[:_MOST_ROWS], ["and by file:", *(f"  {line}" for line in lines)]


def _tally(found: Counter[str]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in found.most_common())


@dataclass(frozen=True)
class Shortened:
    """Sections with a blank line between each two; ``details`` are cut where all would be too long."""

    sections: Sequence[RenderableType]
    details: range

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rendered = [console.render_lines(section, options, pad=False) for section in self.sections]
        left = _MOST_LINES - len(rendered) + 1
        left -= sum(len(lines) for place, lines in enumerate(rendered) if place not in self.details)
        rooms = {}
        # Short sections come first, and leave what they do not need to the longer ones.
        for done, place in enumerate(sorted(self.details, key=lambda place: len(rendered[place]))):
            rooms[place] = min(len(rendered[place]), max(left // (len(self.details) - done), 2))
            left -= rooms[place]
        for place, lines in enumerate(rendered):
            room = rooms.get(place, len(lines))
            shown = lines if len(lines) <= room else lines[: room - 1]
            for line in shown:
                yield from (*line, Segment.line())
            if len(shown) < len(lines):
                yield Text(f"… {len(lines) - len(shown)} more lines: --json FILE has them", style="dim")
            if place < len(rendered) - 1:
                yield Segment.line()
