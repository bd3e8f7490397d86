"""What a gate says while it measures: a table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from perfkit.model.comparisons import UNDECIDED, Comparison
from perfkit.report.console import console_on, visible_lines
from perfkit.report.gate.table import plain_table, verdict_text
from perfkit.report.gate.wording import (
    at_most,
    change_text,
    details,
    interval_text,
    launches_text,
    limit_of_all_calls,
)
from perfkit.report.names import BrokenName, short_names

_REDRAW_S = 0.5
# After so many decided benchmarks only slower ones have a line of their own.
_MOST_DECIDED = 30


class GateProgress:
    """Shows the progress of a gate on standard error.

    It redraws only when it is told something: no thread of its own runs beside what is measured. In a
    terminal the table vanishes at the end, where the result takes its place.
    """

    def __init__(self, *, enabled: bool) -> None:
        console = console_on(sys.stderr)
        # A CI may force colours without having a terminal, and rich's own test would redraw the table there.
        self._in_terminal = enabled and sys.stderr.isatty() and not console.is_dumb_terminal
        self._lines = PlainLines() if enabled and not self._in_terminal else None
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._title = self._stage = self._time = ""
        self._states: tuple[Comparison, ...] = ()
        self._drawn_s = 0.0

    def __enter__(self) -> Self:
        if self._in_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        self._live.stop()

    def begin(self, title: str) -> None:
        """Say what is compared; what was compared before is over."""
        self._title, self._states, self._drawn_s = title, (), 0.0
        if self._lines is not None:
            self._lines.begin()
        self._tell(title)

    def info(self, text: str) -> None:
        """Say which stage begins."""
        self._stage, self._time = text, ""
        self._tell(text)

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Show the benchmarks, some of which are not decided yet, with the time gone and left."""
        if self._lines is not None:
            self._lines.update(states, elapsed_s)
        news = _verdicts(states) != _verdicts(self._states)
        self._states = tuple(states)
        self._time = f"{elapsed_s:.0f} s" + ("" if left_s is None else f", about {left_s:.0f} s left")
        if news or elapsed_s - self._drawn_s >= _REDRAW_S:
            self._drawn_s = elapsed_s
            self._draw()

    def _tell(self, text: str) -> None:
        if self._lines is not None:
            self._lines.info(text)
        self._draw()

    def _draw(self) -> None:
        if not self._in_terminal:
            return
        status = "  ".join(part for part in (self._stage, self._time) if part)
        head = Text("\n".join(part for part in (self._title, status) if part))
        self._live.update(Group(head, _table(self._states)) if self._states else head, refresh=True)


def _verdicts(states: Sequence[Comparison]) -> list[tuple[str, str]]:
    return [(state.benchmark.name, state.verdict) for state in states]


def _table(states: Sequence[Comparison]) -> Table:
    """Return one line per benchmark, always in the same order, as a moving line is hard to follow."""
    names = short_names(state.benchmark.name for state in states)
    table = plain_table("change", "interval")
    table.add_column("verdict", no_wrap=True, min_width=len("INCONCLUSIVE"))
    table.add_column("launches", justify="right", no_wrap=True)
    for state in states:
        undecided = state.verdict in UNDECIDED
        table.add_row(
            BrokenName(names[state.benchmark.name]),
            change_text(state.estimate),
            interval_text(state.estimate),
            Text("measuring") if undecided else verdict_text(state.verdict),
            launches_text(state.estimate),
        )
    return table


class PlainLines:
    """Writes each stage and each decided benchmark to standard error, once."""

    def __init__(self) -> None:
        self._decided: set[str] = set()

    def begin(self) -> None:
        """Begin with a comparison in which nothing is decided yet."""
        self._decided.clear()

    def info(self, text: str) -> None:
        """Write one line."""
        sys.stderr.write(f"{visible_lines(text)}\n")

    def update(self, states: Sequence[Comparison], elapsed_s: float) -> None:
        """Write a line for each benchmark that has been decided since the last call."""
        names = short_names(state.benchmark.name for state in states)
        for state in states:
            if state.verdict not in UNDECIDED and state.benchmark.name not in self._decided:
                self._decided.add(state.benchmark.name)
                if len(self._decided) > _MOST_DECIDED and state.verdict != "REGRESSED":
                    continue
                self.info(f"[{elapsed_s:.0f} s] {names[state.benchmark.name]}: {_result(state)}")


def _result(state: Comparison) -> str:
    if state.estimate is None:
        return "; ".join((state.verdict, *details(state)))
    change, interval = change_text(state.estimate), interval_text(state.estimate)
    limit = limit_of_all_calls(state)
    bound = "" if limit is None else f"; typical call; all calls {at_most(state.other)}"
    return f"{state.verdict} {change} ({interval}) after {launches_text(state.estimate)} launches{bound}"
