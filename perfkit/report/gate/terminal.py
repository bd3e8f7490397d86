"""Shows a gate in the terminal: its progress while it measures, and its result."""

from __future__ import annotations

import functools
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import PurePosixPath

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from perfkit.errors import EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.invocation import follow_up
from perfkit.model import Commit
from perfkit.model.comparisons import (
    MEASURING,
    UNDECIDED,
    ApartReport,
    Comparison,
    Explanation,
    GateReport,
    Verdict,
)
from perfkit.report.console import visible
from perfkit.report.explain import listed as as_list
from perfkit.report.explain import section_table, slower_callee
from perfkit.report.gate import wording
from perfkit.report.gate.counters import counter_sections, moved_lines
from perfkit.report.gate.decision import (
    again_step,
    both_sentence,
    decision_lines,
    decision_word,
    headline,
    left_open,
    next_step,
    reading_guide,
)
from perfkit.report.gate.wording import measuring_view
from perfkit.report.names import WHOLE_COLUMNS, BrokenName, Folded, columns_table, short_names, spaced
from perfkit.report.progress import Drawn, live_on
from perfkit.report.surroundings import difference_of_sides
from perfkit.units import counted, human_seconds, listed

_SHA_DIGITS = 10
_STYLES: dict[Verdict, str] = {
    "REGRESSED": "bold red",
    "OTHER RESULT": "bold red",
    "IMPROVED": "green",
    "UNCHANGED": "dim",
    "NOT SLOWER": "dim",
}
_DECISION_STYLES = {"PASS": "bold green", "FAIL": "bold red"}
_OTHER_STYLE = "yellow"
# A list of more benchmarks has this many of them and files by name.
LONG = 50
_MOST_ROWS, _MOST_FILES = 10, 5
# A result has at most this many lines without --verbose.
_MOST_LINES = 25
_MOST_NAMED, _MOST_EXPLAINED = 4, 3
# What a reader has to know of; a sentence counts the others.
_OF_NOTE: tuple[Verdict, ...] = (
    "REGRESSED", "OTHER RESULT", "FAILED", "TIMEOUT", "MISSING", "CHANGED", "INCONCLUSIVE", "IMPROVED",
)  # fmt: skip
# What ends the line of a command that the next line continues.
_GOES_ON = " \\"
_REDRAW_S = 0.5
# After this many decided benchmarks only slower ones have a line of their own.
_MOST_DECIDED = 30


def gate_view(report: GateReport, *, verbose: bool = False) -> RenderableType:
    """Return the result, the decision first: all of it with ``verbose``, else at most 25 lines."""
    view, both = (_whole_view if verbose else _short_view), both_sentence(report)
    if report.against is None or both is None:
        return view(report)
    return Group(spaced(view(report), view(report.against)), Text(both, style="bold"))


def _short_view(report: GateReport) -> Shortened:
    names = short_names(found.benchmark.name for found in report.comparisons)
    decision, *others = decision_lines(report, names, brief=True)
    short = headline(report, None)
    # Names that take lines stand in the table alone, and what they are named for beside them.
    is_long = _lines_of(short) + 1 < _lines_of(decision)
    ordered = wording.benchmarks_of(wording.in_order(report.comparisons))
    of_note = [one for one in ordered if one.verdict in _OF_NOTE][:_MOST_ROWS]
    timed = [one for one in of_note if one.estimate is not None]
    waits = any(one.benchmark.name == MEASURING for one in report.comparisons)
    edited = [*dict.fromkeys(PurePosixPath(edit.path.partition("::")[0]).name for edit in report.measuring)]
    undecided = report.exit_code not in (EXIT_PASS, EXIT_REGRESSED)
    table = _Rows(tuple(_cells(one, names) for one in timed))
    remarks = _remarks(of_note, names, functools.partial(_short_details, doubts=is_long))
    first, second = (
        (remarks, table) if report.exit_code == EXIT_NOT_MEASURED and remarks else (table, remarks)
    )
    sections: tuple[Section, ...] = (
        [*_moved_lines(report, names), *(Folded(line) for line in moved_lines(report.exact))],
        first,
        second,
        [Text(line) for line in others[1:]],
        measuring_view(report.measuring) if waits else [],
        [] if waits or not edited else [Text(f"edits how it is measured: {listed(edited, _MOST_NAMED)}")],
        [Folded(f"note: {note}") for note in report.notes if undecided],
    )

    def others_than(rows: int) -> Iterator[RenderableType]:
        rest = [one for one in ordered if one in timed[rows:] or one not in of_note]
        if rest:
            yield Text(_rest(rest, names, after=len(rest) < len(ordered)))

    return Shortened(
        begin=Group(
            Text(short if is_long else decision, style=decision_style(report)), *map(Text, others[:1])
        ),
        sections=sections,
        first=first,
        others_than=others_than,
        sides=Group(*_short_sides(report)),
        closing=Group(*_short_closing(report, names)),
    )


