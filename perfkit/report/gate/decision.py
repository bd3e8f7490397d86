"""Says what a gate decided and how to read its numbers, in words that need no explanation."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.model.comparisons import (
    ApartReport,
    Comparison,
    ExactComparison,
    GateReport,
    Verdict,
    exit_code,
    uncounted_instructions,
    worst,
)
from perfkit.report.counts import amount_text
from perfkit.report.gate.folding import count_title
from perfkit.report.gate.wording import (
    NOT_SLOWER,
    after_waiting,
    at_most,
    change_text,
    decides,
    in_order,
    is_excused,
    limit_of_all_calls,
    open_text,
    percent,
    slower_text,
    some_do_not_gate,
)
from perfkit.report.names import short_names
from perfkit.units import counted, human_seconds, listed

_WORDS = {
    EXIT_PASS: "PASS",
    EXIT_REGRESSED: "FAIL",
    EXIT_INCONCLUSIVE: "NO ANSWER YET",
    EXIT_NOT_MEASURED: "NOT MEASURED",
}
# Verdicts that leave nothing to compare, and what every benchmark is where all have them.
_NOTHING_TO_COMPARE: Mapping[Verdict, str] = {"NEW": "is new", "SKIPPED": "is skipped"}
# What became of a benchmark that could not be compared.
_INSTEAD: Mapping[Verdict, str] = {
    "MISSING": "is missing in the new code",
    "CHANGED": "was changed itself",
    "FAILED": "ended with an error",
    "TIMEOUT": "took too long",
}
# A decision names so many benchmarks.
_MOST_NAMES = 3
_EXPLAINED_IN = "perfkit's docs/gate.md"
_WORTH_A_WORD_S = 1.0


def decision_word(report: GateReport | ApartReport) -> str:
    """Return the decision, which the exit code stands for, in a word or two."""
    return _WORDS.get(_judged(report).exit_code, "NOT DECIDED")


def decision_lines(
    report: GateReport | ApartReport, names: Mapping[str, str], *, brief: bool = False
) -> list[str]:
    """Return a plain sentence that says what was decided, then what else was found and how to read on.

    ``names`` are the benchmarks' names as the tables have them. ``brief`` leaves out what is no part of the
    answer, which ``cost_sentence`` says.
    """
    closing = " ".join([*_going_on(report), *_sureness(report)] if brief else _closing(report))
    report = _judged(report)
    causes = [found for found in in_order(report.comparisons) if _is_cause(found, report.exit_code)]
    counts = [found for found in report.exact if decides(found) and exit_code((found,)) == report.exit_code]
    excused = [found for found in in_order(report.comparisons) if is_excused(found)]
    told = causes + (excused if report.exit_code == EXIT_PASS else [])
    besides = [found for found in in_order(report.comparisons) if _is_news(found, told)]
    return [
        "".join(_of_cpu_time(report.comparisons, names))
        + f"{_decision(report)}: {', and '.join(_reasons(report, told, counts, names))}.",
        *_rule(report, causes),
        *([f"Besides: {_tally(besides)}."] if besides else []),
        *_unread(report.comparisons),
        *([closing] if closing else []),
    ]


def _of_cpu_time(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> Iterator[str]:
    """Yield which benchmarks became faster and take more CPU time: nothing else is as important."""
    moved = [one for one in in_order(comparisons) if one.costs_more_cpu]
    if moved:
        told = _named(moved, names, _cpu_text)
        yield f"MORE CPU TIME in less wall time, in all threads and processes of a call together: {told}. "


def _cpu_text(comparison: Comparison) -> str:
    return f" (×{comparison.cpu_ratio:.2g}, wall time {change_text(comparison.estimate)})"


def _rule(report: GateReport | ApartReport, causes: Sequence[Comparison]) -> Iterator[str]:
    """Yield which slowdown fails, where one did."""
    if causes and report.exit_code == EXIT_REGRESSED:
        limit = _limit(report, causes)
        proven = report.policy.fail_on == "proven"
        yield (
            f'Only what is proven to be slower by more than {limit} fails (fail_on = "proven").'
            if proven
            else f"A slowdown of up to {limit} would pass."
        )


def both_sentence(report: GateReport) -> str | None:
    """Return what a gate and the one against a release came to together; None where there is one alone."""
    other = report.against
    if other is None:
        return None
    code = worst((report.exit_code, other.exit_code))
    decided = f"{decision_word(report)} against its base, {_decision(other)}"
    told = f"{decided}: together they end with exit code {code}."
    if other.exact and not other.comparisons:
        return told
    each, both = other.policy.alpha, report.policy.alpha + other.policy.alpha
    return (
        f"{told} Each had its own budget, and its own probability of any wrong verdict: at most"
        f" {percent(each)}, for both together at most {percent(both)}."
    )


def _decision(report: GateReport | ApartReport) -> str:
    """Return the decision, and against which release it is where it is against one."""
    release = report.release if isinstance(report, GateReport) else None
    return decision_word(report) + (f" against {release}" if release else "")


def _judged(report: GateReport | ApartReport) -> GateReport | ApartReport:
    """Return a report with the exit code that its verdicts alone stand for, recorded or not."""
    if not isinstance(report, GateReport) or report.unrecorded is None:
        return report
    return replace(report, exit_code=exit_code((*report.comparisons, *report.exact)))


def _unread(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Say of which files no benchmark is known, although that decides nothing."""
    files = [one.benchmark.name for one in comparisons if one.verdict == "SKIPPED" and one.benchmark.is_file]
    if files:
        yield f"Not looked at, for the reason above: {listed(files, _MOST_NAMES)}."


