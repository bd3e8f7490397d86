"""Puts one comparison into words, which are the same in every view."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.identity import shown_run_id
from perfkit.invocation import follow_up
from perfkit.model import Commit
from perfkit.model.comparisons import (
    MEASURING,
    REMARKS,
    UNDECIDED,
    Comparison,
    Doubt,
    Estimate,
    ExactComparison,
    Explanation,
    FirstCall,
    GateReport,
    MeasuringEdit,
    Need,
    Verdict,
)
from perfkit.model.profiles import Part
from perfkit.report.history import short_sha
from perfkit.report.markdown_table import cell_code, escape, table_head, table_row
from perfkit.report.names import fitted
from perfkit.units import human_seconds

# Verdicts that need attention come first in a table.
_ORDER: tuple[Verdict, ...] = (
    "REGRESSED", "OTHER RESULT", "FAILED", "TIMEOUT", "MISSING", "CHANGED", "INCONCLUSIVE", "NOT REACHED",
    "NEW", "SKIPPED",
    "IMPROVED",
    "NOT SLOWER",
    "UNCHANGED",
)  # fmt: skip
# This many functions are shown of a regressed benchmark.
MOST_MOVED = 5
# This many benchmarks that were not reached are listed.
_MOST_NOT_REACHED = 12
_ACCEPTABLE: tuple[Verdict, ...] = ("REGRESSED", "OTHER RESULT", "FAILED", "TIMEOUT", "MISSING", "CHANGED")
# Verdicts by which a benchmark did not become slower.
NOT_SLOWER: tuple[Verdict, ...] = ("UNCHANGED", "NOT SLOWER", "IMPROVED")
_CAUSES: dict[Verdict, str] = {
    "NEW": "base has no such benchmark",
    "MISSING": "head has no such benchmark any more",
    "CHANGED": "its own source differs between the sides",
    "FAILED": "it failed",
    "TIMEOUT": "it took longer than its limit",
    "SKIPPED": "it was skipped on both sides",
}
# The verdicts of what became faster.
GAINS: frozenset[Verdict] = frozenset({"IMPROVED", "OTHER RESULT"})
_LARGEST_IN_PERCENT = 10.0
# "Twice as slow" is plainer than "100 % slower".
_LARGEST_RATIO = 2.0
_SMALLEST_IN_PERCENT = 0.1
# A limit beyond the first factor, and this many times as far as the estimate, is of no use.
_LARGEST_KNOWN, _LEAST_KNOWN, UNKNOWN = 10.0, 2.0, "unknown"
_NUMBER = re.compile(r"::(\w+\.)?((peakmem|track|mem)_|(PeakMem|Track|Mem)[A-Z_])\w+$")
# A place in code, and no name of something that has none.
_LINE = re.compile(r"\.(py|ipynb):\d+$")


def in_order(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return comparisons sorted by verdict, REGRESSED first, and within a verdict those that decide first.

    Of those that regressed the slowest come first.

    Those of SAME CODE are left out: a sentence counts them.
    """
    shown = [found for found in comparisons if found.verdict != "SAME CODE"]

    def slowest_first(found: Comparison) -> float:
        return -found.estimate.ratio if found.verdict == "REGRESSED" and found.estimate else 0.0

    return sorted(
        shown, key=lambda found: (_ORDER.index(found.verdict), not decides(found), slowest_first(found))
    )