def _lines_of(text: str) -> int:
    return -(-cell_len(text) // WHOLE_COLUMNS)


def _cells(one: Comparison, names: Mapping[str, str]) -> tuple[str, ...]:
    """Return a benchmark's name, times, change, interval and verdict."""
    times, estimate = wording.times_text(one), one.estimate
    change, interval = wording.change_text(estimate), wording.interval_text(estimate)
    return names[one.benchmark.name], *times, change, interval, wording.shown(one.verdict)


def _short_details(one: Comparison, *, doubts: bool) -> Sequence[str]:
    if one.estimate is None:
        return wording.details(one)
    more_cpu = [f"MORE CPU TIME ×{one.cpu_ratio:.2g}"] if doubts and one.costs_more_cpu else []
    # A line of the decision has what became no faster and gives another result.
    doubt = wording.doubts_text(one) if doubts and one.verdict in wording.GAINS else ""
    return [*more_cpu, *filter(None, [doubt]), *wording.standing(one)]


def _rest(rest: Sequence[Comparison], names: Mapping[str, str], *, after: bool) -> str:
    """Return how many benchmarks there are besides those of a table, and the names of a few."""
    kinds, others = Counter(one.verdict for one in rest), "others: " if after else ""
    if len(rest) <= _MOST_NAMED:
        named = others + ", ".join(
            f"{count} {wording.shown(verdict)}"
            f" ({'; '.join(_named(one, names) for one in rest if one.verdict == verdict)})"
            for verdict, count in kinds.most_common()
        )
        if cell_len(named) <= WHOLE_COLUMNS:
            return named
    same = [one.estimate for one in rest if one.estimate is not None and one.verdict == "UNCHANGED"]
    most = f" ({wording.at_most(max(same, key=attrgetter('high')))})" if same else ""
    return f"{others}{_kinds(kinds, unchanged=most)}"


def _named(one: Comparison, names: Mapping[str, str]) -> str:
    """Return a benchmark with its change and interval."""
    name, estimate = names[one.benchmark.name], one.estimate
    if estimate is None:
        return name
    return f"{name} {wording.change_text(estimate)}, {wording.interval_text(estimate)}"


def _moved_lines(report: GateReport, names: Mapping[str, str]) -> Iterator[RenderableType]:
    """Yield where the time of each regressed benchmark went, by function and line."""
    for found in report.explanations[:_MOST_EXPLAINED]:
        name, part = names.get(found.benchmark, found.benchmark), wording.slowest_part(found)
        if part is None:
            yield from (Folded(f"{name}: {finding}") for finding in found.findings[:1])
            continue
        by = f", {callee}" if (callee := slower_callee(part)) else ""
        # A profile slows calls down by much, so that its times are not those of the table.
        yield Folded(f"{name}: {part.name} ({part.place}) takes more time{by}")
        # One that is about another function would contradict this one.
        yield from (Folded(f"  {one}") for one in found.findings[:1] if part.name in one or "(" not in one)


def _short_sides(report: GateReport) -> Iterator[RenderableType]:
    for name, one in (("base", report.base), ("head", report.head)):
        yield Text(f"{name}  {commit_text(one)}", no_wrap=True, overflow="ellipsis")
    if differ := difference_of_sides(report):
        yield Folded(differ)


def _short_closing(report: GateReport, names: Mapping[str, str]) -> Iterator[RenderableType]:
    notes = f", {counted(len(report.notes), 'note')}" if report.notes else ""
    run, took = wording.run_text(report), human_seconds(report.wall_s)
    judge = follow_up(f"perfkit ledger judge {run} --verbose")
    again = "--verbose" if report.unrecorded is not None else judge
    yield from _next(report, names, brief=True)
    # The ledger does not have the time of what follows the measuring, such as profiles.
    ended = f"{'measured in' if report.from_ledger else 'took'} {took}"
    # Where it is one of two, the command ends with the exit code of both.
    code = "" if report.release or report.against else f"exit code {report.exit_code}, "
    yield _Command(f"{code}{ended}{notes}; more: {again}", style="dim")


@dataclass(frozen=True)
class _Rows:
    """Benchmarks in columns; a name that does not fit has a line of its own, and none is cut."""

    rows: tuple[tuple[str, ...], ...]

    def blocks(self, width: int) -> Iterator[RenderableType]:
        """Yield each benchmark with its numbers, the first below the headings."""
        rows = [("benchmark", "base", "head", "change", "interval", "verdict"), *self.rows]
        most, widths = min(width, WHOLE_COLUMNS), _widths(rows)
        if sum(widths[1:]) + len(widths) - 2 > most or all(row[1:3] == ("-", "-") for row in self.rows):
            rows = [(name, *cells) for name, _, _, *cells in rows]
            widths = _widths(rows)
        room = most - sum(widths[1:]) - len(widths) + 1
        name_width = max((size for name, *_ in rows if (size := cell_len(visible(name))) <= room), default=0)
        headings: list[RenderableType] = []
        for number, (name, *cells, verdict) in enumerate(rows):
            shown = visible(name) if number or name_width >= len(name) else ""
            is_beside = cell_len(shown) <= name_width
            begin = shown if is_beside else ""
            begin += " " * (name_width - cell_len(begin) + bool(name_width))
            numbers = " ".join(f"{cell:>{size}}" for cell, size in zip(cells, widths[1:], strict=False))
            style = _STYLES.get(verdict, _OTHER_STYLE) if number else "dim"  # type: ignore[call-overload]
            line = Text.assemble((f"{begin}{numbers} ", "" if number else "dim"), (verdict, style))
            own = [] if is_beside else [Text(shown, overflow="fold")]
            if number:
                yield Group(*headings, *own, line)
            headings = [] if number else [line]


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*rows, strict=True)]