def cost_sentence(report: GateReport | ApartReport) -> str:
    """Return how long a gate took, and the exit code that it ended with."""
    took = f"took {_time_taken(report)} and " if isinstance(report, GateReport) else ""
    if isinstance(report, GateReport) and report.unrecorded is not None:
        took += "could not be recorded, and "
    # Where it is one of two, the command ends with the exit code of both.
    alone = isinstance(report, GateReport) and (report.release or report.against)
    return f"It {took}{'by itself ' if alone else ''}ends with exit code {report.exit_code}."


def explained_sentence() -> str:
    """Return where to read on."""
    return f"Every word and number is explained in {_EXPLAINED_IN}."


def _closing(report: GateReport | ApartReport) -> Iterator[str]:
    """Yield how to go on, the time and exit code, the probability of an error, and where to read on."""
    yield from _going_on(report)
    yield cost_sentence(report)
    yield from _probability(report)
    yield explained_sentence()


def _going_on(report: GateReport | ApartReport) -> Iterator[str]:
    if _can_go_on(report):
        yield "The same command again goes on from here."


def _sureness(report: GateReport | ApartReport) -> Iterator[str]:
    """Yield how sure the answer is, where there is one."""
    if report.exit_code != EXIT_NOT_MEASURED:
        yield from _probability(report)
    if isinstance(report, GateReport) and report.unrecorded is not None:
        yield "It could not be recorded."


def _probability(report: GateReport | ApartReport) -> Iterator[str]:
    if report.comparisons or not report.exact:
        # Alpha is not shared with an earlier or a later comparison of what the ledger has by then, and what
        # does not gate has no share of it.
        of = " of those that gate" if some_do_not_gate(report.comparisons) else ""
        of += " of this one comparison" if isinstance(report, ApartReport) else ""
        yield f"The probability of any wrong verdict{of} is at most {percent(report.policy.alpha)}."


def _time_taken(report: GateReport) -> str:
    """Say how long a gate took, and where it counted too, what that took: the budget is for timing alone."""
    whole = human_seconds(report.wall_s) + after_waiting(report.waited_s)
    if report.timed_s is None or report.counted_s is None or report.counted_s < _WORTH_A_WORD_S:
        return whole
    timed, counted_ = human_seconds(report.timed_s), human_seconds(report.counted_s)
    return f"{whole} (timing {timed} of a budget of {human_seconds(report.budget_s)}, counting {counted_})"


