"""Writes a gate's result as a comment on a pull request, and as annotations of GitHub's."""

from __future__ import annotations

import html
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS
from perfkit.model import Commit
from perfkit.model.comparisons import (
    COUNTED,
    TARGET_FILE,
    Comparison,
    ExactComparison,
    Explanation,
    GateReport,
    Verdict,
    exit_code,
)
from perfkit.model.counters import TITLES
from perfkit.model.profiles import Part
from perfkit.report.change_log import machine_title
from perfkit.report.explain import section_rows, slower_callee
from perfkit.report.gate import wording
from perfkit.report.gate.counters import counters_markdown
from perfkit.report.gate.decision import (
    both_sentence,
    cost_sentence,
    decision_lines,
    decision_word,
    left_open,
    next_step,
    reading_guide,
    reproducing_command,
)
from perfkit.report.gate.terminal import first_of_many
from perfkit.report.gate.wording import measuring_markdown
from perfkit.report.history import short_sha, sparkline
from perfkit.report.markdown_table import cell_code, code, collapsed, escape, table_head, table_row
from perfkit.report.names import short_names
from perfkit.report.surroundings import difference_of_sides, package_search
from perfkit.units import amount_text, counted, human_seconds, signed_amount

_HEADINGS = ("Benchmark", "Base", "Head", "Change", "Interval", "Verdict", "Launches")
_UNDER_PROFILER = (
    "Under cProfile, which makes every call slower: compare these lines with one another, not with the table"
    " above."
)
_SIDES = "Base is the code before this change, head the code with it."
# A table of more benchmarks hides what moved among what did not.
_LONG_TABLE = 10
# This many remarks on benchmarks stand open.
_MOST_OPEN = 3
# A command accepts so many findings at most.
_MOST_ACCEPTED = 6
_LINE_BREAK = "\\\n"
# A picture of fewer runs shows nothing.
_FEWEST_BARS = 5
_BARS_LEGEND = (
    "Bars beside a name are the benchmark's last runs before this gate, in the order of commits, from the"
    " quickest to the slowest."
)
_PLACE = re.compile(r"(?P<file>[^:()<>]+\.py):(?P<line>\d+)$")
# The line at which an error was raised, at the end of its message.
_RAISED = re.compile(r"\((?P<place>[^:()<>]+\.py:\d+)\)$")
# GitHub shows this many of a step.
_MOST = 10


def render_comment(report: GateReport) -> str:
    """Return the decision, the table, the remarks, and how to reproduce the gate."""
    both = both_sentence(report)
    if report.against is None or both is None:
        return _single_comment(report)
    return "\n".join((escape(both), "", _single_comment(report), _single_comment(report.against)))


def render_without_report(problem: str, address: str | None) -> str:
    """Return the comment for a gate that left no result, which must not read as one that found nothing."""
    output = f"[its output]({address})" if address else "its output"
    return (
        "## perfkit gate: NOT MEASURED\n\n"
        f"NOT MEASURED: {escape(problem)}. Whether this change is slower is not known; see {output}.\n"
    )