def _whole_view(report: GateReport) -> Group:
    names = short_names(found.benchmark.name for found in report.comparisons)
    ordered = wording.in_order(report.comparisons)
    decision, *others = decision_lines(report, names)
    shown = wording.benchmarks_of(ordered)
    sections: tuple[RenderableType, ...] = (
        Text(decision, style=decision_style(report)),
        *measuring_view(report.measuring),
        _heading(report),
        *([result_table(shown, names)] if shown else []),
        *([Text(reading_guide(report, names), style="dim")] if wording.is_timed(report) else []),
        *_together(_remarks(ordered, names)),
        *(_explanation(found, names) for found in report.explanations),
        *counter_sections(report.exact),
        *([Group(*(Text(f"note: {note}") for note in report.notes))] if report.notes else []),
    )
    return Group(spaced(*sections), Text("\n".join(others)), *_next(report, names))


def result_table(
    comparisons: Sequence[Comparison],
    names: Mapping[str, str],
    *,
    counted: str = "laun-\nches",
    of_open: bool = False,
) -> Table:
    """Return a line per benchmark; with ``of_open`` undecided ones have times too."""
    table = plain_table("base", "head", "change", "interval")
    table.add_column("verdict", no_wrap=True)
    table.add_column(counted, justify="right", no_wrap=True)
    shown, others = wording.without_many_not_reached(comparisons)
    for found in shown:
        table.add_row(
            BrokenName(names[found.benchmark.name]),
            *wording.times_text(found, of_open=of_open),
            (of_open and wording.seen_change(found)) or wording.change_text(found.estimate),
            *_bounded(found),
            wording.launches_text(found.estimate),
        )
    if others is not None:
        table.add_row(others, "", "", "", "", verdict_text("NOT REACHED"), "")
    return table


def _bounded(comparison: Comparison) -> tuple[str, Text]:
    """Return interval and verdict; a line below names them as of a lower-quartile call alone."""
    interval, verdict = wording.interval_text(comparison.estimate), verdict_text(comparison.verdict)
    if comparison.costs_more_cpu:
        interval, verdict = f"\n{interval}", Text.assemble(f"MORE CPU ×{comparison.cpu_ratio:.2g}\n", verdict)
    limit = wording.limit_of_all_calls(comparison)
    if limit is None:
        return interval, verdict
    return f"{interval}\nlower quartile;", Text.assemble(verdict, f"\nmean ≤ {limit}")


def plain_table(*headings: str) -> Table:
    """Return an empty table: names of benchmarks, which may be broken, and columns of numbers."""
    return columns_table("benchmark", numbers=headings, padding=0)