def _can_go_on(report: GateReport | ApartReport) -> bool:
    """Tell whether a second gate of the two sides would continue the test of this one."""
    is_open = report.exit_code == EXIT_INCONCLUSIVE and isinstance(report, GateReport)
    return is_open and not report.base.dirty and not report.head.dirty


def _reasons(
    report: GateReport | ApartReport,
    causes: Sequence[Comparison],
    counts: Sequence[ExactComparison],
    names: Mapping[str, str],
) -> Iterator[str]:
    """Yield the reasons for the decision, in times and in counts."""
    excused = [one for one in causes if is_excused(one)]
    if deciding := [one for one in causes if one not in excused]:
        yield _of_times(report, deciding, names)
    if excused:
        yield _of_excused(report, excused, names)
    accepted = [*_of_accepted(report, counts, names)] if report.exit_code == EXIT_PASS else []
    if not causes and not counts and not accepted:
        yield _without_cause(report)
    several = counted(len(counts), "count")
    if counts and report.exit_code == EXIT_REGRESSED:
        yield f"{several} grew by more than is allowed ({_largest(counts, names)})"
    elif counts and report.exit_code == EXIT_NOT_MEASURED:
        yield f"{several} that {'decides' if len(counts) == 1 else 'decide'} could not be counted on head"
    elif counts and report.exit_code == EXIT_INCONCLUSIVE:
        yield f"whether {several} grew is open: values of both sides overlap ({_largest(counts, names)})"
    elif counts:
        yield f"none of {several} grew by more than is allowed"
    yield from accepted


def _of_times(
    report: GateReport | ApartReport, causes: Sequence[Comparison], names: Mapping[str, str]
) -> str:
    """Return which benchmarks decided and how."""
    some = _some(report, causes)
    if report.exit_code == EXIT_PASS:
        none = (
            "the benchmark did not become" if len(causes) == 1 else f"none of {len(causes)} benchmarks became"
        )
        limit = _range(one.margin for one in causes)
        return f"{none} slower by more than {limit}{_in_typical_calls(causes, names)}"
    if report.exit_code == EXIT_REGRESSED:
        slowest = sorted(causes, key=lambda one: -one.estimate.ratio if one.estimate else 0.0)
        told = _named(slowest, names, lambda one: f" is {slower_text(one.estimate)}")
        return told if len(causes) == 1 else f"{some} became slower: {told}"
    if report.exit_code == EXIT_INCONCLUSIVE:
        told = _open(report, causes, names)
        return f"it is still open whether {some} became slower by more than {_limit(report, causes)}: {told}"
    return f"{some} could not be compared: {_named(causes, names, lambda one: f' {_INSTEAD[one.verdict]}')}"


def _open(report: GateReport | ApartReport, causes: Sequence[Comparison], names: Mapping[str, str]) -> str:
    """Return which benchmarks are open, and of many that were not reached how many."""
    left = [one for one in causes if one.verdict == "NOT REACHED"]
    if len(left) <= _MOST_NAMES or not isinstance(report, GateReport):
        return _named(causes, names, lambda one: f" ({open_text(one)})")
    begun = [one for one in causes if one not in left]
    told = f"{len(left)} were not reached in the budget of {human_seconds(report.budget_s)}"
    return ", ".join(([_named(begun, names, lambda one: f" ({open_text(one)})")] if begun else []) + [told])


def _of_accepted(
    report: GateReport | ApartReport, counts: Sequence[ExactComparison], names: Mapping[str, str]
) -> Iterator[str]:
    """Yield what fails the gate but for an acceptance; ``counts`` are those that pass by themselves."""
    slower = [one for one in report.comparisons if one.verdict == "REGRESSED" and one.accepted is not None]
    if slower:
        told = _named(slower, names, lambda one: f" is {slower_text(one.estimate)}")
        yield f"{told}, which was accepted"
    accepted = [one for one in report.exact if one.accepted is not None]
    grown = [one for one in accepted if one.head is not None]
    lost = [one for one in accepted if one.head is None]
    for found, what in ((grown, "grew"), (lost, "could not be counted on head")):
        if found:
            others = counted(len(found), "other" if counts else "count")
            which = f" ({_largest(found, names)})" if found is grown else ""
            yield f"{others} {what} and {'was' if len(found) == 1 else 'were'} accepted{which}"


