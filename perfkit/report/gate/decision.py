"""What a gate decided and how to read its numbers, in sentences for every medium."""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from perfkit.agent.counters.model import KEPT
from perfkit.errors import EXIT_INCONCLUSIVE, EXIT_NOT_MEASURED, EXIT_PASS, EXIT_REGRESSED
from perfkit.invocation import follow_up
from perfkit.model import COLD_START
from perfkit.model.comparisons import (
    MEASURING,
    UNDECIDED,
    ApartReport,
    Comparison,
    ExactComparison,
    GateReport,
    Runs,
    Verdict,
    exit_code,
    uncounted_instructions,
    worst,
)
from perfkit.report.gate import wording
from perfkit.report.gate.counters import count_title
from perfkit.report.history import short_sha
from perfkit.report.names import short_names
from perfkit.report.surroundings import options_of, package_search
from perfkit.units import amount_text, counted, human_seconds, listed

Report = GateReport | ApartReport
Names = Mapping[str, str]
# A short text counts what it would name.
_Named = Names | None
_Judged = TypeVar("_Judged", Comparison, ExactComparison)
_WORDS = {
    EXIT_PASS: "PASS",
    EXIT_REGRESSED: "FAIL",
    EXIT_INCONCLUSIVE: "UNDECIDED",
    EXIT_NOT_MEASURED: "NOT MEASURED",
}
# Verdicts that leave nothing to compare, and what every benchmark is where all have them.
_NOTHING_TO_COMPARE: Mapping[Verdict, str] = {"NEW": "is new", "SKIPPED": "is skipped"}
_INSTEAD: Mapping[Verdict, str] = {
    "MISSING": "is missing in head",
    "CHANGED": "was changed itself",
    "FAILED": "ended with an error",
    "TIMEOUT": "took too long",
}
_RUNS: Mapping[Runs, str] = {
    "timed": "",
    "first call": ", runs in the first call alone",
    "set-up": ", runs in set-up alone",
    "import": ", runs at import alone",
    "never": "",
}
_MEANINGS: Mapping[Verdict, str] = {
    "UNCHANGED": "the whole interval lies within it",
    "NOT SLOWER": "the interval ends below the {limit}, and that it is open how much faster it became",
    "IMPROVED": "the interval lies below it, on the faster side",
    "REGRESSED": "the interval lies above the {limit}: one such benchmark, or a count beyond its limit,"
    " is enough for the gate to FAIL",
    "INCONCLUSIVE": "the interval reaches beyond the {limit}, so that more launches have to decide: where"
    " none REGRESSED, one such benchmark leaves the whole gate UNDECIDED",
    "NOT REACHED": "the budget ended before it had launches enough for a first answer, which leaves the gate"
    " UNDECIDED, too",
}
# This many changed functions that are not measured are named.
_MOST_FUNCTIONS = 5
FIX_OR_ACCEPT = "fix it, or accept it as it is now, for this benchmark and change only"
# The next budget where this one was too small for any launch is so many times as large.
_MORE_THAN_NOTHING = 4
# A decision names this many benchmarks.
_MOST_NAMES = 3
_WORTH_A_WORD_S = 1.0
# So many seconds are easier to read in minutes.
_MINUTES = 120
# Counts grew, each beyond a limit of its own.
_BEYOND_ITS_OWN = " by more than allowed"
_INSTALL = re.compile(r"`(pip install [\w.-]+)`")
# An interval is wide whose change is so many times its lower limit.
_WIDE = 2.0


def decision_word(report: Report) -> str:
    """Return the decision, which the exit code stands for, in a word or two."""
    return _WORDS.get(_judged(report).exit_code, "NOT DECIDED")


def decision_lines(report: Report, names: Names, *, brief: bool = False) -> list[str]:
    """Return the decision, how sure it is, what else was found, and the cost unless ``brief``."""
    sure, cost = list(_sureness(report, brief=brief)), "" if brief else cost_sentence(report)
    report = _judged(report)
    causes = _causes(report)
    skipped = [one.benchmark for one in report.comparisons if one.verdict == "SKIPPED"]
    files = [one.name for one in skipped if one.is_file]
    lines = (
        headline(report, names),
        " ".join(filter(None, (*sure, _rule(report, causes), _left_to_ci(report)))),
        _other_results(report, names),
        _work_before(report, names),
        _in_typical_calls(causes, names) if report.exit_code == EXIT_PASS else "",
        *coverage_lines(report),
        f"Not looked at, for the reason above: {listed(files, _MOST_NAMES)}." if files else "",
        cost,
    )
    return [line for line in lines if line]


