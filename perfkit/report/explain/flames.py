"""Lays out the flame graph of a difference: widths are one side's time, colours and signs say what moved."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from perfkit.model import Side
from perfkit.model.differences import Amount, FlameFrame, Unit
from perfkit.units import counted, human_percent, human_seconds, signed_seconds

_Callers = tuple[str, ...]
Kind = Literal["grew", "shrank", "new", "gone", "same"]

ROW_PX = 20
# Four lines of text about the frame in focus have their place above the rows.
TOLD_PX = 82
# A frame that moved by a smaller part of the whole is said to be the same.
_WORTH_TELLING = 0.001
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


@dataclass(frozen=True, kw_only=True)
class DrawnFrame:
    """A frame in a graph: left edge and width in percent of the graph, its top in pixels, and its texts.

    ``strength`` is how much colour it has, ``told`` the lines that tell of it.
    """

    kind: Kind
    left: str
    width: str
    top: int
    strength: str
    label: str
    told: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One flame graph: a heading, its height in pixels, and its frames, callers before what they called."""

    title: str
    height: int
    frames: tuple[DrawnFrame, ...]


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of the difference of totals: how it came about, and its seconds with their sign."""

    kind: Kind
    text: str


@dataclass(frozen=True, kw_only=True)
class Flames:
    """The graph of one side's time, that of what this side lacks, and the parts of the difference."""

    unit: Unit
    widths: Side
    whole: Share
    shares: tuple[Share, ...]
    graphs: tuple[Graph, ...]


def drawn_flames(root: FlameFrame, *, unit: Unit, widths: Side) -> Flames:
    """Return the graphs of a difference, both of one scale; ``widths`` says whose time the first shows."""
    lacking = tuple(_lacking(root, (), widths))
    other: Side = "base" if widths == "head" else "head"
    lacking_s = math.fsum(of_side(frame.amount, other) for _, frame in lacking)
    scale_s = max(of_side(root.amount, widths), lacking_s)
    most_s = max((abs(frame.amount.moved_s) for frame in _all(root)), default=0.0)
    drawing = _Drawing(side=widths, scale_s=scale_s, most_s=most_s, whole=root.amount)
    main = drawing.graph([((), root)], f"{widths}: {human_seconds(of_side(root.amount, widths))} a {unit}")
    graphs = [main]
    if lacking_s > 0:
        drawing = _Drawing(side=other, scale_s=scale_s, most_s=most_s, whole=root.amount)
        title = f"only in {other}: {human_seconds(lacking_s)} a {unit} that {widths} does not spend"
        graphs.append(drawing.graph(lacking, title))
    return Flames(
        unit=unit,
        widths=widths,
        whole=Share(kind=_kind(root.amount, 0.0), text=signed_seconds(root.amount.moved_s)),
        shares=tuple(_shares(root)),
        graphs=tuple(graphs),
    )


def of_side(amount: Amount, side: Side) -> float:
    """Return the seconds of one side."""
    return amount.base_s if side == "base" else amount.head_s


def _lacking(frame: FlameFrame, callers: _Callers, side: Side) -> Iterator[tuple[_Callers, FlameFrame]]:
    """Yield the outermost frames that take no time on a side, each with its callers."""
    if of_side(frame.amount, side) <= 0:
        yield callers, frame
        return
    for inner in frame.inner:
        yield from _lacking(inner, (*callers, frame.name), side)


def _all(frame: FlameFrame) -> Iterator[FlameFrame]:
    yield frame
    for inner in frame.inner:
        yield from _all(inner)


