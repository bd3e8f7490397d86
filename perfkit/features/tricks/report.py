"""Shows what tricks do on this machine: in the terminal, as a document, and their sizes as a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.features.experiments.records import level_text
from perfkit.features.tricks.trick import TrickCase
from perfkit.features.tricks.verdict import (
    Answer,
    Interaction,
    TrickResult,
    TricksReport,
    interactions,
    ranked,
    size_crossings,
    suggested,
)
from perfkit.identity import short_run_id
from perfkit.model.comparisons import TimedVerdict
from perfkit.report.chart import ChartRow, interval_chart
from perfkit.report.gate.wording import after_waiting, change_text, interval_text, percent
from perfkit.report.markdown_table import cell_code, escape, table_head, table_row
from perfkit.report.names import BrokenName, columns_table, spaced
from perfkit.units import amount_text, counted, human_seconds, signed_amount

if TYPE_CHECKING:
    from perfkit.features.tricks.trick import Trick

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
        f"run {cell_code(short_run_id(report.run_id))}",
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