def headline(report: Report, names: _Named) -> str:
    """Return the decision in a sentence, and in a short one without names."""
    report = _judged(report)
    counts = [
        found for found in report.exact if wording.decides(found) and exit_code((found,)) == report.exit_code
    ]
    excused = [found for found in wording.in_order(report.comparisons) if wording.is_excused(found)]
    causes = _causes(report) + (excused if report.exit_code == EXIT_PASS else [])
    reasons = ", and ".join(_reasons(report, causes, counts, names)) + _but_not_covered(report)
    return f"{_doubtful_gains(report, names)}{_decision(report)}: {reasons}."


def _causes(report: Report) -> list[Comparison]:
    return [found for found in wording.in_order(report.comparisons) if _is_cause(found, report.exit_code)]


def coverage_lines(report: Report) -> Iterator[str]:
    """Yield how many benchmarks were not timed, and which changed functions no timed call runs."""
    same = sum(one.verdict == "SAME CODE" for one in report.comparisons)
    coverage = report.coverage if isinstance(report, GateReport) else None
    if same:
        verb = "runs" if same == 1 else "run"
        every = max(len(wording.benchmarks_of(report.comparisons)), coverage.benchmarks if coverage else 0)
        yield f"{same} of {counted(every, 'benchmark')} {verb} no changed code (SAME CODE)."
    if coverage is None or not coverage.functions:
        return
    left, every = coverage.uncovered, len(coverage.functions)
    if not left:
        return
    known = [f"`{one.name}` ({one.file}:{one.line}{_RUNS[one.runs]})" for one in left if one.known]
    unknown = [f"`{one.name}` ({one.file}:{one.line})" for one in left if not one.known]
    verb = "is" if every == 1 else "are"
    text = f"{every - len(left)} of {counted(every, 'changed function')} {verb} measured"
    text += f"; not measured: {listed(known, _MOST_FUNCTIONS)}" if known else ""
    if unknown:
        text += f"; not known, since a trace is incomplete: {listed(unknown, _MOST_FUNCTIONS)}"
    yield f"{text}."


def next_step(report: GateReport, names: Names) -> tuple[str, str | None]:
    """Return what to do next, "" where there is nothing to do, and the command to paste, if one does it."""
    if report.exit_code == EXIT_INCONCLUSIVE:
        command = reproducing_command(report, named=short_sha, again=True) if report.from_ledger else None
        about = _about(report) if larger_budget_s(report) is None else ""
        return f"{again_step(report)}{about}", command and follow_up(command)
    found: list[Comparison | ExactComparison] = [*wording.in_order(report.comparisons), *report.exact]
    can = wording.can_accept(report)
    matches = {one.benchmark.name: _INSTALL.search(one.message or "") for one in report.comparisons}
    installs = {name: match[1] for name, match in matches.items() if match}
    commands = [
        wording.accept_command(one, _name(one, names), head=report.head)
        for one in (found if can else ())
        if one.benchmark.name not in installs
    ]
    wanted = list(dict.fromkeys(filter(None, commands)))
    install = next(iter(installs.values()), "") if report.exit_code == EXIT_NOT_MEASURED else ""
    uncovered = report.coverage.uncovered if report.coverage else ()
    if any(one.known for one in uncovered) and report.exit_code != EXIT_REGRESSED and not (wanted or install):
        step = "write benchmarks of the changed functions that are not measured, from calls in tests"
        return step, f"perfkit init --for-change {report.base.sha[:12]}"
    if command := install or package_search(report):
        needed = "install what the benchmarks need, and run the same command"
        return needed if install else "find the package that slowed it", command
    if report.exit_code not in (EXIT_REGRESSED, EXIT_NOT_MEASURED) or not wanted:
        return "", None
    if wording.waits_for_person(report):
        return "have a person look at what the change edits, who accepts it with a reason", wanted[0]
    others = f", and likewise for {counted(len(wanted) - 1, 'other')}" if len(wanted) > 1 else ""
    return f"{FIX_OR_ACCEPT}{others}", wanted[0]