def benchmarks_of(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons without the finding on what a change edits of how it is measured."""
    return [one for one in comparisons if one.benchmark.name != MEASURING]


def is_number(one: Comparison) -> bool:
    """Return whether a benchmark of an asv suite measures a number or memory in place of a time."""
    return _NUMBER.search(one.benchmark.name.partition("[")[0]) is not None


def without_many_not_reached(comparisons: Sequence[Comparison]) -> tuple[list[Comparison], str | None]:
    """Return what a table lists, and a word on the benchmarks that were not reached and would fill it."""
    rest = [one for one in comparisons if one.verdict == "NOT REACHED"][_MOST_NOT_REACHED:]
    return [one for one in comparisons if one not in rest], f"and {len(rest)} more" if rest else None


def decides(comparison: Comparison | ExactComparison) -> bool:
    """Return whether a comparison can change the exit code."""
    return comparison.gating and comparison.accepted is None and not is_excused(comparison)


def is_excused(comparison: Comparison | ExactComparison) -> bool:
    """Return whether nothing but a setting lets an undecided benchmark pass."""
    undecided = isinstance(comparison, Comparison) and comparison.excused_by is not None
    return undecided and comparison.gating and comparison.accepted is None


def is_timed(report: GateReport) -> bool:
    """Return whether a gate timed anything, or would have."""
    if any(found.estimate or found.verdict == "NOT REACHED" for found in report.comparisons):
        return True
    return not report.exact and not all(found.verdict == "SAME CODE" for found in report.comparisons)


def some_do_not_gate(comparisons: Sequence[Comparison]) -> bool:
    """Return whether some benchmarks gate and others do not, which have no share of alpha."""
    return {comparison.gating for comparison in comparisons} == {True, False}


def shown(verdict: Verdict) -> str:
    """Return a verdict as people read it: what leaves a gate UNDECIDED is called so itself."""
    return "UNDECIDED" if verdict == "INCONCLUSIVE" else verdict


def run_text(report: GateReport) -> str:
    """Return the end of a gate's id, by which `perfkit ledger list` and `judge` know it."""
    return shown_run_id(report.run_id)


def percent(share: float) -> str:
    """Return a share with the digits it needs: "2 %", "0.5 %"."""
    return f"{100 * share:g} %"


def change_text(estimate: Estimate | None) -> str:
    """Return the change of the time as "+3.1 %", or as a factor where percent would mislead: "×12.3"."""
    if estimate is None:
        return "-"
    if _is_factor(estimate):
        return _factor(estimate.ratio)
    return f"{_signed(round(100 * (estimate.ratio - 1), 1))} %"


def interval_text(estimate: Estimate | None) -> str:
    """Return the interval of the change, "+2.6 to +3.6 %", its limits rounded outward."""
    if estimate is None:
        return "-"
    if _is_factor(estimate):
        return _factors_text(_low_factor(estimate), _high_factor(estimate))
    low, high = _limits(estimate)
    return f"{_signed(low)} to {_signed(high)} %"


def _factors_text(low: str, high: str) -> str:
    if high == UNKNOWN:
        return UNKNOWN if low == UNKNOWN else f"{low} or more"
    return f"{high} or less" if low == UNKNOWN else f"{low} to {high}"


def slower_text(estimate: Estimate | None) -> str:
    """Return how much slower a benchmark became: "3.1 % slower (between 2.6 and 3.6 %)"."""
    if estimate is None:
        return "slower"
    if _is_factor(estimate):
        limits = f"between {estimate.low:.1f} and {estimate.high:.1f} times"
        if _high_factor(estimate) == UNKNOWN:
            limits = f"at least {estimate.low:.1f} times"
        return f"{estimate.ratio:.1f} times as slow ({limits})"
    low, high = _limits(estimate)
    return f"{100 * (estimate.ratio - 1):.1f} % slower (between {low:.1f} and {high:.1f} %)"


def open_text(comparison: Comparison) -> str:
    """Return what is known of a benchmark that is not decided: "+0.4 to +3.6 %"."""
    if comparison.verdict == "NOT REACHED":
        return "not measured yet"
    judged = comparison.estimate
    if judged is None and (seen := seen_change(comparison)) is not None:
        return f"{seen}, which may be chance"
    if judged is None or _high_factor(judged) == UNKNOWN:
        return "nothing known yet"
    return interval_text(judged)


def upper_text(estimate: Estimate | None) -> str:
    """Return the upper limit of the change, "+3.6 %", rounded outward."""
    if estimate is None:
        return "-"
    return _high_factor(estimate) if _is_factor(estimate) else f"{_signed(_limits(estimate)[1])} %"


def at_most(estimate: Estimate | None) -> str:
    """Return the upper limit in words, "at most +3.6 %"; or that it is unknown."""
    limit = upper_text(estimate)
    return limit if limit == UNKNOWN else f"at most {limit}"


def limit_of_all_calls(comparison: Comparison) -> str | None:
    """Return the upper limit for all calls where a lower-quartile call alone made the verdict, else None."""
    judged, whole = comparison.estimate, comparison.other
    if judged is None or whole is None or judged.calls != "typical" or comparison.verdict not in NOT_SLOWER:
        return None
    return upper_text(whole) if whole.high > 1 + comparison.margin else None


def seen_change(comparison: Comparison) -> str | None:
    """Return the change of two times that were not measured by turns; None where either is not known."""
    if comparison.estimate is not None or not comparison.base_s or not comparison.head_s:
        return None
    ratio = comparison.head_s / comparison.base_s
    return change_text(
        Estimate(ratio=ratio, low=ratio, high=ratio, confidence=0.0, launches=0, launch_sd=None)
    )


def times_text(comparison: Comparison, *, of_open: bool = False) -> tuple[str, str]:
    """Return the times of both sides; unless ``of_open``, none that would suggest a change too early."""
    known, undecided = comparison.estimate, comparison.verdict in UNDECIDED
    if undecided and not of_open and (known is None or known.low <= 1 <= known.high):
        return "-", "-"
    return human_seconds(comparison.base_s), human_seconds(comparison.head_s)


def direction_text(estimate: Estimate | None) -> str:
    """Return the direction in which a benchmark moved, if it is known: "slower by 0.4 to 2.6 %"."""
    if estimate is None:
        return "too few launches to compare"
    if estimate.low <= 1 <= estimate.high:
        one, many = ("session", "sessions") if estimate.unit == "occasions" else ("launch", "launches")
        return (
            f"not decided after {estimate.launches} {one if estimate.launches == 1 else many}:"
            f" may be slower or faster ({interval_text(estimate)}), so no times are shown"
        )
    word = "slower" if estimate.low > 1 else "faster"
    if _is_factor(estimate):
        return f"{word}, {interval_text(estimate)}"
    small, large = sorted(map(abs, _limits(estimate)))
    return f"{word} by {small:.1f} to {large:.1f} %"


def need_text(need: Need) -> str:
    """Return what a decision would take: "needs about 12 more launches, 21.3 s"."""
    launches = "1 more launch" if need.launches == 1 else f"{need.launches} more launches"
    return f"needs about {launches}" + ("" if need.seconds is None else f", {human_seconds(need.seconds)}")


def doubts_text(comparison: Comparison) -> str:
    """Return what a benchmark's time does not show."""
    return ", and ".join(one.text for one in comparison.doubts if one.kind not in REMARKS)


def details(comparison: Comparison) -> list[str]:
    """Return the remarks that a reader of a comparison needs besides the numbers of the table."""
    words = [comparison.message or _CAUSES.get(comparison.verdict)]
    need = comparison.need
    if comparison.verdict == "NOT REACHED":
        # A note has what would have been enough for all of them.
        words, need = [], None
    if comparison.verdict == "NOT SLOWER":
        words = [f"not slower ({interval_text(comparison.estimate)})"]
    if comparison.verdict in ("REGRESSED", "INCONCLUSIVE"):
        # The table has the interval of a slowdown.
        known = comparison.verdict == "REGRESSED" and comparison.estimate is not None
        words = [None if known else direction_text(comparison.estimate), comparison.message]
        if comparison.estimate is None:
            # The message only has how many launches are too few.
            words = [": ".join(one for one in words if one)]
    if comparison.estimate and comparison.other and comparison.estimate.calls == "all":
        typical = f"{change_text(comparison.other)} ({interval_text(comparison.other)})"
        words.append(f"that is the mean of all calls; their lower quartile: {typical}")
    words.append(first_call_text(comparison.first_call))
    words += [_remark(one, comparison.verdict) for one in comparison.doubts]
    if need is not None:
        words.append(need_text(need))
    if comparison.excused_by is not None:
        words.append(f"let pass by {comparison.excused_by}: {open_text(comparison)}")
    return [sentence for sentence in (*words, *standing(comparison)) if sentence]


def standing(comparison: Comparison) -> list[str]:
    """Return why a verdict decides nothing: the benchmark does not gate, or it was accepted."""
    accepted = [] if comparison.accepted is None else [f"accepted: {comparison.accepted}"]
    return [*([] if comparison.gating else ["does not gate"]), *accepted]


def _remark(doubt: Doubt, verdict: Verdict) -> str | None:
    """Return a doubt in words; that a result is not known matters of a gain alone."""
    if doubt.kind == "other result" and verdict not in GAINS:
        return f"also {doubt.text}"
    if doubt.kind != "not compared":
        return doubt.text
    return f"result not compared: {doubt.text}" if verdict == "IMPROVED" else None


def first_call_text(first: FirstCall | None) -> str | None:
    """Return the times of the first call where it is slower, or where later ones do little of its work."""
    if first is None or not (first.slower or first.unlike):
        return None
    ratio = "" if first.ratio is None else f"×{first.ratio:.3g}, "
    launches = "1 launch" if first.launches == 1 else f"{first.launches} launches"
    times = f"{human_seconds(first.base_s)} on base, {human_seconds(first.head_s)} on head"
    return "; ".join(filter(None, (f"first call {times} ({ratio}median of {launches})", first.unlike)))


def explanation_title(explanation: Explanation) -> str:
    """Return the heading of an explanation."""
    profiled = explanation.section is not None
    return "what moved, per call under cProfile" if profiled else "its time and its counts"


def slowest_part(explanation: Explanation | None) -> Part | None:
    """Return the changed function that took more time, else the part with a known line that did most."""
    if explanation is not None and explanation.suspect is not None:
        return explanation.suspect
    section = None if explanation is None else explanation.section
    parts = section.parts if section else ()
    slower = [part for part in parts if _LINE.search(part.place) and part.amount.moved_s > 0]
    return max(slower, key=lambda part: part.amount.moved_s, default=None)


def accept_command(
    comparison: Comparison | ExactComparison, name: str, *, head: Commit | None = None
) -> str | None:
    """Return the command that accepts a finding, None where it blocks nothing or launches can decide it."""
    if comparison.verdict not in _ACCEPTABLE or not decides(comparison) or comparison.benchmark.is_file:
        return None
    return accept_line(name, head=head)


def accept_line(name: str, *, head: Commit | None = None) -> str:
    """Return the command that lets the findings of a benchmark pass, as far as they block.

    It names ``head`` unless that has uncommitted changes: another commit may be checked out by then.
    """
    commit = "" if head is None or head.dirty else f" --commit {short_sha(head.sha)}"
    return follow_up(f'perfkit accept {shlex.quote(name)}{commit} --reason "…"')


def waits_for_person(report: GateReport) -> bool:
    """Return whether nothing but what a change edits of how it is measured has to be accepted."""
    left = [one for one in report.comparisons if one.verdict in _ACCEPTABLE and decides(one)]
    return bool(left) and not benchmarks_of(left)


def can_accept(report: GateReport) -> bool:
    """Return whether findings of a gate can be accepted: what environments cost is no commit's doing."""
    return report.base_environment is None


def after_waiting(waited_s: float) -> str:
    """Return how long another perfkit kept a command waiting, "" where none did."""
    return f" after {human_seconds(waited_s)} of waiting for another perfkit" if waited_s else ""


def launches_text(estimate: Estimate | None) -> str:
    """Return the number of launches a comparison rests on."""
    return "-" if estimate is None else str(estimate.launches)


def _is_factor(estimate: Estimate) -> bool:
    is_large = estimate.ratio >= _LARGEST_RATIO or estimate.high >= _LARGEST_IN_PERCENT
    return is_large or estimate.low < _SMALLEST_IN_PERCENT


def _high_factor(estimate: Estimate) -> str:
    unknown = estimate.high > _LARGEST_KNOWN and estimate.high > _LEAST_KNOWN * estimate.ratio
    return UNKNOWN if unknown else _factor(estimate.high)


def _low_factor(estimate: Estimate) -> str:
    unknown = estimate.low < 1 / _LARGEST_KNOWN and estimate.low < estimate.ratio / _LEAST_KNOWN
    return UNKNOWN if unknown else _factor(estimate.low)


def _factor(ratio: float) -> str:
    return f"×{ratio:.1f}" if ratio >= 1 else f"×{ratio:.2g}"


def _limits(estimate: Estimate) -> tuple[float, float]:
    low, high = (round(1000 * (limit - 1), 6) for limit in (estimate.low, estimate.high))
    return math.floor(low) / 10, math.ceil(high) / 10


def _signed(value: float) -> str:
    return f"{value:+.1f}" if value else "0.0"


_MOST = 6
_HEADINGS = ("how it is measured", "edited by this change", "counts here")
_PATH = 32


def measuring_view(edits: Sequence[MeasuringEdit]) -> list[RenderableType]:
    """Return the table of a terminal, which fits 80 columns; nothing where nothing is edited."""
    if not edits:
        return []
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="yellow")
    for heading in _HEADINGS:
        table.add_column(heading, overflow="fold")
    for edit in edits[:_MOST]:
        table.add_row(Text(fitted(_place(edit), _PATH)), Text(edit.what), Text(edit.effect))
    return [Group(table, *(Text(line) for line in _more(edits)))]


def measuring_markdown(edits: Sequence[MeasuringEdit]) -> str:
    """Return the table of a comment."""
    if not edits:
        return ""
    rows = (
        table_row([cell_code(_place(edit)), escape(edit.what), escape(edit.effect)]) for edit in edits[:_MOST]
    )
    headings = tuple(heading.capitalize() for heading in _HEADINGS)
    return "\n".join((*table_head(headings), *rows, *("\n" + line for line in _more(edits))))


def _place(edit: MeasuringEdit) -> str:
    return f"marker of {edit.path.rpartition('::')[2]}" if edit.kind == "marker" else edit.path


def _more(edits: Sequence[MeasuringEdit]) -> list[str]:
    return [f"and {len(edits) - _MOST} more (--json)"] if len(edits) > _MOST else []
