"""``perfkit check``: a gate in a few lines: is the change faster, and are its results the same?"""

from __future__ import annotations

import math
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.invocation import follow_up
from perfkit.model.comparisons import REMARKS, Comparison, Estimate, GateReport, ResultCompared, Verdict
from perfkit.report.gate import wording
from perfkit.report.gate.counters import count_title
from perfkit.report.gate.decision import larger_budget_s, next_step
from perfkit.report.names import WHOLE_COLUMNS, short_names
from perfkit.units import amount_text, counted, listed

# Gains and losses of a few benchmarks are decided by then.
DEFAULT_BUDGET_S = 30.0
CheckVerdict = Literal[
    "faster", "slower", "costs more", "unchanged", "undecided", "doubtful", "other result", "not measured"
]
_RESULTS: tuple[ResultCompared, ...] = ("other", "not compared", "same")
# What matters most comes first, for each exit code; the last stands where there is none of the others.
_FIRST: Mapping[int, tuple[CheckVerdict, ...]] = {
    EXIT_REGRESSED: ("other result", "slower", "costs more"),
    EXIT_NOT_MEASURED: ("not measured",),
    EXIT_INCONCLUSIVE: ("undecided",),
    EXIT_PASS: ("other result", "doubtful", "faster", "slower", "costs more", "undecided", "unchanged"),
}
_ORDER: tuple[CheckVerdict, ...] = (
    "other result", "slower", "costs more", "doubtful", "not measured", "undecided", "faster", "unchanged"
)  # fmt: skip
_VERDICTS: Mapping[Verdict, CheckVerdict] = {
    "REGRESSED": "slower",
    "OTHER RESULT": "other result",
    "IMPROVED": "faster",
    **dict.fromkeys(("UNCHANGED", "NOT SLOWER", "SAME CODE"), "unchanged"),
    **dict.fromkeys(("INCONCLUSIVE", "NOT REACHED"), "undecided"),
}
_MOST_BENCHMARKS, _MOST_FUNCTIONS, _MOST_ROWS, _MOST_NAMES = 10, 10, 3, 3
_LITTLE = 0.1


@dataclass(frozen=True, kw_only=True)
class CheckedBenchmark:
    """One benchmark; the change has the limits of its interval around it.

    ``doubts`` has counts that grew as well, and ``where`` the line that took most of the time more.
    """

    name: str
    change_percent: tuple[float, float, float] | None
    verdict: CheckVerdict
    doubts: tuple[str, ...] = ()
    where: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckedCoverage:
    """How many of the changed functions a timed call runs, and the first of those that none does.

    It is ``not_known`` of so many, since not all benchmarks could be traced.
    """

    measured: int
    changed: int
    not_measured: tuple[str, ...]
    not_known: int = 0


@dataclass(frozen=True, kw_only=True)
class Check:
    """The shortest answer of a gate; ``counts`` and ``results`` are of all benchmarks.

    ``coverage`` is None where it is not known what the benchmarks run of the change. ``measuring`` is what
    the change edits of how it is measured.
    """

    exit_code: int
    verdict: CheckVerdict
    benchmarks: tuple[CheckedBenchmark, ...]
    counts: Mapping[CheckVerdict, int]
    results: Mapping[ResultCompared, int]
    coverage: CheckedCoverage | None
    next: str
    run_id: str
    measuring: tuple[str, ...] = ()


def summarise(report: GateReport, *, code: int, again: str) -> Check:
    """Return the answer that a gate's report holds; ``again`` is the command that was typed."""
    names = short_names(
        [one.benchmark.name for one in report.comparisons] + [one.benchmark.name for one in report.exact]
    )
    places = {one.benchmark: wording.slowest_part(one) for one in report.explanations}
    grown: dict[str, list[str]] = {}
    for count in report.exact:
        if count.verdict == "REGRESSED" and wording.decides(count):
            amounts = [amount_text(amount, count.metric.unit) for amount in (count.base, count.head)]
            grown.setdefault(count.benchmark.name, []).append(f"{count_title(count)} {' to '.join(amounts)}")
    timed = {one.benchmark.name: one for one in wording.benchmarks_of(report.comparisons)}
    found = {}
    for name in (*timed, *(name for name in grown if name not in timed)):
        part = places.get(name)
        found[name] = CheckedBenchmark(
            name=names[name],
            change_percent=_percent(timed[name].estimate if name in timed else None),
            verdict=_verdict(timed.get(name), costs_more=name in grown),
            doubts=(*grown.get(name, ()), *_doubts(timed.get(name))),
            where=part.place if part else None,
        )
    gating = [one.verdict for name, one in found.items() if name in grown or timed[name].gating]
    order = _FIRST[code]
    verdict = next((word for word in order if word in gating), order[-1])
    ordered = sorted(found.values(), key=lambda one: (_ORDER.index(one.verdict), -_size(one)))
    same = {names[name] for name, one in timed.items() if one.verdict == "SAME CODE"}
    shown = tuple(one for one in ordered if one.name not in same)[:_MOST_BENCHMARKS]
    return Check(
        exit_code=code,
        verdict=verdict,
        benchmarks=shown,
        counts=Counter(one.verdict for one in ordered),
        results=Counter(sorted(map(_result, timed.values()), key=_RESULTS.index)),
        coverage=_coverage(report),
        next=_next(report, verdict, shown, again),
        run_id=report.run_id,
        measuring=tuple(f"{one.path}: {one.what}" for one in report.measuring[:_MOST_NAMES]),
    )