def verdict_text(verdict: Verdict) -> Text:
    """Return a verdict in its colour."""
    return Text(wording.shown(verdict), style=_STYLES.get(verdict, _OTHER_STYLE))


def _heading(report: GateReport) -> Text:
    how = ", recomputed from the ledger" if report.from_ledger else ""
    how += f", against {report.release}" if report.release else ""
    return _sides(f"gate {wording.run_text(report)}{how}", report, difference_of_sides(report))


def _sides(title: str, report: GateReport | ApartReport, below: str | None = None) -> Text:
    sides = (f"base  {commit_text(report.base)}", f"head  {commit_text(report.head)}")
    return Text("\n".join(filter(None, (title, *sides, below))))


def commit_text(commit: Commit) -> str:
    """Return a line for a commit: its first digits, whether it had changes, and its subject."""
    dirty = " with uncommitted changes" if commit.dirty else ""
    return f"{commit.sha[:_SHA_DIGITS]}{dirty}  {commit.subject or ''}".rstrip()


def _remarks(
    comparisons: Sequence[Comparison],
    names: Mapping[str, str],
    words: Callable[[Comparison], Sequence[str]] = wording.details,
) -> list[RenderableType]:
    """Return the remarks on benchmarks; one that several benchmarks share is made once."""
    by_remark: dict[tuple[Verdict, str], list[str]] = {}
    for one in comparisons:
        if text := "; ".join(words(one)):
            by_remark.setdefault((one.verdict, text), []).append(names[one.benchmark.name])
    return [
        Text.assemble(verdict_text(verdict), f" {', '.join(benchmarks)}: {text}")
        for (verdict, text), benchmarks in by_remark.items()
    ]


def _together(lines: Sequence[RenderableType]) -> list[RenderableType]:
    return [Group(*lines)] if lines else []


@dataclass(frozen=True)
class _Command:
    """A command to type; a long one is broken at a place where a shell accepts it."""

    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        most = min(options.max_width, WHOLE_COLUMNS)
        lines = [""]
        for part in re.split("(?<=accept) (?=')| (?=--(?!verbose))", self.text):
            together = f"{lines[-1]} {part}" if lines[-1] else part
            if not lines[-1] or cell_len(together) <= most - len(_GOES_ON):
                lines[-1] = together
            else:
                lines.append(f"    {part}")
        fits = cell_len(self.text) <= most
        text = self.text if fits else f"{_GOES_ON}\n".join(lines)
        yield Text(text, overflow="fold", style=self.style)


def _explanation(explanation: Explanation, names: Mapping[str, str]) -> RenderableType:
    name, section = names.get(explanation.benchmark, explanation.benchmark), explanation.section
    return Group(
        Text(f"{name}: {wording.explanation_title(explanation)}"),
        *([Padding(section_table(section, wording.MOST_MOVED), (0, 0, 0, 2))] if section else []),
        *(Padding(line, (0, 0, 0, 2)) for line in as_list(explanation.findings, indent=2)),
    )


def _next(report: GateReport, names: Mapping[str, str], *, brief: bool = False) -> Iterator[RenderableType]:
    if left := left_open(report, names):
        left = left_open(report, None) if brief and cell_len(left) > WHOLE_COLUMNS else left
        yield Text(f"also undecided: {left}; {again_step(report)}")
    step, command = next_step(report, names)
    if step:
        yield Text(f"next: {step}{':' if command else ''}")
    if command is not None:
        yield _Command(f"  {command}")


def decision_style(report: GateReport | ApartReport) -> str:
    """Return the colour of a decision."""
    return _DECISION_STYLES.get(decision_word(report), f"bold {_OTHER_STYLE}")


def first_of_many(comparisons: Sequence[Comparison]) -> tuple[Sequence[Comparison], list[str]]:
    """Return the comparisons that are listed, and a line for each file with others."""
    if len(comparisons) <= LONG:
        return comparisons, []
    rest: dict[str, Counter[Verdict]] = {}
    for one in comparisons[_MOST_ROWS:]:
        rest.setdefault(one.benchmark.name.partition("::")[0], Counter())[one.verdict] += 1
    lines = [f"{file}: {_kinds(found)}" for file, found in rest.items()]
    hidden = sum((found for found in [*rest.values()][_MOST_FILES:]), Counter[Verdict]())
    if hidden:
        lines[_MOST_FILES:] = [f"{len(rest) - _MOST_FILES} more files: {_kinds(hidden)}"]
    return comparisons[:_MOST_ROWS], ["and by file:", *(f"  {line}" for line in lines)]