def again_step(report: GateReport) -> str:
    """Return what decides the rest: the same gate, which goes on where it ended, or a larger budget."""
    is_dirty = report.base.dirty or report.head.dirty
    budget_s, left_s = larger_budget_s(report), left_seconds(report)
    # A gate of uncommitted changes begins anew.
    goes_on = "" if is_dirty else ", which continues from here"
    if report.from_ledger:
        return f"gate both again{goes_on}"
    if budget_s is None:
        return f"run the same command again{goes_on}"
    guess = f" (a guess: {human_seconds(report.budget_s)} were too short for any)" if left_s is None else ""
    minutes = f" (about {budget_s / 60:.0f} min)" if budget_s > _MINUTES else ""
    return f"run the same command with --budget {budget_s}{minutes}{goes_on}{guess}"


def left_seconds(report: GateReport) -> float | None:
    """Return about how long deciding the rest takes, None where nothing was measured to judge that by.

    A benchmark that was not reached takes as long as those that were did.
    """
    timed = wording.benchmarks_of(report.comparisons)
    left = [one for one in timed if one.verdict in UNDECIDED and wording.decides(one)]
    if left and report.left_s is not None:
        return report.left_s
    begun = [one for one in timed if one.estimate is not None]
    if left and not begun:
        return None
    spent_s = report.budget_s if report.timed_s is None else report.timed_s
    usual_s = spent_s / len(begun) if begun else 0.0
    launches = sum(one.estimate.launches for one in begun if one.estimate is not None)
    return math.fsum(_seconds_left(one, usual_s, spent_s / launches if launches else 0.0) for one in left)


def _seconds_left(one: Comparison, usual_s: float, launch_s: float) -> float:
    if one.need is None or one.estimate is None:
        return usual_s
    return one.need.launches * launch_s if one.need.seconds is None else one.need.seconds


def larger_budget_s(report: GateReport) -> int | None:
    """Return the budget that about decides the rest, to ten seconds, None where the gate's own does."""
    left_s = left_seconds(report)
    is_dirty = report.base.dirty or report.head.dirty
    if left_s is None:
        return math.ceil(_MORE_THAN_NOTHING * report.budget_s / 10) * 10
    if not is_dirty and left_s <= report.budget_s:
        return None
    before_s = report.budget_s if is_dirty else 0.0
    return math.ceil((before_s + max(left_s, 1.0)) / 10) * 10


def _about(report: GateReport) -> str:
    """Return how many launches the benchmark takes that needs most, and how long all of them take."""
    left = [one for one in report.comparisons if one.estimate is not None and wording.decides(one)]
    needs = [one.need for one in left if one.need is not None]
    most = max(needs, key=lambda need: need.launches, default=None)
    return f" ({wording.need_text(most).removeprefix('needs ')})" if most else ""


def reproducing_command(
    report: GateReport, *, named: Callable[[str], str] = str, again: bool = False
) -> str | None:
    """Return the command that gates the same commits, None where these do not name all that was measured.

    Its budget is the same, or the one that it takes to decide the rest where it goes on ``again``.
    """
    if report.base.dirty or report.head.dirty or (report.base_environment is not None and not report.wanted):
        return None
    margins = {one.margin for one in report.comparisons}
    margin = ["--margin", wording.percent(*margins).replace(" ", "")] if len(margins) == 1 else []
    larger_s = larger_budget_s(report) if again else None
    budget = ["--budget", f"{report.budget_s if larger_s is None else larger_s:g}"]
    options = [*margin, *budget] if wording.is_timed(report) else ["--exact-only"]
    options += options_of(report.wanted)
    commits = ("--base", named(report.base.sha), "--head", named(report.head.sha))
    return shlex.join(["perfkit", "gate", *commits, *options])


def left_open(report: GateReport, names: _Named) -> str:
    """Return which benchmarks a failed gate left undecided, with what each needs, "" where it left none.

    Without ``names`` it is how many.
    """
    left = [
        one
        for one in wording.in_order(report.comparisons)
        if one.verdict in UNDECIDED and wording.decides(one)
    ]
    if not left or report.exit_code != EXIT_REGRESSED:
        return ""
    if names is None:
        return counted(len(left), "benchmark")
    return _named(
        left, names, lambda one: f" ({wording.need_text(one.need) if one.need else wording.open_text(one)})"
    )


