"""Writes a gate's result as a comment on a pull request."""

from __future__ import annotations

import html
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS
from perfkit.records import Commit
from perfkit.records.comparisons import TARGET_FILE, Comparison, Explanation, GateReport
from perfkit.units import counted, human_seconds
from perfkit.verdict.acceptance import COUNTED
from perfkit.views.change_log import machine_title
from perfkit.views.explain.markdown import section_rows
from perfkit.views.explain.terminal import telling_callees
from perfkit.views.gate.decision import both_sentence, decision_lines, decision_word, reading_guide
from perfkit.views.gate.exact import exact_markdown
from perfkit.views.gate.wording import (
    MOST_MOVED,
    accept_command,
    accept_line,
    can_accept,
    change_text,
    decides,
    details,
    explanation_title,
    in_order,
    interval_text,
    is_timed,
    launches_text,
    limit_of_all_calls,
    percent,
    slowest_part,
    times_text,
    without_many_not_reached,
)
from perfkit.views.history import sparkline
from perfkit.views.markdown_table import cell_code, code, escape, table_head, table_row
from perfkit.views.names import short_names
from perfkit.views.surroundings import difference_of_sides, options_of

_HEADINGS = ("Benchmark", "Base", "Head", "Change", "Interval", "Verdict", "Launches")
_TOLD_LOOKS = 7
# A table of more benchmarks hides what moved among what did not.
_LONG_TABLE = 10
_LINE_BREAK = "\\\n"
_GUIDE = (
    "Base is the code before this change, head the code with it. Launches are pairs of fresh processes, one"
    " of each."
)
# A picture of fewer runs shows nothing.
_FEWEST_BARS = 5
_BARS_SAID = (
    "Bars beside a name are the benchmark's last runs before this gate, in the order of commits, from the"
    " quickest to the slowest."
)


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
        f"NOT MEASURED: {escape(problem)}. Whether this change is slower is not known; {output} says why.\n"
    )


