"""A difference between two profiles: in the terminal, as markdown, and as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from perfkit.model import SIDES, Side
from perfkit.model.profiles import Amount, Difference, FlameFrame, Part, Section, Unit, most_moved_first
from perfkit.model.readings import phase_title
from perfkit.report.chart import DARK, LIGHT, PART_COLOURS, REST_COLOUR
from perfkit.report.markdown_table import cell_code, escape, table_head, table_row
from perfkit.report.names import Folded, named_table, spaced, without_folders
from perfkit.units import counted, human_calls, human_percent, human_seconds, signed_seconds

_HEADINGS = ("base", "head", "moved", "calls")
# The columns of numbers leave so much for a name and its place.
_NAME_COLUMNS = 44
_MOST_PARTS = 10
# A part that moved by a smaller share of the whole is in the line of the rest.
_WORTH_SHOWING = 0.002
# A callee is shown that took at least this share of a function's move, and this many at most.
_WORTH_NAMING = 0.2
_MOST_CALLEES = 2


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A row of a section's table, for every medium."""

    kind: Literal["part", "callee", "rest", "remainder", "whole"]
    name: str
    amount: Amount | None = None
    moved_s: float = 0.0
    part: Part | None = None

    @property
    def title(self) -> str:
        is_phase = self.part is not None and self.part.kind == "phase"
        return phase_title(self.name) if is_phase else self.name

    @property
    def cells(self) -> tuple[str, str, str, str]:
        if self.amount is None:
            return "", "", signed_seconds(self.moved_s), ""
        one, calls = self.amount, ""
        if one.base_calls is not None and one.head_calls is not None:
            before, after = human_calls(one.base_calls), human_calls(one.head_calls)
            calls = before if before == after else f"{before} -> {after}"
        return human_seconds(one.base_s), human_seconds(one.head_s), signed_seconds(one.moved_s), calls


def _rows(section: Section, most: int = _MOST_PARTS) -> Iterator[_Row]:
    """Yield what moved most, the sum of the rest, what no part explains, and the whole."""
    least = _WORTH_SHOWING * max(section.whole.base_s, section.whole.head_s)
    by_move = most_moved_first(section.parts)
    kept = {id(part) for part in by_move[:most] if abs(part.amount.moved_s) >= least}
    rest, shown = [], 0
    for part in section.parts:
        # All phases are shown, in the order of a step.
        if id(part) not in kept and part.kind != "phase":
            rest.append(part.amount)
            continue
        yield _Row(kind="part", name=part.name, amount=part.amount, part=part)
        shown += 1
        callees = [one.amount for one in main_callees(part)]
        for callee in main_callees(part):
            yield _Row(kind="callee", name=f"through {callee.name}", amount=callee.amount)
        left = _left_of(part.amount, callees)
        if callees and abs(left.moved_s) >= least > 0:
            whose = "in itself" if len(callees) == len(part.through) else "in itself and other calls"
            yield _Row(kind="callee", name=whose, amount=left)
    amount = Amount(base_s=sum(one.base_s for one in rest), head_s=sum(one.head_s for one in rest))
    if is_seen := max(amount.base_s, amount.head_s) >= least > 0:
        yield _Row(kind="rest", name=f"{len(rest)} more, together", amount=amount)
    if abs(section.remainder_s) >= least > 0:
        yield _Row(kind="remainder", name="remainder: what no part explains", moved_s=section.remainder_s)
    # One part alone has the amount of the whole.
    if shown != 1 or is_seen or abs(section.remainder_s) >= least > 0:
        yield _Row(kind="whole", name="all", amount=section.whole)


def _left_of(whole: Amount, parts: Sequence[Amount]) -> Amount:
    """Return what is left of a time without parts of it."""
    base_s, head_s = (sum(one.base_s for one in parts), sum(one.head_s for one in parts))
    return Amount(base_s=max(whole.base_s - base_s, 0.0), head_s=max(whole.head_s - head_s, 0.0))


