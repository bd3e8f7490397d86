"""Shows tricks in the terminal, those that help first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfkit.features.tricks.report.wording import (
    bounds_text,
    counts_text,
    crossing_sentence,
    equivalence_text,
    interaction_sentence,
    memory_text,
    suggestion_sentence,
    time_text,
)
from perfkit.features.tricks.verdict import (
    Answer,
    TricksReport,
    interactions,
    ranked,
    size_crossings,
    suggested,
)
from perfkit.report.gate.wording import after_waiting, percent
from perfkit.report.names import BrokenName, NamedTable
from perfkit.units import counted, human_seconds

_STYLES: dict[Answer, str] = {
    "helps": "bold green",
    "hurts": "bold red",
    "no difference": "",
    "cannot tell": "yellow",
    "not the same": "bold magenta",
    "failed": "bold magenta",
}


def tricks_view(report: TricksReport, codes: Mapping[str, str]) -> Group:
    """Return the ranked table, what else moved, crossovers, suggestions, and what was left out.

    It fits 80 columns; ``codes`` are how tricks are written.
    """
    sections: list[RenderableType] = [_table(report)]
    remarks = [
        *(f"{one.case.name}: {text}" for one in ranked(report.results) if (text := counts_text(one))),
        *map(crossing_sentence, size_crossings(report.results)),
        *(
            f"{one.case.name} failed: {one.comparison.message or equivalence_text(one)}"
            for one in report.results
            if one.answer == "failed"
        ),
        *(f"not tried: {name}: {why}" for name, why in report.left_out.items()),
    ]
    if remarks:
        sections.append(Group(*map(Text, remarks)))
    if report.claims:
        sections.append(_claims(report))
    sections.append(Text(guide(report), style="dim"))
    sections.append(Group(*map(Text, suggestions(report, codes))))
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections))


def tally_sentence(report: TricksReport) -> str:
    """Return how many trials ended with which answer, in a sentence."""
    answers = Counter(one.answer for one in report.results)
    told = ", ".join(f"{number} {answer}" for answer, number in sorted(answers.items()))
    return f"{counted(sum(answers.values()), 'trial')} of tricks: {told or 'nothing was tried'}"


def guide(report: TricksReport) -> str:
    """Return how to read the table."""
    margin = percent(report.results[0].comparison.margin) if report.results else "2 %"
    loops = any(one.case.loop for one in report.results)
    steps = " On a loop times are of a whole run, counts of a step." if loops else ""
    return (
        "Times and counts with the trick against those without it, measured in turns; intervals hold together"
        f" at {percent(1 - report.policy.alpha)}. A trick helps or hurts where its whole interval lies beyond"
        f" {margin}.{steps} Sides that do not give the same are not compared. It took"
        f" {human_seconds(report.wall_s)}{after_waiting(report.waited_s)}."
    )


def suggestions(report: TricksReport, codes: Mapping[str, str]) -> list[str]:
    """Return what to change in the loops on which tricks were tried, the best change first."""
    loops = dict.fromkeys(one.case.loop for one in report.results if one.case.loop)
    lines = []
    for loop in loops:
        helping = [one for one in suggested(report.results) if one.case.loop == loop]
        lines.append(f"To make {loop} faster:" if helping else _nothing_helps(report, loop))
        lines += [
            f"{place}. {suggestion_sentence(one, codes[one.case.trick])}"
            for place, one in enumerate(helping, start=1)
        ]
    return lines + [interaction_sentence(one) for one in interactions(report.results)]


def _nothing_helps(report: TricksReport, loop: str) -> str:
    open_ones = sum(one.case.loop == loop and one.answer == "cannot tell" for one in report.results)
    if not open_ones:
        return f"Nothing of it makes {loop} faster."
    return f"Nothing of it was seen to make {loop} faster; of {open_ones} a larger --budget could tell."


def _claims(report: TricksReport) -> Table:
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("what is said", "here", "what was seen"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "here")
    for claim in report.claims:
        table.add_row(Text(claim.statement), Text(claim.answer), Text(claim.evidence, style="dim"))
    return table


def _table(report: TricksReport) -> Table:
    table = NamedTable(box=SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("trick")
    table.add_column("does it help?", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    table.add_column("peak", justify="right", no_wrap=True)
    for one in ranked(report.results):
        table.add_row(
            BrokenName(one.case.name),
            Text(one.answer, style=_STYLES[one.answer]),
            time_text(one),
            bounds_text(one),
            memory_text(one),
        )
    return table