def _in_typical_calls(causes: Sequence[Comparison], names: Mapping[str, str]) -> str:
    """Say of how many benchmarks only a typical call is known not to have, and what bounds all calls."""
    typical = [one for one in causes if limit_of_all_calls(one) is not None]
    if not typical:
        return ""
    most = max(typical, key=lambda one: one.other.high if one.other else 0.0)
    whose = "" if len(typical) == len(causes) else f" for {len(typical)} of them"
    which = "" if len(causes) == 1 else f", {names[most.benchmark.name]}"
    return (
        " in a typical call; the mean of all calls, rare slow ones too, is known less well"
        f"{whose} ({at_most(most.other)}{which}), which fails nothing"
    )


def _of_excused(
    report: GateReport | ApartReport, excused: Sequence[Comparison], names: Mapping[str, str]
) -> str:
    """Return which benchmarks a setting lets pass undecided, and how much slower they may have become."""
    told = _named(excused, names, lambda one: f" ({open_text(one)})")
    settings = " and ".join(sorted({one.excused_by for one in excused if one.excused_by is not None}))
    number = "is" if len(excused) == 1 else "are"
    return f"{_some(report, excused)} {number} undecided and let pass by {settings}: {told}"


def _some(report: GateReport | ApartReport, comparisons: Sequence[Comparison]) -> str:
    return f"{len(comparisons)} of {counted(len(report.comparisons), 'benchmark')}"


def _named(causes: Sequence[Comparison], names: Mapping[str, str], said: Callable[[Comparison], str]) -> str:
    """Return the first benchmarks, each with what is said of it, and how many more there are."""
    told = [f"{names[one.benchmark.name]}{said(one)}" for one in causes[:_MOST_NAMES]]
    more = [f"and {len(causes) - _MOST_NAMES} more"] if len(causes) > _MOST_NAMES else []
    return ", ".join(told + more)


def _largest(counts: Sequence[ExactComparison], names: Mapping[str, str]) -> str:
    """Return the count that grew most, with its amounts: "test_a: operators dispatched, 10 to 20"."""
    most = max(counts, key=lambda one: one.ratio or math.inf)
    amounts = (amount_text(amount, most.metric.unit) for amount in (most.base, most.head))
    name = names.get(most.benchmark.name) or short_names([most.benchmark.name])[most.benchmark.name]
    return f"{name}: {count_title(most)}, {' to '.join(amounts)}"


def _without_cause(report: GateReport | ApartReport) -> str:
    """Return why no benchmark decided."""
    if isinstance(report, GateReport) and report.cut_off:
        return "the gate was cut off before all was measured"
    if report.comparisons and all(one.verdict in _NOTHING_TO_COMPARE for one in report.comparisons):
        return f"nothing was compared, since every benchmark {_why_nothing(report.comparisons)}"
    if uncounted := uncounted_instructions(report.exact):
        return f"the instructions of no benchmark could be counted ({uncounted[0].message})"
    if report.exact and report.exit_code == EXIT_NOT_MEASURED and not report.comparisons:
        why = next((one.message for one in report.exact if one.message), "no count decides")
        return f"nothing that decides could be counted on both sides ({why})"
    gating = any(one.gating for one in report.comparisons) or any(one.gating for one in report.exact)
    nothing = report.exit_code == EXIT_PASS or not report.comparisons or not gating
    return "no benchmark that decides was compared" if nothing else "the notes above say why"


def _why_nothing(comparisons: Sequence[Comparison]) -> str:
    """Say of benchmarks that are all new, or skipped on both sides, which it is."""
    said = sorted({_NOTHING_TO_COMPARE[one.verdict] for one in comparisons})
    reasons = sorted({one.message for one in comparisons if one.verdict == "SKIPPED" and one.message})
    return " or ".join(said) + (f" ({reasons[0]})" if len(reasons) == 1 and len(said) == 1 else "")


