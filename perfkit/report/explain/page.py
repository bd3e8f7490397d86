"""Writes a difference as one page that needs no other file, with bars of both sides and a table of parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.model import SIDES, Side
from perfkit.model.differences import Amount, Difference, FlameFrame, Part, Section
from perfkit.report.explain.flames import ROW_PX, drawn_flames, of_side
from perfkit.report.explain.terminal import (
    REMAINDER,
    calls_text,
    shown_parts,
    shown_remainder,
    telling_callees,
)
from perfkit.report.palette import DARK, LIGHT
from perfkit.units import human_seconds, signed_seconds

_TEMPLATE = Path(__file__).with_name("page.html.j2")
_COLOURS = ("#7fb3e6", "#f2b36b", "#9fd08c", "#e79aa4", "#b9a3e3", "#e5d573", "#84cfc9", "#d6a884")
_REST_COLOUR = "#c9ced6"


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A part within a side's bar."""

    name: str
    text: str
    width: str
    colour: str


@dataclass(frozen=True, kw_only=True)
class _Bar:
    """The bar of a side, whose width is its time against that of the longer side."""

    name: str
    total: str
    width: str
    pieces: tuple[_Piece, ...]


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A line of the table."""

    name: str
    base: str
    head: str
    moved: str
    calls: str
    way: str
    kind: str = "part"
    place: str = ""
    was: str = ""
    width: str = ""
    colour: str = ""


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """A section in the form that the template needs."""

    title: str
    sides: tuple[_Bar, ...]
    rows: tuple[_Row, ...]


def difference_page(
    difference: Difference, *, flames: FlameFrame | None = None, widths: Side = "head"
) -> str:
    """Return the page as HTML; names from profiles are escaped, and nothing is loaded from elsewhere.

    With ``flames`` it has a flame graph, in which ``widths`` says whose time is shown.
    """
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        difference=difference,
        sections=[_drawn(section) for section in difference.sections],
        flames=drawn_flames(flames, unit=difference.unit, widths=widths) if flames else None,
        row_px=ROW_PX,
        light=LIGHT,
        dark=DARK,
    )


def _drawn(section: Section) -> _Drawn:
    shown, rest, count = shown_parts(section)
    colours = {id(part): _COLOURS[place % len(_COLOURS)] for place, part in enumerate(shown)}
    largest = max((abs(part.amount.moved_s) for part in shown), default=0.0)
    rows = [row for part in shown for row in _rows(part, colours[id(part)], largest)]
    if count:
        rows.append(_row(f"{count} more, together", rest, colour=_REST_COLOUR))
    remainder = shown_remainder(section)
    if remainder:
        way = _way(section.remainder_s)
        rows.append(_Row(name=REMAINDER, base="", head="", moved=remainder, calls="", way=way))
    rows.append(_row("all", section.whole, kind="sum"))
    return _Drawn(
        title=section.title,
        sides=tuple(_bar(side, section, shown, rest, colours) for side in SIDES),
        rows=tuple(rows),
    )


def _bar(side: Side, section: Section, shown: Sequence[Part], rest: Amount, colours: dict[int, str]) -> _Bar:
    whole_s = of_side(section.whole, side)
    longer_s = max(section.whole.base_s, section.whole.head_s)
    pieces = [(part.name, of_side(part.amount, side), colours[id(part)]) for part in shown]
    return _Bar(
        name=side,
        total=human_seconds(whole_s),
        width=_percent(whole_s, longer_s),
        pieces=tuple(
            _Piece(name=name, text=human_seconds(seconds), width=_percent(seconds, whole_s), colour=colour)
            for name, seconds, colour in [*pieces, ("the rest", of_side(rest, side), _REST_COLOUR)]
            if seconds > 0
        ),
    )


def _rows(part: Part, colour: str, largest: float) -> Iterator[_Row]:
    yield _row(part.name, part.amount, part=part, colour=colour, largest=largest)
    for callee in telling_callees(part):
        yield _row(f"through {callee.name}", callee.amount, kind="callee")


def _row(
    name: str,
    amount: Amount,
    *,
    part: Part | None = None,
    kind: str = "part",
    colour: str = "",
    largest: float = 0.0,
) -> _Row:
    return _Row(
        name=name,
        base=human_seconds(amount.base_s),
        head=human_seconds(amount.head_s),
        moved=signed_seconds(amount.moved_s),
        calls=calls_text(amount).replace("->", "→"),
        way=_way(amount.moved_s),
        kind=kind,
        place=part.place if part else "",
        was=part.was if part else "",
        width=_percent(abs(amount.moved_s), largest) if largest else "",
        colour=colour,
    )


def _way(moved_s: float) -> str:
    return "worse" if moved_s > 0 else "better"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0"
