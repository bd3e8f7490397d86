"""Terminal view of an unpaired comparison: the table, its remarks and the decision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perfkit.model import Commit
from perfkit.model.comparisons import ApartReport, Comparison, Verdict
from perfkit.report.gate.counters import counter_sections
from perfkit.report.gate.decision import decision_lines
from perfkit.report.gate.terminal import commit_text, decision_text, first_of_many, result_table, verdict_text
from perfkit.report.gate.wording import details, in_order, percent
from perfkit.report.names import short_names

_GUIDE = (
    "Not interleaved: each commit was measured in sessions of its own, an hour or more apart. Base and head"
    " are geometric means over sessions, per call. Intervals hold with {confidence} confidence for all of"
    " them together and are widened by how much sessions of the same code differ on this machine; where that"
    " leaves too much open, `perfkit gate` interleaves both sides."
)


def compare_view(report: ApartReport) -> Group:
    """Return the whole result, the decision last; it fits a terminal of 80 columns."""
    names = short_names(found.benchmark.name for found in report.comparisons)
    ordered = in_order(report.comparisons)
    shown, rest = first_of_many(ordered)
    sections: tuple[RenderableType, ...] = (
        _heading(report.base, report.head),
        result_table(shown, names, counted="sess-\nions", of_open=True),
        *([Text("\n".join(rest))] if rest else []),
        Text(_GUIDE.format(confidence=percent(1 - report.policy.alpha)), style="dim"),
        *_remarks(ordered, names),
        *counter_sections(report.exact),
        *(Text(f"note: {note}") for note in report.notes),
    )
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections), decision_text(report, names))


def compare_decision(report: ApartReport) -> str:
    """Return what was decided, in a sentence."""
    return decision_lines(report, short_names(one.benchmark.name for one in report.comparisons))[0]


def _heading(base: Commit, head: Commit) -> Text:
    sides = (f"{side}  {commit_text(commit)}" for side, commit in (("base", base), ("head", head)))
    return Text("\n".join(("compare, from the ledger: not interleaved", *sides)))


def _remarks(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> Iterator[RenderableType]:
    """Yield remarks on single benchmarks; a remark that several benchmarks share is made once."""
    by_remark: dict[tuple[Verdict, str], list[str]] = {}
    for found in comparisons:
        by_remark.setdefault((found.verdict, "; ".join(_details(found))), []).append(
            names[found.benchmark.name]
        )
    remarks = [
        Text.assemble(verdict_text(verdict), f" {', '.join(benchmarks)}: {text}")
        for (verdict, text), benchmarks in by_remark.items()
        if text
    ]
    if remarks:
        yield Group(*remarks)


def _details(comparison: Comparison) -> list[str]:
    """Return the remarks on a comparison; where there is no estimate its message is enough."""
    if comparison.estimate is None and comparison.message is not None:
        return [comparison.message]
    return details(comparison)
