"""What tricks do on this machine: the answer to each, in the terminal, as a document and as a chart."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.features.experiments.records import Level, level_text
from perfkit.features.tricks.trick import CheckedClaim, Equivalence, TrickCase
from perfkit.gating.judge import interval_verdict
from perfkit.identity import shown_run_id
from perfkit.model import Commit, Environment, Machine
from perfkit.model.comparisons import Comparison, Estimate, ExactComparison, Policy, TimedVerdict, Verdict
from perfkit.report.chart import ChartRow, interval_chart
from perfkit.report.gate.wording import after_waiting, change_text, interval_text, percent
from perfkit.report.markdown_table import cell_code, escape, table_head, table_row
from perfkit.report.names import BrokenName, columns_table, spaced
from perfkit.stats.summary import crossing
from perfkit.units import amount_text, counted, human_seconds, signed_amount

if TYPE_CHECKING:
    from perfkit.features.tricks.trick import Trick

Answer = Literal["helps", "hurts", "no difference", "cannot tell", "not the same", "failed"]
ANSWERS: tuple[Answer, ...] = get_args(Answer)
_OF_VERDICT: Mapping[Verdict, Answer] = {
    "IMPROVED": "helps",
    "REGRESSED": "hurts",
    "UNCHANGED": "no difference",
    "INCONCLUSIVE": "cannot tell",
    "NOT REACHED": "cannot tell",
}


@dataclass(frozen=True, kw_only=True)
class TrickResult:
    """One trick at one size: base is without it, head with it. ``exact`` are the counts of both sides."""

    case: TrickCase
    comparison: Comparison
    equivalence: Equivalence
    exact: tuple[ExactComparison, ...] = ()

    @property
    def answer(self) -> Answer:
        """What it does; sides that do not do the same have no times to compare."""
        if not self.equivalence.equal:
            return "failed" if self.equivalence.problem else "not the same"
        return _OF_VERDICT.get(self.comparison.verdict, "failed")

    @property
    def ratio(self) -> float | None:
        """Time with the trick over time without it."""
        return self.comparison.estimate.ratio if self.comparison.estimate else None

    @property
    def peak_moved(self) -> float | None:
        """Bytes by which the peak of tensors differs; None where it was not counted on both sides."""
        for one in self.exact:
            if one.metric.name == "peak" and one.base is not None and one.head is not None:
                return one.head - one.base
        return None


@dataclass(frozen=True, kw_only=True)
class TricksReport:
    """All tricks that were tried, and why others were not.

    ``left_out`` is {"pinned_memory": "needs CUDA"}, and ``arguments`` are those of the loop; ``patches`` are
    the lines of its source that a trick is written into. Before the
    ``wall_s`` seconds that all took, another perfkit kept it waiting for ``waited_s``. ``unrecorded`` is
    the reason why it is not in the ledger, None where it is.
    """

    run_id: str
    recorded_at: datetime
    commit: Commit
    machine: Machine
    environment: Environment
    policy: Policy
    wall_s: float
    waited_s: float = 0.0
    results: tuple[TrickResult, ...]
    left_out: Mapping[str, str]
    claims: tuple[CheckedClaim, ...] = ()
    arguments: Mapping[str, Level] = field(default_factory=dict)
    patches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unrecorded: str | None = None


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """What two tricks give together on a loop, against what they would give if their effects multiplied.

    The interval is of the measured time over the expected one: above one, each reduces the gain of the other.
    """

    both: TrickResult
    expected: float
    low: float
    high: float
    verdict: TimedVerdict


def helping(found: Iterable[tuple[TrickCase, Comparison]]) -> list[TrickCase]:
    """Return the cases on a loop that help, the best first."""
    helped = [
        (one.estimate.ratio, case)
        for case, one in found
        if case.loop and one.verdict == "IMPROVED" and one.estimate is not None
    ]
    return [case for _, case in sorted(helped, key=lambda pair: pair[0])]


def suggested(results: Iterable[TrickResult]) -> list[TrickResult]:
    """Return the single tricks that help on a loop, the best first."""
    return [
        one
        for one in ranked(results)
        if one.case.loop and one.answer == "helps" and len(one.case.tricks) == 1
    ]


def interactions(results: Sequence[TrickResult]) -> list[Interaction]:
    """Return what tricks tried together give against each by itself; intervals hold at once."""
    known = {one.case.name: one.comparison.estimate for one in results}
    found = []
    for both in results:
        names = (replace(both.case, trick=trick).name for trick in both.case.tricks)
        match [both.comparison.estimate, *map(known.get, names)]:
            case [Estimate() as joint, Estimate() as one, Estimate() as other]:
                found.append(_interaction(both, joint, one, other))
    return found


def _interaction(both: TrickResult, joint: Estimate, one: Estimate, other: Estimate) -> Interaction:
    low, high = joint.low / (one.high * other.high), joint.high / (one.low * other.low)
    return Interaction(
        both=both,
        expected=one.ratio * other.ratio,
        low=low,
        high=high,
        verdict=interval_verdict(low, high, both.comparison.margin),
    )


def ranked(results: Iterable[TrickResult]) -> list[TrickResult]:
    """Return results by their answer, and within one by how much they gain."""
    return sorted(results, key=lambda one: (ANSWERS.index(one.answer), one.ratio or 1.0, one.case.name))


def size_crossings(results: Iterable[TrickResult]) -> list[tuple[TrickCase, TrickCase, float, bool]]:
    """Return between which cases a trick turns from "helps" to "hurts" or back, at which size.

    The last part is whether it helps above that size.
    """
    by_trick: dict[str, list[tuple[float, TrickResult]]] = {}
    for one in results:
        if one.answer in {"helps", "hurts"} and one.ratio:
            by_trick.setdefault(one.case.trick, []).append((one.ratio, one))
    found = []
    for decided in by_trick.values():
        ordered = sorted(decided, key=lambda pair: pair[1].case.size)
        for (first, low), (second, high) in itertools.pairwise(ordered):
            size = crossing((low.case.size, first), (high.case.size, second))
            if size is not None:
                found.append((low.case, high.case, size, high.answer == "helps"))
    return found


_STYLES: dict[Answer, str] = {
    "helps": "bold green",
    "hurts": "bold red",
    "no difference": "",
    "cannot tell": "yellow",
    "not the same": "bold magenta",
    "failed": "bold magenta",
}
# A time that is known to differ by more than this helps or hurts, however wide the margin is.
NOISE_FLOOR = 0.01
# These counters are shown beside the time.
_COUNTERS = {"syncs": "host syncs", "operators": "operators", "allocated": "allocated"}
_INTERACTIONS: dict[TimedVerdict, str] = {
    "REGRESSED": "They take from each other",
    "IMPROVED": "They add to each other",
    "UNCHANGED": "They leave each other alone",
    "INCONCLUSIVE": "Whether they change each other is not known",
}
_HEADINGS = ("trick", "does it help?", "time", "interval", "peak of tensors", "results", "also")
_CHART_TITLE = "Time with each trick against time without it, by size"
_CHART_ROW = 22


def tricks_view(report: TricksReport, codes: Mapping[str, str]) -> Group:
    """Return the ranked table, what else moved, suggestions, and what was left out, in 80 columns."""
    sections: list[RenderableType] = [_table(report)]
    remarks = [
        *(f"{one.case.name}: {text}" for one in ranked(report.results) if (text := _counters_text(one))),
        *map(_crossing_sentence, size_crossings(report.results)),
        *(
            f"{one.case.name} failed: {one.comparison.message or _equivalence_text(one)}"
            for one in report.results
            if one.answer == "failed"
        ),
        *(f"not tried: {', '.join(names)}: {why}" for why, names in _by_reason(report).items()),
    ]
    if remarks:
        sections.append(Group(*map(Text, remarks)))
    sections.append(Text(_guide(report), style="dim"))
    sections.append(Group(*map(Text, _suggestions(report, codes))))
    return spaced(*sections)


def counts_sentence(report: TricksReport) -> str:
    """Return how many trials ended with which answer, in a sentence."""
    answers = Counter(one.answer for one in report.results)
    listed = ", ".join(f"{number} {answer}" for answer, number in sorted(answers.items()))
    return f"{counted(sum(answers.values()), 'trial')} of tricks: {listed or 'nothing was tried'}"


def tricks_document(
    report: TricksReport, descriptions: Mapping[str, Trick], *, picture: str | None = None
) -> str:
    """Return the document as markdown; ``picture`` is the name of a file beside it with the sizes."""
    loops = _loops(report)
    codes = {name: one.code for name, one in descriptions.items()}
    lines = _suggestions(report, codes)
    rows = (_row(one) for one in ranked(report.results))
    sections = [
        f"# Tricks on {', '.join(map(escape, loops))}" if loops else "# Tricks",
        _where(report),
        *(["## What to change", "\n\n".join(map(escape, lines))] if lines else []),
        "\n".join([*table_head(_HEADINGS), *rows]),
        _guide(report),
    ]
    if picture is not None:
        sections.append(f"![{_CHART_TITLE}]({picture})")
    crossings = [_crossing_sentence(found) for found in size_crossings(report.results)]
    if crossings:
        sections += ["## Where the answer turns", "\n".join(f"- {escape(one)}" for one in crossings)]
    if report.left_out:
        left_out = (f"- {cell_code(name)}: {escape(why)}" for name, why in report.left_out.items())
        sections += ["## Not tried here", "\n".join(left_out)]
    # Of a loop only the tricks that make it faster or slower are described.
    shown = [
        one
        for one in ranked(report.results)
        if not loops or one.comparison.verdict in ("IMPROVED", "REGRESSED")
    ]
    described = dict.fromkeys(name for one in shown for name in one.case.tricks)
    if not loops:
        described |= dict.fromkeys(report.left_out)
    texts = [_description(name, descriptions[name]) for name in described if name in descriptions]
    sections += ["## What each does", *texts] if texts else []
    return "\n\n".join(sections) + "\n"


def sizes_chart(report: TricksReport) -> str | None:
    """Return an SVG of the tricks that were tried by themselves at several sizes, or None without any."""
    by_trick: dict[str, list[TrickResult]] = {}
    for one in report.results:
        if not one.case.loop and one.equivalence.equal and one.comparison.estimate is not None:
            by_trick.setdefault(one.case.trick, []).append(one)
    swept = [found for found in by_trick.values() if len(found) > 1]
    if not swept:
        return None
    rows = []
    for found in swept:
        rows.append(ChartRow(label=found[0].case.title, is_main=True))
        rows += [
            ChartRow(
                label=f"{one.case.size} {one.case.size_means}",
                is_main=False,
                words=change_text(one.comparison.estimate),
                verdict=one.comparison.verdict,
                estimate=one.comparison.estimate,
            )
            for one in sorted(found, key=lambda one: one.case.size)
        ]
    margin = report.results[0].comparison.margin
    legend = (
        "Green helps, red hurts, blue makes no difference, brown is not known; bars are intervals, all"
        f" together at {percent(1 - report.policy.alpha)} confidence; the band is ±{percent(margin)}."
    )
    band = (1 - margin, 1 + margin)
    return interval_chart(rows, title=_CHART_TITLE, band=band, legend=legend, row_height=_CHART_ROW)


def bounds_text(result: TrickResult) -> str:
    """Return the interval of the change of time."""
    return interval_text(result.comparison.estimate) if result.equivalence.equal else "-"


def _table(report: TricksReport) -> Table:
    table = columns_table("trick", texts=("does it help?",), numbers=("time", "interval", "peak"))
    for one in ranked(report.results):
        table.add_row(
            BrokenName(one.case.name),
            Text(one.answer, style=_STYLES[one.answer]),
            _time_text(one),
            bounds_text(one),
            _memory_text(one),
        )
    return table


def _row(one: TrickResult) -> str:
    where = f"on {one.case.loop}" if one.case.loop else f"{one.case.size} {one.case.size_means}"
    return table_row(
        [
            f"{escape(one.case.title)} ({escape(where)})",
            one.answer,
            _time_text(one),
            bounds_text(one),
            _memory_text(one),
            escape(_equivalence_text(one)),
            escape(_counters_text(one)),
        ]
    )


def _guide(report: TricksReport) -> str:
    """Return how to read the table."""
    margin = percent(report.results[0].comparison.margin) if report.results else "2 %"
    loops = any(one.case.loop for one in report.results)
    steps = " On a loop times are of a whole run, counts of a step." if loops else ""
    # Earlier versions, whose policy had no such floor, timed whole runs.
    if loops and report.policy.noise_floor:
        steps = " On a loop times and counts are of a step; of loading and evaluation, of a run."
    floor = percent(report.policy.threshold(report.results[0].comparison.margin) if report.results else 0.01)
    return (
        "Times and counts with the trick against those without it, measured in turns; intervals hold together"
        f" at {percent(1 - report.policy.alpha)}. A trick helps or hurts where its whole interval lies beyond"
        f" {floor}, and makes no difference where it lies within {margin}.{steps} Sides that do not give the"
        f" same are not compared. It took {human_seconds(report.wall_s)}{after_waiting(report.waited_s)}."
    )


def _suggestions(report: TricksReport, codes: Mapping[str, str]) -> list[str]:
    """Return what to change in the loops on which tricks were tried, the best change first."""
    loops = dict.fromkeys(one.case.loop for one in report.results if one.case.loop)
    lines = []
    for loop in loops:
        helping = [one for one in suggested(report.results) if one.case.loop == loop]
        lines.append(f"To make {loop} faster:" if helping else _nothing_helps(report, loop))
        lines += [
            f"{place}. {one.case.trick}: {_time_text(one)} ({bounds_text(one)}), {codes[one.case.trick]}"
            for place, one in enumerate(helping, start=1)
        ]
        tried = {name for one in report.results for name in one.case.tricks}
        shown = {one.case.trick: "written" for one in helping}
        outside = "cannot be tried from outside; written"
        shown |= {name: outside for name in report.patches if name not in tried}
        for name, words in shown.items():
            if patch := report.patches.get(name):
                lines += [f"{name} {words} into {loop}:", *(f"    {line}" for line in patch)]
    return lines + [_interaction_sentence(one) for one in interactions(report.results)]


def _by_reason(report: TricksReport) -> dict[str, list[str]]:
    reasons: dict[str, list[str]] = {}
    for name, why in report.left_out.items():
        reasons.setdefault(why, []).append(name)
    return reasons


def _nothing_helps(report: TricksReport, loop: str) -> str:
    open_ones = sum(one.case.loop == loop and one.answer == "cannot tell" for one in report.results)
    if not open_ones:
        return f"Nothing of it makes {loop} faster."
    return f"Nothing was seen to make {loop} faster; a larger --budget may decide {open_ones} more."


def _loops(report: TricksReport) -> list[str]:
    """Return the loops on which tricks were tried, or none where some were tried by themselves."""
    loops = dict.fromkeys(one.case.loop for one in report.results)
    return [] if "" in loops else list(loops)


def _where(report: TricksReport) -> str:
    facts = {**report.machine.facts, **report.environment.facts}
    listed = [
        *(f"{escape(name)}={escape(level_text(level))}" for name, level in report.arguments.items()),
        f"commit {cell_code(report.commit.sha[:12])}",
        *(escape(facts[name]) for name in ("cpu", "gpus") if facts.get(name)),
        *(f"{name} {escape(facts[name])}" for name in ("python", "torch", "threads") if name in facts),
        f"{report.recorded_at:%Y-%m-%d}",
        f"run {cell_code(shown_run_id(report.run_id))}",
        f"{human_seconds(report.wall_s)} in all",
    ]
    return "Measured: " + ", ".join(listed) + "."


def _description(name: str, trick: Trick) -> str:
    return "\n\n".join(
        [
            f"### {escape(trick.title)}",
            f"{cell_code(name)}. {escape(trick.what)}",
            *([f"Written: {cell_code(trick.code)}"] if trick.code else []),
            f"Helps: {escape(trick.helps)} Look out: {escape(trick.caveat)} Source: {escape(trick.source)}.",
        ]
    )


def _time_text(result: TrickResult) -> str:
    return change_text(result.comparison.estimate) if result.equivalence.equal else "-"


def _memory_text(result: TrickResult) -> str:
    """Return the change of the peak of tensors in bytes."""
    moved = result.peak_moved
    if moved is None:
        return "-"
    return signed_amount(moved, "B") if moved else "same"


def _equivalence_text(result: TrickResult) -> str:
    """Return how far the results of both sides agree."""
    found = result.equivalence
    if found.problem:
        return found.problem
    if not found.equal:
        return "differ"
    if not found.largest:
        return "same to the bit"
    return f"within {100 * found.largest:.2g} % of what may differ"


def _counters_text(result: TrickResult) -> str:
    """Return the counters that moved: "host syncs 20 to 1"."""
    found = []
    for one in result.exact:
        title, unit = _COUNTERS.get(one.metric.name), one.metric.unit
        if title and one.base is not None and one.head is not None and one.base != one.head:
            found.append(f"{title} {amount_text(one.base, unit)} to {amount_text(one.head, unit)}")
    return ", ".join(found)


def _interaction_sentence(found: Interaction) -> str:
    """Return what two tricks gain together, and whether that is what each gains by itself."""
    names = " and ".join(found.both.case.tricks)
    expected = f"{100 * (found.expected - 1):+.1f} %"
    between = f"{100 * (found.low - 1):+.1f} to {100 * (found.high - 1):+.1f} %"
    return (
        f"{names} together: {_time_text(found.both)} ({bounds_text(found.both)}); if neither changed what"
        f" the other gives, it would be {expected}. {_INTERACTIONS[found.verdict]} (differs by {between})."
    )


def _crossing_sentence(found: tuple[TrickCase, TrickCase, float, bool]) -> str:
    """Return the size from which or up to which a trick pays."""
    below, above, size, helps_above = found
    verb = "pays from" if helps_above else "ceases to pay at"
    return f"{below.trick} {verb} about {size:.3g} {below.size_means} (tried: {below.size} and {above.size})."