def _kinds(found: Counter[Verdict], *, unchanged: str = "") -> str:
    return ", ".join(
        f"{count} {wording.shown(verdict)}{unchanged if verdict == 'UNCHANGED' else ''}"
        for verdict, count in found.most_common()
    )


Section = _Rows | Sequence[RenderableType]


@dataclass(frozen=True, kw_only=True)
class Shortened:
    """A result of at most 25 lines, with blank lines between its sections.

    A section is cut after one of its parts, such as a benchmark with its numbers. The ``sides`` are left out
    where the ``first`` section has no room beside them; ``others_than`` so many is what the table lacks.
    """

    begin: RenderableType
    sections: Sequence[Section]
    first: Section
    others_than: Callable[[int], Iterator[RenderableType]]
    sides: RenderableType
    closing: RenderableType

    @property
    def renderables(self) -> Sequence[RenderableType]:
        """What begins with the verdict."""
        return (self.begin,)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        def lines(part: RenderableType) -> list[list[Segment]]:
            return console.render_lines(part, options, pad=False)

        kept = [one for one in self.sections if (one.rows if isinstance(one, _Rows) else one)]
        blocks = [
            [lines(part) for part in (one.blocks(options.max_width) if isinstance(one, _Rows) else one)]
            for one in kept
        ]
        sizes = [[len(part) for part in one] for one in blocks]
        table = next((place for place, one in enumerate(kept) if isinstance(one, _Rows)), -1)
        first = next((place for place, one in enumerate(kept) if one is self.first), -1)
        rows = len(sizes[table]) if table >= 0 else 0
        begin, sides, closing = map(lines, (self.begin, self.sides, self.closing))
        others = lines(Group(*self.others_than(rows)))
        room = _MOST_LINES - len(begin) - len(closing) - 1
        if len(sides) + len(others) + sum(sum(one, 1) for one in sizes) > room:
            # A line for what the table lacks, and one for what other sections lack.
            room -= 1 + (len(sizes) > (table >= 0))
            sides = sides if len(sides) + (sizes[first][0] + 1 if first >= 0 else 0) <= room else []
        shown = _fitting(sizes, room - len(sides), first=first)
        for line in begin:
            yield from (*line, Segment.line())
        for one, number in zip(blocks, shown, strict=True):
            if number:
                yield Segment.line()
            for line in itertools.chain(*one[:number]):
                yield from (*line, Segment.line())
        yield Segment.line()
        left = sum(
            sum(size[number:])
            for place, (size, number) in enumerate(zip(sizes, shown, strict=True))
            if place != table
        )
        yield from self.others_than(shown[table] if rows else 0)
        if left:
            yield Text(f"… {left} more lines (--verbose)", style="dim")
        for line in (*sides, *closing):
            yield from (*line, Segment.line())


def _fitting(sizes: Sequence[Sequence[int]], room: int, *, first: int) -> list[int]:
    """Return how many parts of each section fit, by turns; one part of the ``first`` is shown at any rate."""
    shown = [0] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda place: place != first)
    for number in range(max(map(len, sizes), default=0)):
        for place in order:
            if shown[place] != number or number == len(sizes[place]):
                continue
            # A blank line is before each section.
            lines = sizes[place][number] + (number == 0)
            if lines <= room or (place == first and number == 0):
                shown[place] += 1
                room -= lines
    return shown


