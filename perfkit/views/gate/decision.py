"""The one sentence that says what a gate decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.records.comparisons import ApartReport, Comparison, ExactComparison, GateReport
from perfkit.units import counted, human_seconds
from perfkit.verdict.exit_code import exit_code
from perfkit.views.gate.wording import decides, in_order, percent

_WORDS = {
    EXIT_PASS: "PASS",
    EXIT_REGRESSED: "REGRESSED",
    EXIT_INCONCLUSIVE: "INCONCLUSIVE",
    EXIT_NOT_MEASURED: "NOT MEASURED",
}


def decision_word(report: GateReport | ApartReport) -> str:
    """Return the decision in a word or two: what its exit code means."""
    return _WORDS.get(report.exit_code, "NOT DECIDED")


def decision_sentence(report: GateReport | ApartReport) -> str:
    """Return the decision, what it rests on, the rules, the time that measuring took and the exit code."""
    causes = [found for found in report.comparisons if _is_cause(found, report.exit_code)]
    counts = [found for found in report.exact if decides(found) and exit_code((found,)) == report.exit_code]
    besides = [found for found in in_order(report.comparisons) if _is_news(found, causes)]
    parts = [
        f"{decision_word(report)}: {' and '.join(_reasons(report, causes, counts))}",
        *([f"also {_tally(besides)}"] if besides else []),
        *([f"family-wise alpha {report.policy.alpha:g}"] if _timed(report) else []),
        *([human_seconds(report.wall_s)] if isinstance(report, GateReport) else []),
        f"exit code {report.exit_code}",
    ]
    return "; ".join(parts)


def _timed(report: GateReport | ApartReport) -> bool:
    return bool(report.comparisons) or not report.exact


def _reasons(
    report: GateReport | ApartReport, causes: Sequence[Comparison], counts: Sequence[ExactComparison]
) -> Iterator[str]:
    """Yield why the decision is what it is: by the times, by the counts, or by both."""
    if causes or not counts:
        yield _reason(report, causes)
    if counts and report.exit_code == EXIT_REGRESSED:
        grown = counted(len(counts), "count")
        yield f"{grown} that {'decides' if len(counts) == 1 else 'decide'} grew beyond tolerance"
    elif counts and report.exit_code == EXIT_NOT_MEASURED:
        lost = counted(len(counts), "count")
        yield f"{lost} that {'decides' if len(counts) == 1 else 'decide'} could not be counted on head"
    elif counts:
        yield f"none of {counted(len(counts), 'count')} that decide grew beyond tolerance"


def _is_cause(comparison: Comparison, code: int) -> bool:
    return decides(comparison) and comparison.verdict != "NEW" and exit_code((comparison,)) == code


def _is_news(comparison: Comparison, causes: Sequence[Comparison]) -> bool:
    """Tell whether a comparison is worth a word besides the cause of the decision."""
    return comparison.verdict == "IMPROVED" or (
        comparison not in causes and not (comparison.verdict == "UNCHANGED" and decides(comparison))
    )


def _reason(report: GateReport | ApartReport, causes: Sequence[Comparison]) -> str:
    if not causes:
        all_new = all(one.verdict == "NEW" for one in report.comparisons)
        if report.comparisons and all_new:
            return "nothing was compared, since every benchmark is new"
        nothing = report.exit_code == EXIT_PASS or not report.comparisons
        return "no benchmark that gates was compared" if nothing else "the notes say why"
    margin = _margin(causes)
    if report.exit_code == EXIT_PASS:
        compared = counted(len(causes), "benchmark")
        return f"none of {compared} compared is slower by more than the margin ({margin})"
    what = {
        EXIT_REGRESSED: f"slower by more than the margin ({margin})",
        EXIT_INCONCLUSIVE: f"undecided at the margin ({margin})",
        EXIT_NOT_MEASURED: f"not compared ({_tally(causes)})",
    }[report.exit_code]
    share = f"{len(causes)} of {counted(len(report.comparisons), 'benchmark')}"
    return f"{share} {'is' if len(causes) == 1 else 'are'} {what}"


def _margin(comparisons: Sequence[Comparison]) -> str:
    """Return the margin, or the range of the margins: "2 %", "1 to 5 %"."""
    margins = sorted({found.margin for found in comparisons})
    smallest = f"{percent(margins[0]).removesuffix(' %')} to " if len(margins) > 1 else ""
    return smallest + percent(margins[-1])


def _tally(comparisons: Sequence[Comparison]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(map(_kind, comparisons)).items())


def _kind(comparison: Comparison) -> str:
    if comparison.accepted is not None:
        return f"{comparison.verdict} (accepted)"
    return comparison.verdict + ("" if comparison.gating else " (does not gate)")
