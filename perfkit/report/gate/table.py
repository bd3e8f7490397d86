"""Shows a gate's result in the terminal: the table, the remarks, and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfkit.model import Commit
from perfkit.model.comparisons import ApartReport, Comparison, Explanation, GateReport, Verdict
from perfkit.report.explain.terminal import listed, section_table
from perfkit.report.gate.decision import both_sentence, decision_lines, decision_word, reading_guide
from perfkit.report.gate.exact import exact_sections
from perfkit.report.gate.short import LONG, Shortened, first_of_many
from perfkit.report.gate.wording import (
    MOST_MOVED,
    accept_command,
    can_accept,
    change_text,
    details,
    explanation_title,
    in_order,
    interval_text,
    is_timed,
    launches_text,
    limit_of_all_calls,
    seen_change,
    times_text,
    told_changes,
    without_many_not_reached,
)
from perfkit.report.names import WHOLE_COLUMNS, BrokenName, NamedTable, short_names
from perfkit.report.surroundings import difference_of_sides

_ID_DIGITS = 8
_SHA_DIGITS = 10
_STYLES: dict[Verdict, str] = {
    "REGRESSED": "bold red",
    "IMPROVED": "green",
    "UNCHANGED": "dim",
    "NOT SLOWER": "dim",
}
_DECISION_STYLES = {"PASS": "bold green", "FAIL": "bold red"}
_OTHER_STYLE = "yellow"


def gate_view(report: GateReport) -> RenderableType:
    """Return the whole result, the decision first and how to read on last; it fits 80 columns."""
    both = both_sentence(report)
    if report.against is None or both is None:
        return _single_view(report)
    parts = (_single_view(report), _single_view(report.against))
    return Group(*(Padding(part, (0, 0, 1, 0)) for part in parts), Text(both, style="bold"))


def _single_view(report: GateReport) -> RenderableType:
    names = short_names(found.benchmark.name for found in report.comparisons)
    ordered = in_order(report.comparisons)
    decision, *others = decision_lines(report, names)
    shown, rest = first_of_many(ordered)
    begin: tuple[RenderableType, ...] = (
        Text(decision, style=decision_style(report)),
        *(Text(line, style=_OTHER_STYLE) for line in told_changes(report.changed_rules)),
        _heading(report),
        *([result_table(shown, names)] if ordered else []),
        *([Text("\n".join(rest))] if rest else []),
    )
    details: tuple[RenderableType, ...] = (
        *([Text(reading_guide(report, names), style="dim")] if is_timed(report) else []),
        *_remarks(ordered, names, can_accept=can_accept(report)),
        *(_explanation(found, names) for found in report.explanations),
        *exact_sections(report.exact),
        *_notes(report.notes),
    )
    sections = (*begin, *details, _closing(report, others))
    if max(len(ordered), len({found.benchmark.name for found in report.exact})) > LONG:
        return Shortened(sections, range(len(begin), len(begin) + len(details)))
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections[:-1]), sections[-1])


def result_table(
    comparisons: Sequence[Comparison],
    names: Mapping[str, str],
    *,
    counted: str = "laun-\nches",
    of_open: bool = False,
) -> Table:
    """Return one line per benchmark: times, change, interval, verdict, and how many launches or occasions.

    Times of undecided benchmarks are shown where ``of_open`` says so.
    """
    table = plain_table("base", "head", "change", "interval")
    table.add_column("verdict", no_wrap=True)
    table.add_column(counted, justify="right", no_wrap=True)
    shown, others = without_many_not_reached(comparisons)
    for found in shown:
        table.add_row(
            BrokenName(names[found.benchmark.name]),
            *times_text(found, of_open=of_open),
            (of_open and seen_change(found)) or change_text(found.estimate),
            *_bounded(found),
            launches_text(found.estimate),
        )
    if others is not None:
        table.add_row(others, "", "", "", "", verdict_text("NOT REACHED"), "")
    return table


def _bounded(comparison: Comparison) -> tuple[str, Text]:
    """Return interval and verdict; where these are of a typical call alone a line below them says so.

    That line goes through both columns, the one of which is justified to the right and the other to the left.
    """
    interval, verdict = interval_text(comparison.estimate), verdict_text(comparison.verdict)
    if comparison.costs_more_cpu:
        interval, verdict = f"\n{interval}", Text.assemble(f"MORE CPU ×{comparison.cpu_ratio:.2g}\n", verdict)
    limit = limit_of_all_calls(comparison)
    if limit is None:
        return interval, verdict
    return f"{interval}\ntypical call; all", Text.assemble(verdict, f"\ncalls ≤ {limit}")


def plain_table(*headings: str) -> Table:
    """Return an empty table: names of benchmarks, which may be broken, and columns of numbers."""
    table = NamedTable(box=SIMPLE, padding=0, show_edge=False)
    table.add_column("benchmark", ratio=1)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def verdict_text(verdict: Verdict) -> Text:
    """Return a verdict in its colour."""
    return Text(verdict, style=_STYLES.get(verdict, _OTHER_STYLE))


def _heading(report: GateReport) -> Text:
    how = ", recomputed from the ledger" if report.from_ledger else ""
    how += f", against {report.release}" if report.release else ""
    sides = (
        f"{side}  {commit_text(commit)}" for side, commit in (("base", report.base), ("head", report.head))
    )
    lines = (f"gate {report.run_id[-_ID_DIGITS:]}{how}", *sides, difference_of_sides(report))
    return Text("\n".join(filter(None, lines)))


def commit_text(commit: Commit) -> str:
    """Return a line for a commit: its first digits, whether it had changes, and its subject."""
    dirty = " with uncommitted changes" if commit.dirty else ""
    return f"{commit.sha[:_SHA_DIGITS]}{dirty}  {commit.subject or ''}".rstrip()


def _remarks(
    comparisons: Sequence[Comparison], names: Mapping[str, str], *, can_accept: bool
) -> Iterator[RenderableType]:
    """Yield the remarks on single benchmarks, with the command that lets a finding pass."""
    remarks = [_remark(found, names, can_accept=can_accept) for found in comparisons if details(found)]
    if remarks:
        yield Group(*remarks)


def _remark(comparison: Comparison, names: Mapping[str, str], *, can_accept: bool) -> RenderableType:
    name = names[comparison.benchmark.name]
    command = accept_command(comparison, name) if can_accept else None
    said = f" {name}: {'; '.join(details(comparison))}"
    remark = Text.assemble(verdict_text(comparison.verdict), said)
    if command is None:
        return remark
    return Group(remark.append("; to let it pass:"), _Command(f"  {command}"))


@dataclass(frozen=True)
class _Command:
    """A command to type; a long one is broken at a place where a shell accepts it."""

    text: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        broken = self.text.replace(" --reason", " \\\n    --reason")
        fits = cell_len(self.text) <= min(options.max_width, WHOLE_COLUMNS)
        yield Text(self.text if fits else broken, overflow="fold")


def _explanation(explanation: Explanation, names: Mapping[str, str]) -> RenderableType:
    """Return what moved most between the profiles of both sides, and what is to be said besides."""
    name, section = names.get(explanation.benchmark, explanation.benchmark), explanation.section
    return Group(
        Text(f"{name}: {explanation_title(explanation)}"),
        *([Padding(section_table(section, MOST_MOVED), (0, 0, 0, 2))] if section else []),
        *(Padding(line, (0, 0, 0, 2)) for line in listed(explanation.findings, indent=2)),
    )


def _notes(notes: Sequence[str]) -> Iterator[RenderableType]:
    if notes:
        yield Group(*(Text(f"note: {note}") for note in notes))


def _closing(report: GateReport, lines: Sequence[str]) -> Text:
    """Return the last lines; they begin with the decision, since they stay in sight after a long result."""
    return Text.assemble((f"{decision_word(report)}.", decision_style(report)), " ", "\n".join(lines))


def decision_style(report: GateReport | ApartReport) -> str:
    """Return the colour of a decision."""
    return _DECISION_STYLES.get(decision_word(report), f"bold {_OTHER_STYLE}")


def decision_text(report: GateReport | ApartReport, names: Mapping[str, str]) -> Text:
    """Return the decision in its colour, and the lines below it."""
    decision, *others = decision_lines(report, names)
    return Text.assemble((decision, decision_style(report)), *(f"\n{line}" for line in others))