def main_callees(part: Part) -> Sequence[Part]:
    """Return the callees that took a good part of a function's move; waits are parts of their own."""
    working = [callee for callee in part.through if callee.kind != "wait"]
    least = _WORTH_NAMING * abs(part.amount.moved_s)
    return [callee for callee in working[:_MOST_CALLEES] if abs(callee.amount.moved_s) >= least > 0]


def slower_callee(part: Part) -> str | None:
    """Return in which callee a function became slower, "in cdist"; one that it calls more often first."""
    least = _WORTH_NAMING * part.amount.moved_s
    slower = [one for one in part.through if one.kind != "wait" and one.amount.moved_s >= least > 0]
    more = [one for one in slower if (one.amount.head_calls or 0) > (one.amount.base_calls or 0)]
    one = next(iter((*more, *slower)), None)
    if one is None:
        return None
    return f"{'' if one.amount.moved_s >= part.amount.moved_s / 2 else 'partly '}in {one.name}"


def difference_view(difference: Difference) -> Group:
    """Return the whole difference for the terminal, the sentences first."""
    head = Text(f"{difference.base} -> {difference.head}, per {difference.unit}", style="bold")
    sentences = [*listed(difference.findings), *listed(difference.warnings, "note: ")]
    sections = (section_table(section) for section in difference.sections)
    return spaced(head, Group(*sentences) if sentences else Text(), *sections)


def difference_sentence(difference: Difference) -> str:
    """Return the first thing to know of a difference, in a sentence."""
    first = difference.findings[0] if difference.findings else "nothing but scatter"
    return f"{difference.base} -> {difference.head}, per {difference.unit}: {first}"


def listed(lines: Sequence[str], begin: str = "", *, indent: int = 0) -> list[Folded]:
    """Return sentences as the folded entries of a list, which is shown ``indent`` columns to the right."""
    return [Folded(f"- {begin}{line}", room_beside=indent) for line in lines]


def section_table(section: Section, most: int = _MOST_PARTS) -> Table:
    """Return a section's rows for the terminal."""
    table = named_table(section.title, *_HEADINGS)
    for row in _rows(section, most):
        name = Text(f"  {row.name}" if row.kind == "callee" else row.title)
        name.style = {"callee": "dim", "rest": "dim", "whole": "bold"}.get(row.kind, "")
        if row.part and row.part.place:
            place = without_folders(row.part.place, _NAME_COLUMNS - cell_len(row.name))
            name.append(f"  {place}", style="dim")
        if row.part and row.part.was:
            name.append(f"  was {row.part.was}", style="yellow")
        table.add_row(name, *row.cells, style="dim" if row.kind == "callee" else None)
    return table


def difference_markdown(difference: Difference) -> str:
    """Return the sentences of a difference as a list, then each section's parts as a table."""
    lines = [f"### {escape(difference.base)} → {escape(difference.head)}, per {difference.unit}", ""]
    lines += [f"- {escape(line)}" for line in difference.findings]
    lines += [f"- note: {escape(line)}" for line in difference.warnings]
    for section in difference.sections:
        lines += ["", *section_rows(section, difference.unit)]
    return "\n".join(lines) + "\n"


def section_rows(section: Section, unit: Unit, most: int = _MOST_PARTS) -> list[str]:
    """Return a section's rows as a table of markdown."""
    rows = []
    for row in _rows(section, most):
        name = "**all**" if row.kind == "whole" else escape(row.title)
        if row.part:
            name += f" {cell_code(row.part.place)}" if row.part.place else ""
            name += f" (was {escape(row.part.was)})" if row.part.was else ""
        rows.append([name, *(cell.replace("->", "→") for cell in row.cells)])
    return [*table_head([f"{section.title}, a {unit}", *_HEADINGS]), *map(table_row, rows)]


_TEMPLATE = Path(__file__).with_name("explain.html.j2")


