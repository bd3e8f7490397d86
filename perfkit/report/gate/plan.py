"""What a gate would find in its time: for the terminal, and as markdown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.model.comparisons import GatePlan, KnownFrom, PlannedBenchmark
from perfkit.report.gate.terminal import commit_text, plain_table
from perfkit.report.gate.wording import details, in_order, measuring_markdown, measuring_view, percent, shown
from perfkit.report.markdown_table import cell_code, escape, table_head, table_row
from perfkit.report.names import BrokenName, short_names, spaced
from perfkit.units import counted, human_seconds, listed

_HEADINGS = ("margin", "scatter", "known from", "laun-\nches", "time", "detect-\nable")
# From here on a slowdown is shown as a factor, as a change is.
_LARGEST_IN_PERCENT = 9.0
_MOST_NAMES = 3
_EXPLAINED: Mapping[KnownFrom, str] = {
    "its gates": "earlier gates of the benchmark on this machine are in the ledger",
    "other benchmarks": "the median of the other benchmarks that were gated on this machine",
    "usual": "the ledger has no gate on this machine, so this is assumed until it has one",
}


def plan_view(plan: GatePlan) -> Group:
    """Return the whole plan, its sentence first; it fits a terminal of 80 columns."""
    return spaced(*_sections(plan))


def plan_markdown(plan: GatePlan) -> str:
    """Return the whole plan as markdown, its sentence first."""
    return "\n".join(_markdown(plan))


def plan_sentence(plan: GatePlan) -> str:
    """Return which slowdown the gate would find, in one plain sentence."""
    time = human_seconds(plan.budget_s, digits=2)
    gate = f"this gate against {plan.release}" if plan.release else "this gate"
    decisive = [one for one in plan.benchmarks if one.gating] or plan.benchmarks
    if not decisive:
        return f"In {time} {gate} would time nothing, since no benchmark can be compared."
    open_still = [one for one in decisive if one.decided is None]
    if not open_still:
        return f"In {time} {gate} would time nothing, since earlier gates have decided all of its benchmarks."
    effects = [one.effect for one in open_still if one.effect is not None]
    if not effects:
        total = counted(len(open_still), "benchmark")
        return f"In {time} {gate} would decide none of {total}{_hint(plan)}."
    missed = len(open_still) - len(effects)
    also = f", and would not reach {counted(missed, 'other')}{_hint(plan)}" if missed else ""
    return (
        f"In {time} {gate} would find a slowdown of {_effect(max(effects))} or more in"
        f" {'each of ' if len(effects) > 1 else ''}{counted(len(effects), 'benchmark')},"
        f" 19 times of 20{also}."
    )


def _sections(plan: GatePlan) -> Iterator[RenderableType]:
    yield Text(plan_sentence(plan), style="bold")
    yield from measuring_view(plan.measuring)
    yield Text("\n".join(_sides(plan)))
    if plan.benchmarks:
        yield _table(plan)
        yield Text(" ".join(_guide(plan)), style="dim")
    remarks = [Text(line) for line in _remarks(plan)]
    if remarks:
        yield Group(*remarks)
    if plan.against is not None:
        yield from _sections(plan.against)


def _markdown(plan: GatePlan) -> Iterator[str]:
    yield from (f"## perfkit gate: plan{f' against {escape(plan.release)}' if plan.release else ''}", "")
    yield from (escape(plan_sentence(plan)), "")
    yield from (measuring_markdown(plan.measuring), "") if plan.measuring else ()
    yield from (*(f"- {escape(line)}" for line in _sides(plan)), "")
    if plan.benchmarks:
        names = _names(plan)
        headings = (heading.replace("-\n", "").capitalize() for heading in ("benchmark", *_HEADINGS))
        yield from table_head(tuple(headings))
        for one in plan.benchmarks:
            yield table_row([cell_code(names[one.benchmark.name]), *_cells(one)])
        yield from ("", escape(" ".join(_guide(plan))), "")
    yield from (f"- {escape(line)}" for line in _remarks(plan))
    if plan.against is not None:
        yield ""
        yield from _markdown(plan.against)


def _sides(plan: GatePlan) -> Iterator[str]:
    yield f"base  {commit_text(plan.base)}"
    yield f"head  {commit_text(plan.head)}"


def _names(plan: GatePlan) -> Mapping[str, str]:
    findings = (found.benchmark.name for found in plan.findings)
    return short_names((*(one.benchmark.name for one in plan.benchmarks), *findings))


def _table(plan: GatePlan) -> Table:
    names, table = _names(plan), plain_table(*_HEADINGS)
    for one in plan.benchmarks:
        table.add_row(BrokenName(names[one.benchmark.name]), *_cells(one))
    return table


def _cells(one: PlannedBenchmark) -> Iterator[str]:
    yield percent(one.margin)
    yield f"{100 * one.launch_sd:.1f} %"
    yield counted(one.gates, "gate") if one.known_from == "its gates" else one.known_from
    yield str(one.launches) if one.launches else "none"
    yield "-" if one.decided or not one.launches else human_seconds(one.seconds, digits=2)
    effect = "-" if one.effect is None else _effect(one.effect)
    yield effect if effect.startswith(("-", "×")) else f"+{effect}"


def _effect(effect: float) -> str:
    if effect >= _LARGEST_IN_PERCENT:
        return f"×{math.ceil(10 * (1 + effect)) / 10:.1f}"
    return f"{math.ceil(round(1000 * effect, 6)) / 10:.1f} %"


def _hint(plan: GatePlan) -> str:
    if plan.enough_s is None:
        return ""
    return f" (--budget {plan.enough_s:g} for all, or --select to measure fewer)"


def _guide(plan: GatePlan) -> Iterator[str]:
    """Yield how to read the table."""
    yield (
        "Detectable: the smallest slowdown that would be REGRESSED 19 times of 20 if that benchmark alone"
        " became slower, after the launches and the time that it would then get."
    )
    yield "Scatter: the deviation of the ratio from launch to launch."
    for source in dict.fromkeys(one.known_from for one in plan.benchmarks):
        word = "gates" if source == "its gates" else source
        yield f"Known from {word}: {_EXPLAINED[source]}{_assumed(plan, source)}."
    yield (
        f"Setting up took {human_seconds(plan.set_up_s)}; where nothing has changed, this gate would end"
        f" after about {human_seconds(plan.unchanged_s, digits=2)}."
    )
    yield f"The probability of any wrong verdict would be at most {percent(plan.policy.alpha)}."


def _assumed(plan: GatePlan, source: KnownFrom) -> str:
    launch_s = {one.launch_s for one in plan.benchmarks if one.known_from == source == "usual"}
    return f" (also {human_seconds(max(launch_s), digits=2)} for a launch)" if launch_s else ""


def _remarks(plan: GatePlan) -> Iterator[str]:
    """Yield what is not compared, what does not gate, and what else a reader should know."""
    names = _names(plan)
    for found in in_order(plan.findings):
        yield f"{shown(found.verdict)} {names[found.benchmark.name]}: {'; '.join(details(found))}"
    decided = [f"{names[one.benchmark.name]} ({one.decided})" for one in plan.benchmarks if one.decided]
    if decided:
        yield f"decided by earlier gates of this pair: {listed(decided, _MOST_NAMES)}"
    idle = [names[one.benchmark.name] for one in plan.benchmarks if not one.gating]
    if idle:
        yield f"does not gate: {listed(idle, _MOST_NAMES)}"
    yield from (f"note: {note}" for note in plan.notes)