def _shares(root: FlameFrame) -> Iterator[Share]:
    """Yield the parts of the difference of totals, by the frames' own times: together they are the whole."""
    moves: dict[Kind, list[float]] = {"grew": [], "new": [], "shrank": [], "gone": []}
    for frame in _all(root):
        kind = _kind(frame.amount, 0.0)
        if kind not in ("new", "gone"):
            kind = "grew" if frame.own.moved_s > 0 else "shrank"
        moves[kind].append(frame.own.moved_s)
    for kind, seconds in moves.items():
        moved = [one for one in seconds if one]
        if moved:
            text = f"{signed_seconds(math.fsum(moved))} in {counted(len(moved), 'frame')} {_WORDS[kind]}"
            yield Share(kind=kind, text=text)


def _kind(amount: Amount, least_s: float) -> Kind:
    if amount.base_s <= 0 < amount.head_s:
        return "new"
    if amount.head_s <= 0 < amount.base_s:
        return "gone"
    if abs(amount.moved_s) <= least_s:
        return "same"
    return "grew" if amount.moved_s > 0 else "shrank"


@dataclass(frozen=True, kw_only=True)
class _Drawing:
    """Whose time the widths are, how many seconds the full width is, and the largest move of a frame."""

    side: Side
    scale_s: float
    most_s: float
    whole: Amount

    def graph(self, frames: Sequence[tuple[_Callers, FlameFrame]], title: str) -> Graph:
        """Return frames side by side, each with what it called below it."""
        drawn: list[DrawnFrame] = []
        left_s = 0.0
        for callers, frame in frames:
            drawn += self._frames(frame, callers, left_s, 0)
            left_s += of_side(frame.amount, self.side)
        bottom = max((one.top for one in drawn), default=TOLD_PX) + ROW_PX
        return Graph(title=title, height=bottom, frames=tuple(drawn))

    def _frames(self, frame: FlameFrame, callers: _Callers, left_s: float, row: int) -> Iterator[DrawnFrame]:
        yield self._drawn(frame, callers, left_s, row)
        inner = sorted(frame.inner, key=lambda one: -of_side(one.amount, self.side))
        for one in inner:
            if of_side(one.amount, self.side) <= 0:
                continue
            yield from self._frames(one, (*callers, frame.name), left_s, row + 1)
            left_s += of_side(one.amount, self.side)

    def _drawn(self, frame: FlameFrame, callers: _Callers, left_s: float, row: int) -> DrawnFrame:
        longer_s = max(self.whole.base_s, self.whole.head_s)
        kind = _kind(frame.amount, _WORTH_TELLING * longer_s)
        moved = abs(frame.amount.moved_s) / self.most_s if self.most_s else 0.0
        width = self._percent(of_side(frame.amount, self.side))
        label = f"{_SIGNS[kind]} {frame.name}  {signed_seconds(frame.amount.moved_s)}"
        return DrawnFrame(
            kind=kind,
            left=f"{self._percent(left_s):.9f}",
            width=f"{width:.9f}",
            top=TOLD_PX + row * ROW_PX,
            strength=f"{_PALEST + (_STRONGEST - _PALEST) * math.sqrt(moved):.3f}",
            label=label if width >= _ROOM_FOR_TEXT else "",
            told=self._told(frame, kind, callers),
        )

    def _told(self, frame: FlameFrame, kind: Kind, callers: _Callers) -> tuple[str, ...]:
        was = f"  (was {frame.was})" if frame.was else ""
        by = f"called by {' → '.join(callers[-_MOST_CALLERS:])}" if callers else ""
        share = human_percent(of_side(frame.amount, self.side) / (of_side(self.whole, self.side) or 1.0))
        return (
            f"{frame.name}{was}",
            "  ".join(filter(None, (frame.place, by))),
            f"{_move(frame.amount)}, {_WORDS[kind]}; {share} of {self.side}",
            f"in itself: {_move(frame.own)}",
        )

    def _percent(self, seconds: float) -> float:
        return 100 * seconds / self.scale_s if self.scale_s else 0.0


def _move(amount: Amount) -> str:
    base, head = human_seconds(amount.base_s), human_seconds(amount.head_s)
    return f"base {base} → head {head}: {signed_seconds(amount.moved_s)}"