def difference_page(
    difference: Difference, *, flames: FlameFrame | None = None, widths: Side = "head"
) -> str:
    """Return the page as HTML, with a flame graph of the side ``widths`` where there are ``flames``."""
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        difference=difference,
        sections=[_page_section(section) for section in difference.sections],
        flames=_flames(flames, difference.unit, widths) if flames else None,
        widths=widths,
        row_px=_ROW_PX,
        light=LIGHT,
        dark=DARK,
    )


def _page_section(section: Section) -> dict[str, Any]:
    """Return what the template draws: a bar of coloured pieces for each side, and the rows of the table."""
    rows = list(_rows(section))
    shown = [row for row in rows if row.kind in ("part", "rest")]
    colours = {
        id(row): REST_COLOUR if row.kind == "rest" else PART_COLOURS[place % len(PART_COLOURS)]
        for place, row in enumerate(shown)
    }
    longer_s = max(section.whole.base_s, section.whole.head_s)
    largest_s = max((abs(row.amount.moved_s) for row in shown if row.part and row.amount), default=0.0)
    bars = []
    for side in SIDES:
        whole_s = _of_side(section.whole, side)
        pieces = [(row, _of_side(row.amount, side)) for row in shown if row.amount]
        bars.append(
            {
                "name": side,
                "total": human_seconds(whole_s),
                "width": _percent(whole_s, longer_s),
                "pieces": [
                    {
                        "name": row.name,
                        "text": human_seconds(seconds),
                        "width": _percent(seconds, whole_s),
                        "colour": colours[id(row)],
                    }
                    for row, seconds in pieces
                    if seconds > 0
                ],
            }
        )
    return {
        "title": section.title,
        "bars": bars,
        "rows": [
            {
                "kind": row.kind,
                "name": row.name,
                "part": row.part,
                "cells": [cell.replace("->", "→") for cell in row.cells],
                "colour": colours.get(id(row), ""),
                "way": "worse" if (row.amount.moved_s if row.amount else row.moved_s) > 0 else "better",
                "width": _percent(abs(row.amount.moved_s), largest_s) if row.part and row.amount else "",
            }
            for row in rows
        ],
    }


def _of_side(amount: Amount, side: Side) -> float:
    return amount.base_s if side == "base" else amount.head_s


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0"


_Callers = tuple[str, ...]
_Kind = Literal["grew", "shrank", "new", "gone", "same"]

_ROW_PX = 20
# Four lines of text about the frame in focus have their place above the rows.
_DETAILS_PX = 82
# A frame that moved by a smaller part of the whole counts as the same.
_SAME = 0.001
# The least percentage of the width in which a letter fits.
_ROOM_FOR_TEXT = 1.2
_PALEST, _STRONGEST = 0.12, 0.6
_MOST_CALLERS = 3
_SIGNS = {"grew": "+", "shrank": "\N{MINUS SIGN}", "new": "+", "gone": "\N{MINUS SIGN}", "same": "="}
_WORDS = {
    "grew": "slower",
    "shrank": "faster",
    "new": "only in head",
    "gone": "only in base",
    "same": "about the same",
}


def _flames(root: FlameFrame, unit: Unit, side: Side) -> dict[str, Any]:
    """Return one side's flame graph, one of what this side lacks on the same scale, and sums of moves."""
    lacking = list(_lacking(root, (), side))
    other: Side = "base" if side == "head" else "head"
    lacking_s = math.fsum(_of_side(frame.amount, other) for _, frame in lacking)
    scale_s = max(_of_side(root.amount, side), lacking_s)
    whole_s = human_seconds(_of_side(root.amount, side))
    graphs = [{"title": f"{side}: {whole_s} a {unit}", "frames": _drawn([((), root)], root, side, scale_s)}]
    if lacking_s > 0:
        title = f"only in {other}: {human_seconds(lacking_s)} a {unit} that {side} does not spend"
        graphs.append({"title": title, "frames": _drawn(lacking, root, other, scale_s)})
    return {"graphs": graphs, "sums": list(_sums(root)), "moved": signed_seconds(root.amount.moved_s)}