def both_sentence(report: GateReport) -> str | None:
    """Return what a gate and the one against a release came to together; None where there is one alone."""
    other = report.against
    if other is None:
        return None
    code = worst((report.exit_code, other.exit_code))
    decided = f"{decision_word(report)} against its base, {_decision(other)}: exit code {code} for both."
    if other.exact and not other.comparisons:
        return decided
    each, both = other.policy.alpha, report.policy.alpha + other.policy.alpha
    return (
        f"{decided} Each had its own budget, and its own probability of any wrong verdict: at most"
        f" {wording.percent(each)}, for both together at most {wording.percent(both)}."
    )


def cost_sentence(report: Report) -> str:
    """Return how long a gate took, and the exit code that it ended with."""
    took = ""
    if isinstance(report, GateReport):
        took = f"{'was measured in' if report.from_ledger else 'took'} {_time_taken(report)} and "
    if isinstance(report, GateReport) and report.unrecorded is not None:
        took += "could not be recorded, and "
    # Where it is one of two, the command ends with the exit code of both.
    alone = isinstance(report, GateReport) and (report.release or report.against)
    whose = f"{'The gate' if took else 'It'} {took}{'by itself ' if alone else ''}"
    return f"{whose}ends with exit code {report.exit_code}."


def reading_guide(report: GateReport, names: Names) -> str:
    """Return how to read the table: its numbers, their confidence, and the margins."""
    policy = report.policy
    which = "benchmarks that gate," if wording.some_do_not_gate(report.comparisons) else "benchmarks"
    confidence = wording.percent(1 - policy.alpha)
    together = f" for all {policy.family} {which} at once" if policy.family > 1 else ""
    grouped = [one for one in report.comparisons if one.estimate and one.estimate.unit == "preloaders"]
    alike = f"Launches of {', '.join(_name(one, names) for one in grouped)} were alike in groups, and its"
    sentences = (
        "Base and head are the time of one call. Change is head against base.",
        f"The true change lies within the interval, with {confidence} confidence{together}.",
        "A launch is a new process of each side.",
        _of_typical_calls(report.comparisons),
        f"{alike} interval is wider for that." if grouped else "",
        _margins(report.comparisons, names),
        *_meanings(report),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _meanings(report: GateReport) -> Iterator[str]:
    """Yield the meanings of the verdicts that occur, and which of them is enough for the whole gate's."""
    present = {one.verdict for one in report.comparisons}
    limit = "margin" if report.policy.fail_on == "margin" else "noise floor"
    for verdict, meaning in _MEANINGS.items():
        # Where only what is proven fails, the noise floor takes the place of the margin.
        if verdict in present and (verdict != "UNCHANGED" or limit == "margin"):
            yield f"{wording.shown(verdict)} means that {meaning.format(limit=limit)}."


def _name(one: Comparison | ExactComparison, names: Names) -> str:
    name = one.benchmark.name
    return names.get(name) or short_names([name])[name]


def _doubtful_gains(report: Report, names: _Named) -> str:
    """Return which benchmarks became faster, and why that may be no gain: nothing else is as important."""
    faster = [one for one in wording.in_order(report.comparisons) if one.verdict == "IMPROVED"]
    text = ""
    if moved := [one for one in faster if one.costs_more_cpu]:
        ratios = _named(
            moved,
            names,
            lambda one: f" (×{one.cpu_ratio:.2g}, wall time {wording.change_text(one.estimate)})",
        )
        where = "" if names is None else ", in all threads and processes of a call together"
        text = f"MORE CPU TIME in less wall time{where}: {ratios or counted(len(moved), 'benchmark')}. "
    if doubtful := [one for one in faster if wording.doubts_text(one)]:
        reasons = _named(
            doubtful, names, lambda one: f" ({wording.change_text(one.estimate)}): {wording.doubts_text(one)}"
        )
        text += f"DOUBTFUL GAIN: {reasons or counted(len(doubtful), 'benchmark')}. "
    return text


def _other_results(report: Report, names: Names) -> str:
    """Return which benchmarks give another result without being faster."""
    others = [
        one
        for one in wording.in_order(report.comparisons)
        if one.verdict not in wording.GAINS and any(doubt.kind == "other result" for doubt in one.doubts)
    ]
    if not others:
        return ""
    more = f", and {len(others) - 1} more" if len(others) > 1 else ""
    named = _named(others[:1], names, lambda one: f" ({wording.doubts_text(one)})")
    return f"Other results: {f'{named}{more}' if named else counted(len(others), 'benchmark')}."


def _work_before(report: Report, names: Names) -> str:
    """Return what gains rest on that is done before the calls, which may be honest."""
    known = {
        one.benchmark.name: f": {doubt.text}"
        for one in report.comparisons
        for doubt in one.doubts
        if doubt.kind == "before its calls"
    }
    those = [one for one in wording.in_order(report.comparisons) if one.benchmark.name in known]
    named = _named(those, names, lambda one: known[one.benchmark.name])
    return f"Work before the calls: {named}." if known else ""


def _rule(report: Report, causes: Sequence[Comparison]) -> str:
    verdict = {EXIT_REGRESSED: "REGRESSED", EXIT_INCONCLUSIVE: "INCONCLUSIVE"}.get(report.exit_code)
    if not any(one.verdict == verdict for one in causes):
        return ""
    limit = _range(report.policy.threshold(one.margin) for one in causes)
    if report.policy.fail_on == "proven":
        return f'Only what is proven to be slower by more than {limit} fails (fail_on = "proven").'
    wide = any(one.estimate and one.estimate.ratio - 1 > _WIDE * (one.estimate.low - 1) for one in causes)
    stops = "; measuring stops once a larger one is sure" if wide and verdict == "REGRESSED" else ""
    ended = ""
    if verdict == "INCONCLUSIVE" and isinstance(report, GateReport) and not report.cut_off:
        ended = f" The budget of {human_seconds(report.budget_s)} is too short."
    return f"A slowdown of up to {limit} would pass{stops}.{ended}"


def _left_to_ci(report: Report) -> str:
    undecided = isinstance(report, GateReport) and report.exit_code == EXIT_INCONCLUSIVE
    return "In CI an undecided gate fails." if undecided else ""


def _decision(report: Report) -> str:
    release = report.release if isinstance(report, GateReport) else None
    return decision_word(report) + (f" against {release}" if release else "")


def _judged(report: Report) -> Report:
    if not isinstance(report, GateReport) or report.unrecorded is None:
        return report
    return replace(report, exit_code=exit_code((*report.comparisons, *report.exact)))


def _sureness(report: Report, *, brief: bool) -> Iterator[str]:
    """Yield the probability of an error, and whether anything was recorded."""
    answered = not brief or report.exit_code != EXIT_NOT_MEASURED
    found = wording.benchmarks_of(report.comparisons)
    answered &= not all(one.verdict in ("SAME CODE", "NOT REACHED") for one in found) or not found
    if answered and (found or not report.exact):
        # Alpha is not shared with an earlier or a later comparison of what the ledger has by then, and what
        # does not gate has no share of it.
        of = " of those that gate" if wording.some_do_not_gate(report.comparisons) else ""
        of += " of this one comparison" if isinstance(report, ApartReport) else ""
        yield f"The probability of any wrong verdict{of} is at most {wording.percent(report.policy.alpha)}."
    if brief and isinstance(report, GateReport) and report.unrecorded is not None:
        yield "It could not be recorded."


def _time_taken(report: GateReport) -> str:
    whole = human_seconds(report.wall_s) + wording.after_waiting(report.waited_s)
    if report.timed_s is None or report.counted_s is None or report.counted_s < _WORTH_A_WORD_S:
        return whole
    timed, counted_ = human_seconds(report.timed_s), human_seconds(report.counted_s)
    if not any(one.estimate for one in report.comparisons):
        return f"{whole} (counting {counted_})"
    return f"{whole} (timing {timed} of a budget of {human_seconds(report.budget_s)}, counting {counted_})"


def _reasons(
    report: Report, causes: Sequence[Comparison], counts: Sequence[ExactComparison], names: _Named
) -> Iterator[str]:
    """Yield the reasons for the decision: that it edits its own measuring, then those of times and counts."""
    others = [one for one in causes if one.benchmark.name != MEASURING]
    if len(others) < len(causes):
        yield "the change edits how it is measured, which no person has accepted"
    if others or counts or not causes:
        yield from _of_results(report, others, counts, names)


def _of_results(
    report: Report, causes: Sequence[Comparison], counts: Sequence[ExactComparison], names: _Named
) -> Iterator[str]:
    """Yield the reasons for the decision, in times and in counts."""
    excused = [one for one in causes if wording.is_excused(one)]
    faked = [one for one in causes if one.verdict == "OTHER RESULT"]
    if deciding := [one for one in causes if one not in excused and one not in faked]:
        yield _of_times(report, deciding, names)
    if faked:
        described = (
            ""
            if names is None
            else ": "
            + _named(
                faked,
                names,
                lambda one: f" ({wording.change_text(one.estimate)}): {wording.doubts_text(one)}",
            )
        )
        yield f"{counted(len(faked), 'benchmark')} became faster with another result{described}"
    if excused:
        limits = (
            _open(report, excused, None)
            if names is None
            else _named(excused, names, lambda one: f" ({wording.open_text(one)})")
        )
        settings = " and ".join(sorted({one.excused_by for one in excused if one.excused_by is not None}))
        verb = "is" if len(excused) == 1 else "are"
        yield f"{_some(report, excused)} {verb} undecided and let pass by {settings}: {limits}"
    accepted = [*_of_accepted(report, counts, names)] if report.exit_code == EXIT_PASS else []
    if not causes and not counts and not accepted:
        yield _without_cause(report)
    if report.exit_code == EXIT_REGRESSED:
        named = [one for one in counts if one.metric == COLD_START or one.metric.name == KEPT]
        counts = [one for one in counts if one not in named]
        yield from _of_named_counts(named, names)
    several = counted(len(counts), "count")
    if counts and report.exit_code == EXIT_REGRESSED:
        they = "it" if len(counts) == 1 else "they"
        beyond = _beyond(counts) or f", though {they} may not"
        yield f"{several} grew{beyond}{_largest(counts, names, limited=beyond == _BEYOND_ITS_OWN)}"
    elif counts and report.exit_code == EXIT_NOT_MEASURED:
        yield f"{several} that {'decides' if len(counts) == 1 else 'decide'} could not be counted on head"
    elif counts and report.exit_code == EXIT_INCONCLUSIVE:
        overlap = f"values of both sides overlap{_largest(counts, names)}"
        why = "the budget was over" if all(one.base is None for one in counts) else overlap
        yield f"whether {several} grew is open: {why}"
    elif counts:
        grew = "the count did not grow" if len(counts) == 1 else f"none of {several} grew"
        kinds = [*dict.fromkeys(map(count_title, counts))]
        yield f"{grew}{_beyond(counts)} ({', '.join([*kinds[:2], '…'][: len(kinds)])})"
    yield from accepted


def _of_times(report: Report, causes: Sequence[Comparison], names: _Named) -> str:
    """Return which benchmarks decided and how."""
    some = _some(report, causes)
    if report.exit_code == EXIT_PASS:
        none = (
            "the benchmark did not become" if len(causes) == 1 else f"none of {len(causes)} benchmarks became"
        )
        typical = sum(wording.limit_of_all_calls(one) is not None for one in causes)
        these = "" if typical == len(causes) else f"{typical} of them "
        which = f", {these}rare slow calls aside" if typical else ""
        return f"{none} slower by more than {_range(one.margin for one in causes)}{which}"
    if report.exit_code == EXIT_REGRESSED:
        slowest = sorted(causes, key=lambda one: -one.estimate.ratio if one.estimate else 0.0)
        if names is None:
            most = slowest[0].estimate
            if len(causes) == 1:
                return f"{some} is {wording.slower_text(most)}"
            return (
                f"{some} became slower, by up to {wording.change_text(most)} ({wording.interval_text(most)})"
            )
        slower = _named(slowest, names, lambda one: f" is {wording.slower_text(one.estimate)}")
        return slower if len(causes) == 1 else f"{some} became slower: {slower}"
    if report.exit_code == EXIT_INCONCLUSIVE:
        return f"{some} need{'s' * (len(causes) == 1)} more time ({_open(report, causes, names)})"
    named = _named(causes, names, lambda one: f" {_INSTEAD[one.verdict]}")
    return f"{some} could not be compared" + (f": {named}" if named else "")


def _open(report: Report, causes: Sequence[Comparison], names: _Named) -> str:
    """Return which benchmarks are open, or how far, and of many that were not reached how many."""
    left = [one for one in causes if one.verdict == "NOT REACHED"]
    many = len(left) > _MOST_NAMES and isinstance(report, GateReport)
    shown = [one for one in causes if one not in left] if many else causes
    if names is None:
        known = [one for one in shown if one.estimate and wording.at_most(one.estimate) != wording.UNKNOWN]
        worst = max(
            known,
            key=lambda one: one.estimate.high if one.estimate else 0.0,
            default=shown[0] if shown and not many else None,
        )
        reached = [f"{len(left)} not reached"] if many else []
        return "; ".join([*([wording.open_text(worst)] if worst else []), *reached])
    parts = [f"{_name(one, names)}, {wording.open_text(one)}" for one in shown[:_MOST_NAMES]]
    if len(shown) > _MOST_NAMES:
        parts.append(f"and {len(shown) - _MOST_NAMES} more")
    if many and isinstance(report, GateReport):
        parts.append(f"{len(left)} were not reached in the budget of {human_seconds(report.budget_s)}")
    return "; ".join(parts)


def _of_accepted(report: Report, counts: Sequence[ExactComparison], names: _Named) -> Iterator[str]:
    """Yield what fails the gate but for an acceptance; ``counts`` are those that pass by themselves."""
    slower = [one for one in report.comparisons if one.verdict == "REGRESSED" and one.accepted is not None]
    if slower:
        these = _named(slower, names, lambda one: f" is {wording.slower_text(one.estimate)}")
        yield f"{these or f'{_some(report, slower)} became slower'}, which was accepted"
    accepted = [one for one in report.exact if one.accepted is not None]
    grown = [one for one in accepted if one.head is not None]
    lost = [one for one in accepted if one.head is None]
    for found, what in ((grown, "grew"), (lost, "could not be counted on head")):
        if found:
            others = counted(len(found), "other" if counts else "count")
            which = _largest(found, names) if found is grown else ""
            yield f"{others} {what} and {'was' if len(found) == 1 else 'were'} accepted{which}"


def _in_typical_calls(causes: Sequence[Comparison], names: Names) -> str:
    """Return what bounds the mean of all calls, where only the lower-quartile call was judged."""
    typical = [one for one in causes if wording.limit_of_all_calls(one) is not None]
    if not typical:
        return ""
    most = max(typical, key=lambda one: one.other.high if one.other else 0.0)
    which = f"{len(typical)} of {len(causes)} benchmarks are" if len(causes) > 1 else "It is"
    name = "" if len(causes) == 1 else f" ({_name(most, names)})"
    limit = wording.upper_text(most.other)
    mean = "is not judged: " + (
        "any change of it is possible" if limit == wording.UNKNOWN else f"up to {limit} cannot be excluded"
    )
    return (
        f"{which} judged by the lower-quartile call (a quarter are faster). The mean, which rare slow calls"
        f" make noisy, {mean}{name}."
    )


def _some(report: Report, comparisons: Sequence[Comparison]) -> str:
    # Numbers of an asv suite are no times, and those that were measured are among the counts.
    every = [
        one
        for one in wording.benchmarks_of(report.comparisons)
        if one in comparisons or not wording.is_number(one)
    ]
    return f"{len(comparisons)} of {counted(len(every), 'benchmark')}"


def _named(causes: Sequence[_Judged], names: _Named, words: Callable[[_Judged], str]) -> str:
    if names is None:
        return ""
    first = [f"{_name(one, names)}{words(one)}" for one in causes[:_MOST_NAMES]]
    more = [f"and {len(causes) - _MOST_NAMES} more"] if len(causes) > _MOST_NAMES else []
    return ", ".join(first + more)


def _largest(counts: Sequence[ExactComparison], names: _Named, *, limited: bool = False) -> str:
    if names is None:
        return ""
    most = max(counts, key=lambda one: one.ratio or math.inf)
    amounts = (amount_text(amount, most.metric.unit) for amount in (most.base, most.head))
    limit = f", {100 * most.margin:.3g} % more is allowed" if limited else ""
    return f" ({_name(most, names)}: {count_title(most)} from {' to '.join(amounts)}{limit})"


def _beyond(counts: Sequence[ExactComparison]) -> str:
    """Return by how much counts may grow: " by more than the 5 % allowed", "" where they may not."""
    limits = {one.margin for one in counts}
    if limits == {0.0}:
        return ""
    return f" by more than the {100 * max(limits):.3g} % allowed" if len(limits) == 1 else _BEYOND_ITS_OWN


def _of_named_counts(counts: Sequence[ExactComparison], names: _Named) -> Iterator[str]:
    """Yield what has a sentence of its own: first calls that are slower, and what is kept."""
    if calls := [one for one in counts if one.metric == COLD_START]:
        starts = "the first call is" if len(calls) == 1 else f"{len(calls)} first calls are"
        yield f"{starts} slower in every launch{_largest(calls, names)}"
    if kept := [one for one in counts if one.metric.name == KEPT]:
        yield (
            _named(kept, names, lambda one: f" {_kept_text(one)}")
            or f"{counted(len(kept), 'benchmark')} kept more memory"
        )


def _kept_text(one: ExactComparison) -> str:
    """Return how much more is kept: "keeps 4.0 KiB more a call (dict, cache.py:31)"."""
    more = amount_text((one.head or 0.0) - (one.base or 0.0), one.metric.unit)
    causes = [", ".join(filter(None, (cause.what, cause.place))) for cause in one.causes[:1]]
    where = "".join(f" ({text})" for text in causes)
    return f"keeps {more} more a {'call' if '::' in one.benchmark.name else 'step'}{where}"


def _without_cause(report: Report) -> str:
    """Return why no benchmark decided."""
    if isinstance(report, GateReport) and report.cut_off:
        return "the gate was cut off before all was measured"
    if any(one.verdict == "SAME CODE" for one in report.comparisons):
        return _without_changed_code(report)
    if report.comparisons and all(one.verdict in _NOTHING_TO_COMPARE for one in report.comparisons):
        kinds = sorted({_NOTHING_TO_COMPARE[one.verdict] for one in report.comparisons})
        skipped = (one.message for one in report.comparisons if one.verdict == "SKIPPED")
        reasons = sorted({message for message in skipped if message})
        why = f" ({reasons[0]})" if len(reasons) == 1 and len(kinds) == 1 else ""
        return f"nothing was compared, since every benchmark {' or '.join(kinds)}{why}"
    if uncounted := uncounted_instructions(report.exact):
        return f"the instructions of no benchmark could be counted ({uncounted[0].message})"
    if report.exact and report.exit_code == EXIT_NOT_MEASURED and not report.comparisons:
        why = next((one.message for one in report.exact if one.message), "no count decides")
        return f"nothing that decides could be counted on both sides ({why})"
    gating = any(one.gating for one in report.comparisons) or any(one.gating for one in report.exact)
    nothing = report.exit_code == EXIT_PASS or not report.comparisons or not gating
    return "nothing was compared" if nothing else "the notes give the reason"


def _but_not_covered(report: Report) -> str:
    """Return a warning where a gate passes whose timed calls run no changed function."""
    coverage = report.coverage if isinstance(report, GateReport) else None
    timed = any(one.estimate for one in report.comparisons)
    if coverage is None or report.exit_code != EXIT_PASS or not timed:
        return ""
    none = coverage.functions and all(one.known and one.runs != "timed" for one in coverage.functions)
    return ", but no timed call runs a changed function" if none else ""


def _without_changed_code(report: Report) -> str:
    return "no benchmark runs any changed code, so nothing was timed" + (
        ", and --uncovered asks that all of it is measured" if report.exit_code == EXIT_NOT_MEASURED else ""
    )


def _range(changes: Iterable[float]) -> str:
    margins = sorted(set(changes))
    if len(margins) == 1:
        return wording.percent(margins[0])
    return (
        f"their margins ({wording.percent(margins[0]).removesuffix(' %')} to {wording.percent(margins[-1])})"
    )


def _is_cause(comparison: Comparison, code: int) -> bool:
    return (
        wording.decides(comparison)
        and comparison.verdict not in _NOTHING_TO_COMPARE
        and exit_code((comparison,)) == code
    )


def _of_typical_calls(comparisons: Sequence[Comparison]) -> str:
    typical = [found for found in comparisons if found.estimate and found.estimate.calls == "typical"]
    if not typical:
        return ""
    short = "" if len(typical) == len(comparisons) else " where calls are short"
    bounded = any(map(wording.limit_of_all_calls, typical))
    more = "; the mean, which includes rare slow calls, scatters more" if bounded else ""
    return f"Times are of the lower-quartile call (a quarter are faster){short}{more}."


def _margins(comparisons: Sequence[Comparison], names: Names) -> str:
    """Return the margin of most benchmarks, and the other margins with their benchmarks."""
    if not comparisons:
        return ""
    by_margin: dict[float, list[str]] = defaultdict(list)
    for found in comparisons:
        by_margin[found.margin].append(_name(found, names))
    usual, *others = sorted(by_margin, key=lambda margin: -len(by_margin[margin]))
    exceptions = "".join(
        f", {wording.percent(margin)} for {', '.join(by_margin[margin])}" for margin in others
    )
    return f"The margin is {wording.percent(usual)}{exceptions}: a slowdown of up to it passes."