def _single_comment(report: GateReport) -> str:
    verdicts = {one.benchmark.name: one.verdict for one in report.comparisons}
    against = f" against {escape(report.release)}" if report.release else ""
    names = short_names(found.benchmark.name for found in report.comparisons)
    ordered = wording.in_order(report.comparisons)
    results = _results(wording.benchmarks_of(ordered), names, _past(report))
    remarks = _remarks(report, ordered, names)
    # Who may not merge wants to know why first.
    answer = (results, remarks) if report.exit_code == EXIT_PASS else (remarks, results)
    guide = escape(" ".join((_SIDES, reading_guide(report, names))))
    unknown = "It is not known whether this change makes them slower."
    decision = decision_lines(report, names, brief=True)
    waits = wording.waits_for_person(report)
    decision += [unknown] if report.exit_code == EXIT_NOT_MEASURED and not waits else []
    sections = (
        f"## perfkit gate{against}: {decision_word(report)}",
        _LINE_BREAK.join(map(_prose, decision)),
        measuring_markdown(report.measuring),
        _next_step(report),
        *answer,
        *(_explanation(found, names, verdicts.get(found.benchmark)) for found in report.explanations),
        counters_markdown(report.exact),
        "\n".join(("Notes:", "", *(f"- {escape(note)}" for note in report.notes))) if report.notes else "",
        collapsed("How to read this", guide) if wording.is_timed(report) else "",
        collapsed("Machine, cost, rules, and how to measure it again", _LINE_BREAK.join(_footer(report))),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _prose(line: str) -> str:
    """Return a line whose parts between backticks are code."""
    parts = line.split("`")
    if len(parts) % 2 == 0:
        return escape(line)
    return "".join(code(part) if number % 2 and part else escape(part) for number, part in enumerate(parts))


def _next_step(report: GateReport) -> str:
    """Return what a person does now who does not know perfkit."""
    if report.exit_code == EXIT_PASS:
        return "**What to do:** nothing; for all that was measured, this can be merged."
    if report.exit_code == EXIT_INCONCLUSIVE:
        step, _ = next_step(report, {})
        command = reproducing_command(report, named=short_sha, again=True)
        if command is None:
            return f"**What to do:** do not merge yet: {escape(step)}."
        return _LINE_BREAK.join((f"**What to do:** do not merge yet: {escape(step)}:", code(command)))
    accept = "Or accept it as it is now, for this benchmark and change only, with a reason"
    if wording.waits_for_person(report):
        mend = "have a person look at what the table lists"
    elif report.exit_code == EXIT_NOT_MEASURED:
        mend = "fix the lines named below, in the code or in the benchmark, and push again"
        accept = "To merge it without comparing them, accept it with a reason"
    elif (part := _first_part(report)) is not None:
        mend = f"fix it (look first at {_place_of(part)}) and push again"
    else:
        mend = "fix it and push again"
    names = short_names(one.benchmark.name for one in report.comparisons)
    left = f" Still undecided: {escape(rest)}." if (rest := left_open(report, names)) else ""
    text, meant = f"**What to do:** do not merge yet: {mend}.{left}", _acceptable(report)
    if search := package_search(report):
        return _LINE_BREAK.join((text, "Which package it was:", code(search)))
    if not meant:
        return text
    more = len(meant) - _MOST_ACCEPTED
    others = f", and likewise {counted(more, 'other')}" if more > 0 else ""
    command = code(_accepting_command(report, meant[:_MOST_ACCEPTED]))
    return _LINE_BREAK.join((text, f"{accept}{others}:", command))


def _first_part(report: GateReport) -> Part | None:
    explained = {one.benchmark: one for one in report.explanations}
    slower = (
        one
        for one in wording.in_order(report.comparisons)
        if one.verdict == "REGRESSED" and wording.decides(one)
    )
    parts = (wording.slowest_part(explained.get(one.benchmark.name)) for one in slower)
    return next((part for part in parts if part is not None), None)


def _place_of(part: Part) -> str:
    through = f", {escape(callee)}" if (callee := slower_callee(part)) else ""
    return f"{escape(part.name)}, {code(part.place)}{through}"


def _acceptable(report: GateReport) -> list[str]:
    """Return the names by which findings can be accepted."""
    found = [
        one.benchmark.name for one in wording.in_order(report.comparisons) if wording.accept_command(one, "")
    ]
    found += [one.benchmark.name for one in report.exact if wording.decides(one) and one.verdict in COUNTED]
    timed, counts = (one.benchmark.name for one in report.comparisons), report.exact
    names = short_names((*timed, *(one.benchmark.name for one in counts)))
    return list(dict.fromkeys(names[name] for name in found)) if wording.can_accept(report) else []


def _accepting_command(report: GateReport, meant: Sequence[str]) -> str:
    if report.head.dirty:
        return " && ".join(map(wording.accept_line, meant))
    trailers = " ".join(f"--trailer {shlex.quote(f'Perf-Accept: {name}: REASON')}" for name in meant)
    return f"git commit --allow-empty -m 'Let it pass' {trailers} && git push"


def _past(report: GateReport) -> Mapping[str, Sequence[float]]:
    regressed = {one.benchmark.name for one in report.comparisons if one.verdict == "REGRESSED"}
    return {
        name: levels
        for name, levels in report.past.items()
        if name in regressed and len(levels) >= _FEWEST_BARS and all(0 < level < math.inf for level in levels)
    }


def _results(
    comparisons: Sequence[Comparison], names: Mapping[str, str], past: Mapping[str, Sequence[float]]
) -> str:
    """Return the table; where it would be long, what did not change is in a table of its own, folded."""
    if not comparisons:
        return ""
    listed, rest = first_of_many(comparisons)
    shown, others = wording.without_many_not_reached(listed)
    last = [[others, "", "", "", "", "NOT REACHED", ""]] if others else []
    same = [found for found in shown if found.verdict == "UNCHANGED"] if len(shown) > _LONG_TABLE else []
    moved = [found for found in shown if found not in same]
    first = [_result(found, names, past.get(found.benchmark.name, ())) for found in moved]
    table = _table([*first, *last])
    table += f"\n\n{_BARS_LEGEND}" if past else ""
    if rest:
        table += "\n\n".join(("", rest[0], "\n".join(f"- {escape(line.strip())}" for line in rest[1:])))
    if not same:
        return table
    rows = _table([_result(found, names) for found in same])
    folded = collapsed(f"{counted(len(same), 'benchmark')} UNCHANGED", rows)
    return "\n\n".join(filter(None, (table, folded)))


def _table(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join((*table_head(_HEADINGS), *map(table_row, rows))) if rows else ""


def _result(comparison: Comparison, names: Mapping[str, str], past: Sequence[float] = ()) -> list[str]:
    """Return the cells of a row."""
    emphasis = "**" if comparison.verdict in ("REGRESSED", "OTHER RESULT") else ""
    return [
        " ".join(filter(None, (cell_code(names[comparison.benchmark.name]), sparkline(past)))),
        *wording.times_text(comparison),
        wording.change_text(comparison.estimate),
        wording.interval_text(comparison.estimate),
        f"MORE CPU ×{comparison.cpu_ratio:.2g}, IMPROVED"
        if comparison.costs_more_cpu
        else f"{emphasis}{wording.shown(comparison.verdict)}{emphasis}",
        wording.launches_text(comparison.estimate),
    ]


def _remarks(report: GateReport, comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    # What to do names the first part.
    first = _first_part(report)
    parts = {
        one.benchmark: part for one in report.explanations if (part := wording.slowest_part(one)) != first
    }
    remarks = (_remark(found, names, parts.get(found.benchmark.name)) for found in comparisons)
    lines = [remark for remark in remarks if remark is not None]
    rest = collapsed(f"{counted(len(lines) - _MOST_OPEN, 'more benchmark')}", "\n".join(lines[_MOST_OPEN:]))
    return "\n".join(lines[:_MOST_OPEN]) + (f"\n\n{rest}" if len(lines) > _MOST_OPEN else "")


def _remark(comparison: Comparison, names: Mapping[str, str], part: Part | None) -> str | None:
    slower = part if comparison.verdict == "REGRESSED" else None
    where = f"most of what was added is spent in {_place_of(slower)}" if slower else ""
    text = "; ".join(filter(None, (where, escape("; ".join(wording.details(comparison))))))
    return (
        f"- {wording.shown(comparison.verdict)} {code(names[comparison.benchmark.name])}: {text}"
        if text
        else None
    )


def _explanation(explanation: Explanation, names: Mapping[str, str], verdict: Verdict | None) -> str:
    """Return what a profile shows; where the time did not move, its lines would only seem to contradict."""
    name = html.escape(names.get(explanation.benchmark, explanation.benchmark))
    section = None if verdict == "UNCHANGED" else explanation.section
    title = wording.explanation_title(replace(explanation, section=section))
    parts = (
        _UNDER_PROFILER if section else "",
        "\n".join(section_rows(section, "call", wording.MOST_MOVED)) if section else "",
        "\n".join(f"- {escape(line)}" for line in explanation.findings),
    )
    text = "\n\n".join(part for part in parts if part)
    return collapsed(f"<code>{name}</code>: {title}", text) if text else ""


def _footer(report: GateReport) -> Iterator[str]:
    yield cost_sentence(report)
    yield f"Base {_commit(report.base)}, head {_commit(report.head)}"
    if (difference := difference_of_sides(report)) is not None:
        yield escape(difference[0].upper() + difference[1:].replace("  ", ": ", 1))
    yield f"Machine: {escape(machine_title(report.machine))}"
    if wording.is_timed(report):
        yield from _rules(report)
    if report.base.dirty or report.head.dirty:
        yield "Not to be reproduced from commits: uncommitted changes were measured."
    elif (command := reproducing_command(report)) is not None:
        is_target = any(one.benchmark.name.startswith(TARGET_FILE) for one in report.comparisons)
        of_target = " with the same `--target`" if is_target else ""
        continues = " With the ledger of this run it continues from here." * (
            report.exit_code == EXIT_INCONCLUSIVE
        )
        yield f"The same gate again: {code(command)}{of_target}.{continues}"
    else:
        yield "To reproduce it, name the environments of both sides, which the ledger keeps by what differs."


def _commit(commit: Commit) -> str:
    dirty = " with uncommitted changes" if commit.dirty else ""
    subject = f" ({escape(commit.subject)})" if commit.subject else ""
    return f"{code(commit.sha)}{subject}{dirty}"


def _rules(report: GateReport) -> Iterator[str]:
    how = ", recomputed from the ledger" if report.from_ledger else ""
    which = "benchmarks that gate" if wording.some_do_not_gate(report.comparisons) else "benchmarks"
    judge = f"perfkit ledger judge {wording.run_text(report)} --verbose"
    yield f"Run {code(wording.run_text(report))} of the ledger{how}; all numbers: {code(judge)}"
    yield (
        f"Rules: probability of any wrong verdict at most {wording.percent(report.policy.alpha)} for all"
        f" {which} together, budget {human_seconds(report.budget_s)}, first judged after"
        f" {report.policy.looks[0]} launches"
    )


def annotation_lines(report: GateReport) -> tuple[str, ...]:
    """Return workflow commands: an error for what fails, a warning for what could not be decided."""
    names = short_names(found.benchmark.name for found in report.comparisons)
    explained = {one.benchmark: one for one in report.explanations}
    times = [
        _of_time(found, names[found.benchmark.name], explained.get(found.benchmark.name))
        for found in report.comparisons
        if wording.decides(found) and _fails(found)
    ]
    counts = [line for one in report.exact if wording.decides(one) and _fails(one) for line in _of_count(one)]
    other = () if report.against is None else annotation_lines(report.against)
    return (*times, *counts, *other)[:_MOST]


def _fails(found: Comparison | ExactComparison) -> bool:
    return found.verdict not in {"NEW", "SKIPPED"} and exit_code((found,)) != EXIT_PASS


def _level(found: Comparison | ExactComparison) -> str:
    return "warning" if found.verdict in {"INCONCLUSIVE", "NOT REACHED"} else "error"


def _of_time(found: Comparison, name: str, explanation: Explanation | None) -> str:
    if found.verdict == "REGRESSED" and found.estimate is not None:
        text = f"{name} is {wording.slower_text(found.estimate)}"
    else:
        text = (
            f"{name}: {wording.shown(found.verdict)}{''.join(f'; {one}' for one in wording.details(found))}"
        )
    part = wording.slowest_part(explanation)
    if part is not None:
        text += f"; most of it in {part.name}"
    return _command(_level(found), text, part.place if part else _own_place(found))


def _own_place(found: Comparison) -> str:
    message = found.message or ""
    raised = _RAISED.search(message)
    if raised is not None and not message.startswith("on base"):
        return raised["place"]
    return f"{found.benchmark.name.partition('::')[0]}:1"


def _of_count(count: ExactComparison) -> Iterator[str]:
    name = count.benchmark.name.rpartition("::")[2]
    text = f"{name}: {TITLES.get(count.metric.name, count.metric.name)} {wording.shown(count.verdict)}"
    if count.base is not None and count.head is not None:
        text += f", {_move(count.base, count.head, count.metric.unit)}"
    places = [cause for cause in count.causes if cause.head > cause.base and _PLACE.search(cause.place)]
    if not places:
        yield _command(_level(count), text, None)
    for cause in places[:3]:
        yield _command(_level(count), f"{text}; {cause.what}", cause.place)


def _move(base: float, head: float, unit: str) -> str:
    before, after = amount_text(base, unit), amount_text(head, unit)
    return (
        f"from {before} to {after}" if before != after else f"{signed_amount(head - base, unit)} of {before}"
    )


def _command(level: str, text: str, place: str | None) -> str:
    """Return a workflow command; signs that would end its parts are written as GitHub has them."""
    match = _PLACE.search(place or "")
    words = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    if match is None:
        return f"::{level} title=perfkit::{words}"
    file = match["file"].strip()
    for sign in "%:,\r\n":
        file = file.replace(sign, f"%{ord(sign):02X}")
    return f"::{level} file={file},line={match['line']},title=perfkit::{words}"