def _limit(report: GateReport | ApartReport, comparisons: Sequence[Comparison]) -> str:
    """Return the slowdown above which benchmarks fail."""
    return _range(report.policy.threshold(one.margin) for one in comparisons)


def _range(changes: Iterable[float]) -> str:
    """Return a margin or the range of several: "2 %", "their margins (1 to 5 %)"."""
    margins = sorted(set(changes))
    if len(margins) == 1:
        return percent(margins[0])
    return f"their margins ({percent(margins[0]).removesuffix(' %')} to {percent(margins[-1])})"


def _is_cause(comparison: Comparison, code: int) -> bool:
    return (
        decides(comparison)
        and comparison.verdict not in _NOTHING_TO_COMPARE
        and exit_code((comparison,)) == code
    )


def _is_news(comparison: Comparison, causes: Sequence[Comparison]) -> bool:
    """Tell whether a comparison is to be mentioned although it is no cause of the decision."""
    return comparison.verdict == "IMPROVED" or (
        comparison not in causes and not (comparison.verdict in NOT_SLOWER and decides(comparison))
    )


def _tally(comparisons: Sequence[Comparison]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in Counter(map(_kind, comparisons)).items())


def _kind(comparison: Comparison) -> str:
    if comparison.accepted is not None:
        return f"{comparison.verdict} (accepted)"
    if is_excused(comparison):
        return f"{comparison.verdict} (let pass)"
    return comparison.verdict + ("" if comparison.gating else " (does not gate)")


def reading_guide(report: GateReport, names: Mapping[str, str]) -> str:
    """Return how to read the table: its numbers, their confidence, and the margins."""
    policy = report.policy
    which = "benchmarks that gate," if some_do_not_gate(report.comparisons) else "benchmarks"
    together = f" for all {policy.family} {which} at once" if policy.family > 1 else ""
    sentences = (
        "Base and head are the time of one call. Change is head against base.",
        f"The true change lies within the interval, with {percent(1 - policy.alpha)} confidence{together}.",
        _of_typical_calls(report.comparisons, names),
        _resting_on_preloaders(report.comparisons, names),
        _margins(report.comparisons, names),
        # Where only what is proven fails, the noise floor takes the place of the margin.
        "UNCHANGED means that the whole interval lies within it." if policy.fail_on == "margin" else "",
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _of_typical_calls(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    """Say that times are of typical calls, and how much slower all calls together may have become."""
    typical = [found for found in comparisons if found.estimate and found.estimate.calls == "typical"]
    if not typical:
        return ""
    short = "" if len(typical) == len(comparisons) else " where calls are short"
    if any(limit_of_all_calls(found) for found in typical):
        # The lines of the table and the decision have the limits.
        return f"Times are of a typical call{short}; the mean of all calls, slow ones too, scatters more."
    passing = [found for found in typical if found.verdict in {"UNCHANGED", "NOT SLOWER"} or found.excused_by]
    whole = [(found.other.high, found) for found in passing if found.other]
    if not whole:
        return f"Times are of a typical call{short}."
    _, most = max(whole, key=lambda one: one[0])
    limit, name = at_most(most.other), names[most.benchmark.name]
    return f"Times are of a typical call{short}; all calls together, slow ones too: {limit} ({name})."


def _resting_on_preloaders(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    """Say which intervals are wider because launches of one preloader were too much alike."""
    found = [entry for entry in comparisons if entry.estimate and entry.estimate.unit == "preloaders"]
    listed = ", ".join(names[entry.benchmark.name] for entry in found)
    return f"Launches of {listed} were alike in groups, and its interval is wider for that." if found else ""


def _margins(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    """Return the margin of most benchmarks, and the other margins with their benchmarks."""
    if not comparisons:
        return ""
    by_margin: dict[float, list[str]] = defaultdict(list)
    for found in comparisons:
        by_margin[found.margin].append(names[found.benchmark.name])
    usual, *others = sorted(by_margin, key=lambda margin: -len(by_margin[margin]))
    exceptions = "".join(f", {percent(margin)} for {', '.join(by_margin[margin])}" for margin in others)
    return f"The margin is {percent(usual)}{exceptions}: a slowdown of up to it passes."