def _lacking(frame: FlameFrame, callers: _Callers, side: Side) -> Iterator[tuple[_Callers, FlameFrame]]:
    if _of_side(frame.amount, side) <= 0:
        yield callers, frame
        return
    for inner in frame.inner:
        yield from _lacking(inner, (*callers, frame.name), side)


def _all(frame: FlameFrame) -> Iterator[FlameFrame]:
    yield frame
    for inner in frame.inner:
        yield from _all(inner)


def _sums(root: FlameFrame) -> Iterator[tuple[str, str]]:
    """Yield the frames' own moves added up by kind; together they are the difference of the totals."""
    moves: dict[_Kind, list[float]] = {"grew": [], "new": [], "shrank": [], "gone": []}
    for frame in _all(root):
        kind = _kind(frame.amount, 0.0)
        if kind not in ("new", "gone"):
            kind = "grew" if frame.own.moved_s > 0 else "shrank"
        if frame.own.moved_s:
            moves[kind].append(frame.own.moved_s)
    for kind, moved in moves.items():
        if moved:
            yield kind, f"{signed_seconds(math.fsum(moved))} in {counted(len(moved), 'frame')} {_WORDS[kind]}"


def _kind(amount: Amount, least_s: float) -> _Kind:
    if amount.base_s <= 0 < amount.head_s:
        return "new"
    if amount.head_s <= 0 < amount.base_s:
        return "gone"
    if abs(amount.moved_s) <= least_s:
        return "same"
    return "grew" if amount.moved_s > 0 else "shrank"


def _drawn(
    frames: Sequence[tuple[_Callers, FlameFrame]], root: FlameFrame, side: Side, scale_s: float
) -> list[dict[str, Any]]:
    """Return frames side by side as boxes above their callees; edges are in percent of ``scale_s``."""
    least_s = _SAME * max(root.amount.base_s, root.amount.head_s)
    most_s = max(abs(frame.amount.moved_s) for frame in _all(root)) or 1.0
    whole_s, percent = _of_side(root.amount, side) or 1.0, 100 / scale_s if scale_s else 0.0
    boxes: list[dict[str, Any]] = []

    def draw(frame: FlameFrame, callers: _Callers, left_s: float, row: int) -> None:
        seconds, kind = _of_side(frame.amount, side), _kind(frame.amount, least_s)
        moved = math.sqrt(abs(frame.amount.moved_s) / most_s)
        was = f"  (was {frame.was})" if frame.was else ""
        by = f"called by {' → '.join(callers[-_MOST_CALLERS:])}" if callers else ""
        boxes.append(
            {
                "kind": kind,
                "left": f"{left_s * percent:.9f}",
                "width": f"{seconds * percent:.9f}",
                "top": _DETAILS_PX + row * _ROW_PX,
                "strength": f"{_PALEST + (_STRONGEST - _PALEST) * moved:.3f}",
                "label": f"{_SIGNS[kind]} {frame.name}  {signed_seconds(frame.amount.moved_s)}"
                if seconds * percent >= _ROOM_FOR_TEXT
                else "",
                "details": (
                    f"{frame.name}{was}",
                    "  ".join(filter(None, (frame.place, by))),
                    f"{_move(frame.amount)}, {_WORDS[kind]}; {human_percent(seconds / whole_s)} of {side}",
                    f"in itself: {_move(frame.own)}",
                ),
            }
        )
        for inner in sorted(frame.inner, key=lambda one: -_of_side(one.amount, side)):
            if _of_side(inner.amount, side) > 0:
                draw(inner, (*callers, frame.name), left_s, row + 1)
                left_s += _of_side(inner.amount, side)

    left_s = 0.0
    for callers, frame in frames:
        draw(frame, callers, left_s, 0)
        left_s += _of_side(frame.amount, side)
    return boxes


def _move(amount: Amount) -> str:
    base, head = human_seconds(amount.base_s), human_seconds(amount.head_s)
    return f"base {base} → head {head}: {signed_seconds(amount.moved_s)}"