class GateProgress(Drawn):
    """Shows a gate's progress on standard error: a table in a terminal, plain lines elsewhere."""

    def __init__(self, *, enabled: bool) -> None:
        super().__init__(enabled=enabled)
        self._drawn = self._live = live_on(self._console)
        self._title = self._stage = self._time = ""
        self._states: tuple[Comparison, ...] = ()
        self._decided: set[str] = set()
        self._drawn_s = 0.0

    def begin(self, title: str) -> None:
        """Show what is compared; what was compared before is over."""
        self._title, self._states, self._drawn_s = title, (), 0.0
        self._decided.clear()
        self._show(title)

    def info(self, text: str) -> None:
        """Show which stage begins; one of a single benchmark is drawn alone."""
        self._stage, self._time = text, ""
        if "::" not in text:
            self._write(text)
        self._draw()

    def update(self, states: Sequence[Comparison], elapsed_s: float, left_s: float | None) -> None:
        """Show the benchmarks, some of which are not decided yet, with the time gone and left."""
        if self._in_lines:
            self._add_lines(states, elapsed_s)
        before, now = (
            [(one.benchmark.name, one.verdict) for one in found] for found in (self._states, states)
        )
        self._states = tuple(states)
        self._time = f"{elapsed_s:.0f} s" + ("" if left_s is None else f", about {left_s:.0f} s left")
        if before != now or elapsed_s - self._drawn_s >= _REDRAW_S:
            self._drawn_s = elapsed_s
            self._draw()

    def _add_lines(self, states: Sequence[Comparison], elapsed_s: float) -> None:
        names = short_names(state.benchmark.name for state in states)
        for state in states:
            if state.verdict not in UNDECIDED and state.benchmark.name not in self._decided:
                self._decided.add(state.benchmark.name)
                if len(self._decided) <= _MOST_DECIDED or state.verdict == "REGRESSED":
                    self._show(f"[{elapsed_s:.0f} s] {names[state.benchmark.name]}: {_result(state)}")

    def _show(self, text: str) -> None:
        self._write(text)
        self._draw()

    def _draw(self) -> None:
        if not self._in_terminal:
            return
        status = "  ".join(part for part in (self._stage, self._time) if part)
        head = Text("\n".join(part for part in (self._title, status) if part))
        self._live.update(Group(head, _table(self._states)) if self._states else head, refresh=True)


def _table(states: Sequence[Comparison]) -> Table:
    """Return one line per benchmark, always in the same order, as a moving line is hard to follow."""
    names = short_names(state.benchmark.name for state in states)
    table = plain_table("change", "interval")
    table.add_column("verdict", no_wrap=True, min_width=len("NOT REACHED"))
    table.add_column("launches", justify="right", no_wrap=True)
    for state in states:
        undecided = state.verdict in UNDECIDED
        table.add_row(
            BrokenName(names[state.benchmark.name]),
            wording.change_text(state.estimate),
            wording.interval_text(state.estimate),
            Text("measuring") if undecided else verdict_text(state.verdict),
            wording.launches_text(state.estimate),
        )
    return table


def _result(state: Comparison) -> str:
    if state.estimate is None:
        return "; ".join((wording.shown(state.verdict), *wording.details(state)))
    change, interval = wording.change_text(state.estimate), wording.interval_text(state.estimate)
    limit = wording.limit_of_all_calls(state)
    bound = "" if limit is None else f"; lower quartile; mean {wording.at_most(state.other)}"
    after = f"after {wording.launches_text(state.estimate)} launches"
    return f"{wording.shown(state.verdict)} {change} ({interval}) {after}{bound}"


_GUIDE = (
    "Not interleaved: each commit was measured in sessions of its own, an hour or more apart. Base and head"
    " are geometric means over sessions, per call. Intervals hold with {confidence} confidence for all of"
    " them together and are widened by how much sessions of the same code differ on this machine; where that"
    " leaves too much open, `perfkit gate` interleaves both sides."
)


def compare_view(report: ApartReport) -> Group:
    """Return the whole result, the decision last; it fits a terminal of 80 columns."""
    names = short_names(found.benchmark.name for found in report.comparisons)
    ordered = wording.in_order(report.comparisons)
    shown, rest = first_of_many(ordered)
    confidence = wording.percent(1 - report.policy.alpha)
    sections: tuple[RenderableType, ...] = (
        _sides("compare, from the ledger: not interleaved", report),
        *([result_table(shown, names, counted="sess-\nions", of_open=True)] if shown else []),
        *([Text("\n".join(rest))] if rest else []),
        *([Text(_GUIDE.format(confidence=confidence), style="dim")] if shown else []),
        *_together(
            _remarks(
                ordered, names, lambda one: wording.details(one) if one.estimate else [one.message or ""]
            )
        ),
        *counter_sections(report.exact),
        *(Text(f"note: {note}") for note in report.notes),
    )
    decision, *others = decision_lines(report, names)
    closing = Text.assemble((decision, decision_style(report)), *(f"\n{line}" for line in others))
    return Group(spaced(*sections), closing)


def compare_decision(report: ApartReport) -> str:
    """Return what was decided, in a sentence."""
    return decision_lines(report, short_names(one.benchmark.name for one in report.comparisons))[0]