def check_lines(check: Check) -> Iterator[str]:
    """Yield at most eight lines of 80 columns; a command to paste stays whole."""
    shown = [one for one in check.benchmarks if one.change_percent or one.where or one.doubts]
    rows = ["  ".join(filter(None, (one.name, _change_text(one), one.verdict, one.where))) for one in shown]
    yield f"{check.verdict.upper()}: {_counted(check.counts)} (exit code {check.exit_code})"
    for row in rows[:_MOST_ROWS]:
        yield _shortened(f"  {row}")
    yield f"result: {_counted(check.results)}"
    yield _shortened(f"coverage: {_coverage_text(check.coverage)}")
    edits = [f"it edits how it is measured, {edit}" for edit in check.measuring[:1]]
    if doubts := [*edits, *(f"{one.name}: {text}" for one in shown for text in one.doubts)]:
        lines = 1 + _MOST_ROWS - min(len(rows), _MOST_ROWS)
        yield _shortened(f"doubts: {'; '.join(doubts)}", lines=lines)
    if check.next:
        yield f"next: {check.next}"


def _verdict(one: Comparison | None, *, costs_more: bool) -> CheckVerdict:
    if one is not None and one.accepted is None and any(doubt.kind == "other result" for doubt in one.doubts):
        return "other result"
    word: CheckVerdict = "unchanged" if one is None else _VERDICTS.get(one.verdict, "not measured")
    if costs_more and word != "slower":
        return "costs more"
    return "doubtful" if word == "faster" and [*_doubts(one)] else word


def _doubts(one: Comparison | None) -> Iterator[str]:
    if one is None:
        return
    if one.costs_more_cpu:
        yield f"takes ×{one.cpu_ratio:.2g} the CPU time"
    yield from (doubt.text for doubt in one.doubts if doubt.kind not in REMARKS)


def _result(one: Comparison) -> ResultCompared:
    if any(doubt.kind == "other result" for doubt in one.doubts):
        return "other"
    return one.result or ("same" if one.verdict == "SAME CODE" else "not compared")


def _percent(estimate: Estimate | None) -> tuple[float, float, float] | None:
    if estimate is None:
        return None
    # More digits where nearly nothing is left.
    low, middle, high = (
        round(100 * (ratio - 1), 1 if ratio > _LITTLE else 3)
        for ratio in (estimate.low, estimate.ratio, estimate.high)
    )
    return low, middle, high


def _size(one: CheckedBenchmark) -> float:
    return abs(math.log(max(1 + one.change_percent[1] / 100, 1e-9))) if one.change_percent else 0.0


def _coverage(report: GateReport) -> CheckedCoverage | None:
    coverage = report.coverage
    if coverage is None or coverage.not_traced or (coverage.everything and not coverage.functions):
        return None
    uncovered = coverage.uncovered
    left = [f"{one.name} ({one.file}:{one.line})" for one in uncovered if one.known]
    return CheckedCoverage(
        measured=len(coverage.functions) - len(uncovered),
        changed=len(coverage.functions),
        not_measured=tuple(left[:_MOST_FUNCTIONS]),
        not_known=len(uncovered) - len(left),
    )


def _next(
    report: GateReport,
    verdict: CheckVerdict,
    benchmarks: Iterable[CheckedBenchmark],
    again: str,
) -> str:
    first = next((one.name for one in benchmarks if one.verdict == verdict), "")
    if verdict in ("slower", "costs more"):
        gate = f"perfkit gate --base {report.base.sha[:12]} --select {shlex.quote(_selected(first))}"
        return f"see what moved: {follow_up(gate)}"
    if verdict == "undecided":
        budget_s = larger_budget_s(report)
        return f"measure longer: {follow_up(again + (f' --budget {budget_s}' if budget_s else ''))}"
    # A command that accepts another result would be pasted too soon.
    step, command = next_step(report, {}) if verdict not in ("other result", "doubtful") else ("", None)
    if step:
        return f"{step}: {command}" if command else step
    if verdict in ("other result", "doubtful", "not measured"):
        return f"read the whole report: {follow_up(f'perfkit ledger judge {wording.run_text(report)}')}"
    return ""


def _selected(name: str) -> str:
    """Return what ``--select`` takes for a benchmark: the name of its function."""
    return name.rpartition("::")[2].partition("[")[0]


def _change_text(one: CheckedBenchmark) -> str:
    if one.change_percent is None:
        return ""
    low, ratio, high = (1 + percent / 100 for percent in one.change_percent)
    known = Estimate(ratio=ratio, low=low, high=high, confidence=0.0, launches=0, launch_sd=None)
    return f"{wording.change_text(known)} ({wording.interval_text(known)})"


def _coverage_text(coverage: CheckedCoverage | None) -> str:
    if coverage is None:
        return "not known"
    if not coverage.changed:
        return "no function changed"
    measured = f"{coverage.measured} of {counted(coverage.changed, 'changed function')} measured"
    left = f"; not {listed(coverage.not_measured, _MOST_NAMES)}" if coverage.not_measured else ""
    left += f"; not known of {coverage.not_known}" if coverage.not_known else ""
    return measured + left


def _counted(counts: Mapping[CheckVerdict, int] | Mapping[ResultCompared, int]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts.items()) or "no benchmark"


def _shortened(text: str, *, lines: int = 1) -> str:
    return textwrap.fill(text, WHOLE_COLUMNS, subsequent_indent="  ", max_lines=lines, placeholder=" …")
