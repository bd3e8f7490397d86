"""Shows a difference in the terminal: first the sentences, then each section's parts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfkit.model.differences import Amount, Difference, Part, Section, most_moved_first
from perfkit.report.names import Folded, NamedTable, without_folders
from perfkit.units import human_calls, human_seconds, signed_seconds

# The columns of numbers leave so much for a name and its place.
_NAME_COLUMNS = 44
MOST_PARTS = 10
REMAINDER = "remainder: what no part explains"
# A part that moved by a smaller share of the whole is in the line of the rest.
_WORTH_SHOWING = 0.002
# A callee is shown that took at least this share of a function's move, and so many at most.
_WORTH_NAMING = 0.2
_MOST_CALLEES = 2


def difference_view(difference: Difference) -> Group:
    """Return the whole difference, the sentences first."""
    head = Text(f"{difference.base} -> {difference.head}, per {difference.unit}", style="bold")
    said = [*listed(difference.findings), *listed(difference.warnings, "note: ")]
    sections = (section_table(section) for section in difference.sections)
    parts: tuple[RenderableType, ...] = (head, Group(*said) if said else Text(), *sections)
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts))


def difference_sentence(difference: Difference) -> str:
    """Return the first thing to know of a difference, in a sentence."""
    said = difference.findings[0] if difference.findings else "nothing that could be told apart"
    return f"{difference.base} -> {difference.head}, per {difference.unit}: {said}"


def shown_parts(section: Section, most: int = MOST_PARTS) -> tuple[Sequence[Part], Amount, int]:
    """Return the parts that are shown, the sum of the others, and their number."""
    least = _least(section)
    by_move = most_moved_first(section.parts)
    kept = {id(part) for part in by_move[:most] if abs(part.amount.moved_s) >= least}
    # All phases are shown, in the order of a step.
    shown = [part for part in section.parts if id(part) in kept or part.kind == "phase"]
    seen = {id(part) for part in shown}
    rest = [part for part in section.parts if id(part) not in seen]
    amount = Amount(
        base_s=sum(part.amount.base_s for part in rest), head_s=sum(part.amount.head_s for part in rest)
    )
    return shown, amount, len(rest)


def shown_remainder(section: Section) -> str:
    """Return what the whole moved beyond its parts, an empty text where that is next to nothing."""
    return signed_seconds(section.remainder_s) if abs(section.remainder_s) >= _least(section) > 0 else ""


def _least(section: Section) -> float:
    return _WORTH_SHOWING * max(section.whole.base_s, section.whole.head_s)


def telling_callees(part: Part) -> Sequence[Part]:
    """Return the callees that took a good part of a function's move; waits are parts of their own."""
    working = [callee for callee in part.through if callee.kind != "wait"]
    least = _WORTH_NAMING * abs(part.amount.moved_s)
    return [callee for callee in working[:_MOST_CALLEES] if abs(callee.amount.moved_s) >= least > 0]


def listed(lines: Sequence[str], begin: str = "", *, indent: int = 0) -> list[Folded]:
    """Return sentences as the folded entries of a list, which is shown ``indent`` columns to the right."""
    return [Folded(f"- {begin}{line}", room_beside=indent) for line in lines]


def section_table(section: Section, most: int = MOST_PARTS) -> Table:
    """Return a table of the parts that moved most, the sum of the rest, and the whole."""
    table = NamedTable(box=None, padding=(0, 0, 0, 1), pad_edge=False, expand=True)
    table.add_column(Text(section.title, style="bold"), no_wrap=True, overflow="ellipsis", ratio=1)
    for heading in ("base", "head", "moved", "calls"):
        table.add_column(heading, justify="right", no_wrap=True)
    shown, rest, count = shown_parts(section, most)
    for part in shown:
        table.add_row(_name(part), *_cells(part.amount))
        for callee in telling_callees(part):
            table.add_row(Text(f"  through {callee.name}", style="dim"), *_cells(callee.amount), style="dim")
    if count:
        table.add_row(Text(f"{count} more, together", style="dim"), *_cells(rest))
    remainder = shown_remainder(section)
    if remainder:
        table.add_row(Text(REMAINDER), "", "", remainder, "")
    table.add_row(Text("all", style="bold"), *_cells(section.whole))
    return table


def _name(part: Part) -> Text:
    text = Text(part.name)
    if part.place:
        text.append(f"  {without_folders(part.place, _NAME_COLUMNS - cell_len(part.name))}", style="dim")
    if part.was:
        text.append(f"  was {part.was}", style="yellow")
    return text


def _cells(amount: Amount) -> tuple[str, str, str, str]:
    return (
        human_seconds(amount.base_s),
        human_seconds(amount.head_s),
        signed_seconds(amount.moved_s),
        calls_text(amount),
    )


def calls_text(amount: Amount) -> str:
    """Return the numbers of calls on both sides, or one number where they are equal."""
    if amount.base_calls is None or amount.head_calls is None:
        return ""
    base, head = human_calls(amount.base_calls), human_calls(amount.head_calls)
    return base if base == head else f"{base} -> {head}"