def _single_comment(report: GateReport) -> str:
    against = f" against {escape(report.release)}" if report.release else ""
    names = short_names(found.benchmark.name for found in report.comparisons)
    ordered = in_order(report.comparisons)
    sections = (
        f"## perfkit gate{against}: {decision_word(report)}",
        _LINE_BREAK.join(map(escape, (*decision_lines(report, names), *_unknown(report)))),
        f"**What to do:** {_next_step(report, ordered)}",
        _results(ordered, names, _past(report)),
        _remarks(report, ordered, names),
        *(_explanation(found, names) for found in report.explanations),
        exact_markdown(report.exact),
        "\n".join(f"- {escape(note)}" for note in report.notes),
        escape(f"{_GUIDE} {reading_guide(report, names)}") if is_timed(report) else "",
        _folded("Machine, cost, rules, and how to measure it again", _footer(report)),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def _next_step(report: GateReport, ordered: Sequence[Comparison]) -> str:
    """Return what a person does now who has never heard of perfkit."""
    if report.exit_code == EXIT_PASS:
        return "nothing."
    if report.exit_code == EXIT_INCONCLUSIVE:
        return "run it again, which goes on where it ended, or with a larger `--budget`, in seconds."
    passes = _of_passing(report, ordered)
    if report.exit_code == EXIT_NOT_MEASURED:
        return f"mend what is named below, so that the old code and the new can be compared{passes}."
    explained = {one.benchmark: one for one in report.explanations}
    slower = [one for one in ordered if one.verdict == "REGRESSED" and decides(one)]
    parts = (slowest_part(explained.get(one.benchmark.name)) for one in slower)
    part = next((one for one in parts if one is not None), None)
    if part is not None:
        through = next((f", most of it through {escape(one.name)}" for one in telling_callees(part)), "")
        place = f"{escape(part.name)}, {code(part.place)}"
        return f"look at {place}, where most of the time went{through}{passes}."
    return f"look at what is named below{passes}."


def _of_passing(report: GateReport, ordered: Sequence[Comparison]) -> str:
    """Return how to let pass what a person wants, "" where that cannot be."""
    if not can_accept(report):
        return ""
    if any(accept_command(one, one.benchmark.name) for one in ordered):
        return "; what is wanted is let pass as the list below says"
    grown = sorted({one.benchmark.name for one in report.exact if decides(one) and one.verdict in COUNTED})
    if not grown:
        return ""
    name = short_names(one.benchmark.name for one in report.exact)[grown[0]]
    command = accept_line(name) if report.head.dirty else _trailer_command(name)
    each = f", and likewise for {counted(len(grown) - 1, 'other')}" if len(grown) > 1 else ""
    return f"; what is wanted is let pass by {code(command)}{each}"


def _past(report: GateReport) -> Mapping[str, Sequence[float]]:
    """Return the earlier levels of what regressed, where they are enough for a picture."""
    regressed = {one.benchmark.name for one in report.comparisons if one.verdict == "REGRESSED"}
    return {
        name: levels
        for name, levels in report.past.items()
        if name in regressed and len(levels) >= _FEWEST_BARS and all(0 < level < math.inf for level in levels)
    }


def _unknown(report: GateReport) -> Iterator[str]:
    """Say that what could not be measured may be slower: a reader might take silence for good news."""
    if report.exit_code == EXIT_NOT_MEASURED:
        yield "Whether what could not be measured became slower is not known."


def _results(
    comparisons: Sequence[Comparison], names: Mapping[str, str], past: Mapping[str, Sequence[float]]
) -> str:
    """Return the table; where it would be long, what did not change is in a table of its own, folded."""
    if not comparisons:
        return ""
    shown, others = without_many_not_reached(comparisons)
    last = [table_row([others, "", "", "", "", "NOT REACHED", ""])] if others else []
    same = [found for found in shown if found.verdict == "UNCHANGED"] if len(shown) > _LONG_TABLE else []
    moved = [found for found in shown if found not in same]
    first = [_result(found, names, past.get(found.benchmark.name, ())) for found in moved]
    table = "\n".join((*table_head(_HEADINGS), *first, *last)) if first or last else ""
    table += f"\n\n{_BARS_SAID}" if past else ""
    if not same:
        return table
    rows = (*table_head(_HEADINGS), *(_result(found, names) for found in same))
    folded = _folded(f"{counted(len(same), 'benchmark')} UNCHANGED", "\n".join(rows))
    return "\n\n".join(filter(None, (table, folded)))


def _folded(summary: str, text: str) -> str:
    """Return a text that is shown once a reader asks for it."""
    return f"<details>\n<summary>{summary}</summary>\n\n{text}\n\n</details>"


def _result(comparison: Comparison, names: Mapping[str, str], past: Sequence[float] = ()) -> str:
    emphasis = "**" if comparison.verdict == "REGRESSED" else ""
    limit = limit_of_all_calls(comparison)
    bound = "" if limit is None else f" (typical call; all calls at most {limit})"
    return table_row(
        [
            " ".join(filter(None, (cell_code(names[comparison.benchmark.name]), sparkline(past)))),
            *times_text(comparison),
            change_text(comparison.estimate),
            interval_text(comparison.estimate),
            f"{emphasis}{comparison.verdict}{emphasis}{bound}",
            launches_text(comparison.estimate),
        ]
    )


def _remarks(report: GateReport, comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    explained = {one.benchmark: one for one in report.explanations}
    return "\n".join(
        _remark(report, found, names, explained.get(found.benchmark.name))
        for found in comparisons
        if details(found)
    )


def _remark(
    report: GateReport, comparison: Comparison, names: Mapping[str, str], explanation: Explanation | None
) -> str:
    name = names[comparison.benchmark.name]
    commands = _passing_commands(report, comparison, name)
    part = slowest_part(explanation) if comparison.verdict == "REGRESSED" else None
    where = f"; most of it in {escape(part.name)}, {code(part.place)}" if part is not None else ""
    said = escape("; ".join(details(comparison))) + where
    remark = f"- {comparison.verdict} {code(name)}: {said}"
    return _LINE_BREAK.join((remark, *commands))


def _passing_commands(report: GateReport, comparison: Comparison, name: str) -> Iterator[str]:
    """Yield what to type to let a finding pass: most readers of a comment have no ledger with this gate."""
    command = accept_command(comparison, name) if can_accept(report) else None
    if command is not None and report.head.dirty:
        yield f"  to let it pass: {code(command)}"
    elif command is not None:
        yield f"  to let it pass: {code(_trailer_command(name))}"
        yield f"  or, with the ledger that has this gate: {code(command)}"


def _trailer_command(name: str) -> str:
    """Return what to type for a commit whose message lets the findings of a benchmark pass."""
    trailer = shlex.quote(f"Perf-Accept: {name}: REASON")
    return f"git commit --allow-empty -m 'Let it pass' --trailer {trailer} && git push"


def _explanation(explanation: Explanation, names: Mapping[str, str]) -> str:
    name = html.escape(names.get(explanation.benchmark, explanation.benchmark))
    lines = (
        "<details>",
        f"<summary><code>{name}</code>: {explanation_title(explanation)}</summary>",
        "",
        *([*section_rows(section, "call", MOST_MOVED), ""] if (section := explanation.section) else []),
        *(f"- {escape(line)}" for line in explanation.findings),
        *([""] if explanation.findings else []),
        "</details>",
    )
    return "\n".join(lines)


def _footer(report: GateReport) -> str:
    return _LINE_BREAK.join(_footer_lines(report))


def _footer_lines(report: GateReport) -> Iterator[str]:
    yield f"Base {_commit(report.base)}, head {_commit(report.head)}"
    if (difference := difference_of_sides(report)) is not None:
        yield escape(difference[0].upper() + difference[1:].replace("  ", ": ", 1))
    yield f"Machine: {escape(machine_title(report.machine))}"
    if is_timed(report):
        yield _rules(report)
    if report.base.dirty or report.head.dirty:
        yield "Not to be reproduced from commits: uncommitted changes were measured."
    elif report.base_environment is None or report.wanted:
        margins = {one.margin for one in report.comparisons}
        margin = ["--margin", percent(*margins).replace(" ", "")] if len(margins) == 1 else []
        options = [*(margin if is_timed(report) else ["--exact-only"]), *options_of(report.wanted)]
        command = shlex.join(
            ["perfkit", "gate", "--base", report.base.sha, "--head", report.head.sha, *options]
        )
        is_target = any(one.benchmark.name.startswith(TARGET_FILE) for one in report.comparisons)
        of_target = " with the same `--target`" if is_target else ""
        yield f"Reproduce: {code(command)}{of_target}"
    else:
        yield "To reproduce it, name the environments of both sides, which the ledger keeps by what differs."


def _commit(commit: Commit) -> str:
    dirty = " with uncommitted changes" if commit.dirty else ""
    subject = f" ({escape(commit.subject)})" if commit.subject else ""
    return f"{code(commit.sha)}{subject}{dirty}"


def _rules(report: GateReport) -> str:
    how = ", recomputed from the ledger" if report.from_ledger else ""
    return (
        f"Run {code(report.run_id)}{how}: family-wise alpha {report.policy.alpha:g}, "
        f"budget {human_seconds(report.budget_s)}, took {human_seconds(report.wall_s)}, "
        f"looks after {_in_short(report.policy.looks)} launches"
    )


def _in_short(looks: Sequence[int]) -> str:
    """Return the first looks; the later ones follow the same rule, and few gates reach them."""
    told = ", ".join(map(str, looks[:_TOLD_LOOKS]))
    return told if len(looks) <= _TOLD_LOOKS else f"{told}, …"
