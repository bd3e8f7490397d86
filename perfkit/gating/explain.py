"""What a report has besides the verdicts: why a benchmark became slower, and notes on the run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path, PurePosixPath

from perfkit.agent.clock import UNREPORTED
from perfkit.gating.affected import Changed, changed_lines, first_changed_line
from perfkit.gating.counter_verdicts import Disagreement, disagreements
from perfkit.gating.coverage import find_changed, project_folder
from perfkit.gating.judge import doubts
from perfkit.gating.rows import Prior
from perfkit.gating.rules import ComparedBenchmark
from perfkit.gating.run import SequentialComparison
from perfkit.gating.sides import OpenSides
from perfkit.gating.survey import Survey
from perfkit.identity import shown_run_id
from perfkit.model import ABSENT, COLD_AUTOTUNING, COLD_COMPILING, COLD_START, SIDES, Row, Side
from perfkit.model.comparisons import Comparison, ComparisonProgress, ExactComparison, Explanation
from perfkit.model.policies import What
from perfkit.model.profiles import Section
from perfkit.model.readings import Reading
from perfkit.profiling.diff.attribution import (
    Lines,
    Work,
    changed_only,
    find_suspect,
    function_section,
    quietest,
)
from perfkit.profiling.diff.difference import findings_beside
from perfkit.profiling.read.names import CodeNames
from perfkit.profiling.read.pstats_file import read_pstats
from perfkit.repo.checkout import subfolder
from perfkit.repo.environments import Environments, changed_packages, unnamed_changes
from perfkit.repo.sides import changed_files
from perfkit.runner.lockstep.residency import IN_USE, Residents
from perfkit.runner.lockstep.untimed import ProfiledTurn, profile_sides
from perfkit.units import human_seconds, listed

_MOST_LISTED = 5
# Fewer calls of a short benchmark would show how warm the processor is, rather than what moved.
_PROFILED_S, _MOST_CALLS = 0.5, 20_000
_MOST_PROFILED_NO_FASTER = 3
# Profiling what regressed may take this long, or this share of the budget; one benchmark always is.
_LEAST_PROFILING_S, _PROFILING_SHARE = 10.0, 0.1
_COLD = (COLD_START, COLD_COMPILING, COLD_AUTOTUNING)
_HAPPENED: Mapping[What, str] = {
    "clock set": "the machine's clock was set by {:+.1f} s",
    "suspended": "the machine was suspended for {:.1f} s",
    "stolen": "other guests of the host took up to {:.0%} of the cores",
    "other work": "other work took up to {:.0%} of the cores",
    "throttled": "the quota of CPU time was used up for {:.1f} s",
    "stood still": "a side stood still for {:.1f} s in the midst of a round",
}


def explain_benchmarks(
    comparisons: Sequence[Comparison],
    exact: Sequence[ExactComparison],
    surveyed: Survey,
    sides: OpenSides,
    progress: ComparisonProgress,
    *,
    budget_s: float,
) -> tuple[tuple[Explanation, ...], tuple[str, ...]]:
    """Profile what regressed and return what moved, and notes on what there was no time to profile.

    Where a time did not follow its counts is explained too. Some benchmarks of much less work that became no
    faster are profiled as well: where their time is spent is shown. What could not be profiled is left out,
    unless something else was found.
    """
    known = {one.benchmark.name: one for one in surveyed.compared}
    apart = {one.benchmark: one for one in disagreements(comparisons, exact)}
    regressed = {one.benchmark.name for one in comparisons if one.verdict == "REGRESSED"}
    no_faster = {*[name for name, one in apart.items() if one.elsewhere][:_MOST_PROFILED_NO_FASTER]}
    explained: dict[str, Explanation | None] = {}
    notes: tuple[str, ...] = ()
    if regressed or no_faster:
        progress.info(f"profiling what {'regressed' if regressed else 'became no faster'}")
        changed = surveyed.changed or find_changed(sides, surveyed.laid, sides.project.output_paths)
        wanted = [one for one in comparisons if one.benchmark.name in regressed | no_faster]
        began = time.monotonic()
        until = began + max(_LEAST_PROFILING_S, _PROFILING_SHARE * budget_s)
        for one in wanted:
            now = time.monotonic()
            # The next one takes about as long as those before it.
            if explained and now + (now - began) / len(explained) > until:
                notes = (f"{len(explained)} of {len(wanted)} benchmarks were profiled: no time was left",)
                break
            name = one.benchmark.name
            explained[name] = explain_benchmark(known[name], sides, changed=changed, call_s=one.head_s)
    benchmarks = dict.fromkeys([*explained, *apart])
    found = (_with_disagreement(explained.get(name), apart.get(name)) for name in benchmarks)
    return tuple(explanation for explanation in found if explanation is not None), notes


def _with_disagreement(explained: Explanation | None, found: Disagreement | None) -> Explanation | None:
    """Return an explanation that begins with how time and counts disagree, unless it names the cause."""
    if found is None:
        return explained
    if explained is None:
        return Explanation(benchmark=found.benchmark, section=None, findings=(found.sentence,))
    if found.same_counts and explained.suspect is not None:
        return explained
    text = found.sentence
    if found.elsewhere and explained.section is not None:
        text += _where_time_is_spent(explained.section)
    return replace(explained, findings=(text, *explained.findings))


def _where_time_is_spent(section: Section) -> str:
    part = max(section.parts, key=lambda one: one.amount.head_s, default=None)
    if part is None or not section.whole.head_s:
        return ""
    place = f" ({part.place})" if part.place else ""
    return f", look at {part.name}{place}: {100 * part.amount.head_s / section.whole.head_s:.0f} % of a call"


def explain_benchmark(
    one: ComparedBenchmark, sides: OpenSides, *, changed: Changed, call_s: float | None
) -> Explanation | None:
    """Profile a benchmark, whose call takes ``call_s`` seconds, on both sides and return what moved.

    It is None where that failed.
    """
    name = one.benchmark.name
    calls = max(1, min(_MOST_CALLS, round(_PROFILED_S / (call_s or _PROFILED_S))))
    try:
        turns = profile_sides(
            name,
            lambda side: sides.launcher.start(side, nodes=[name]),
            calls=calls,
            limit_s=one.limit_s,
            apart=sides.launcher.residents.are_apart(name),
        )
    except OSError:
        # The verdict is known by now, and a full disk must not end the gate before it is shown.
        return None
    if turns is None:
        return None
    (base, base_calls), (head, head_calls) = (
        _reading(side, turns[side], sides.roots.root(side)) for side in SIDES
    )
    work = Work(unit="call", base=base_calls, head=head_calls)
    section = function_section(base, head, work)
    old, new = (_own_lines(sides, changed_lines(changed, side)) for side in SIDES)
    suspect = find_suspect(section, changed_only(base, old), changed_only(head, new), work)
    if suspect is not None:
        file, _, line = suspect.place.rpartition(":")
        first = first_changed_line(changed, (project_folder(sides) / file).as_posix(), int(line))
        suspect = replace(suspect, place=f"{file}:{first}")
    return Explanation(
        benchmark=name,
        section=section,
        findings=tuple(findings_beside(section, work)),
        suspect=suspect,
    )


def _own_lines(sides: OpenSides, lines: Lines) -> Lines:
    """Return lines by the names that files have in a profile, which are relative to the project."""
    folder = project_folder(sides)
    return {
        PurePosixPath(file).relative_to(folder).as_posix(): found
        for file, found in lines.items()
        if PurePosixPath(file).is_relative_to(folder)
    }


def _reading(side: Side, turns: Sequence[ProfiledTurn], root: Path) -> tuple[Reading, int]:
    code = CodeNames(root=str(root))
    return quietest([(read_pstats(turn.stats, side, code), turn.calls) for turn in turns])


def notes_on(
    sides: OpenSides, surveyed: Survey, *, prior: Prior, loaded: AbstractSet[str] | None
) -> Iterator[str]:
    """Yield notes on the sides, on launches that could not be made as intended, and on gates before this one.

    ``loaded`` are the sides' files that were imported, None where that is not known.
    """
    yield from (*sides.pair.remarks, *surveyed.notes, *sides.missing.notes())
    yield from _on_environments(sides.environments)
    launcher = sides.launcher
    if launcher.why_no_fork:
        yield f"fresh processes instead of forked ones, which is slower: {launcher.why_no_fork}"
    if launcher.why_not_served:
        yield f"each launch imported the code anew, which is slower: {launcher.why_not_served}"
    if launcher.allocator_kept is False:
        yield "the allocator does not obey MALLOC_TRIM_THRESHOLD_: page faults add to the noise"
    if prior.runs:
        runs = ", ".join(map(shown_run_id, prior.runs))
        yield f"continues earlier gates of the same two commits: {runs}"
    yield from _unseen_changes(sides, surveyed, loaded)


def _on_environments(environments: Environments) -> Iterator[str]:
    """Yield notes on packages that differ unasked, and on those that conflict."""
    if not environments:
        return
    changes = changed_packages(environments)
    besides = [
        f"{name} ({old or ABSENT}, {new or ABSENT})"
        for name in unnamed_changes(environments)
        for old, new in [changes[name]]
    ]
    if besides:
        yield (
            "besides what was asked for, other packages differ (base, head):"
            f" {listed(besides, _MOST_LISTED)}; what is found may be theirs"
        )
    if environments["base"].python != environments["head"].python:
        yield f"two versions of Python: {environments['base'].python}, {environments['head'].python}"
    if not changes and environments["base"].python == environments["head"].python:
        yield "no package differs between base and head: what is found is no package's"
    for side in SIDES:
        yield from (f"{side}: {conflict}" for conflict in environments[side].conflicts)


def why_not_measured(timing: SequentialComparison, *, budget_s: float) -> Iterator[str]:
    """Yield a note on the benchmarks that the budget was too small for, or that a regression cut short."""
    if timing.stopped:
        yield "stopped at the first regression (--fail-fast)"
        return
    left = [one.benchmark.name for one in timing.comparisons() if one.verdict == "NOT REACHED"]
    if left:
        changed = {name for name, state in timing.states.items() if state.compared.changed}
        yield timing.forecast(left).not_reached(
            len(left),
            of=len(timing.states),
            changed=None if len(changed) in (0, len(timing.states)) else len(changed.intersection(left)),
            budget_s=budget_s,
        )


def waiting_threads(timing: SequentialComparison, *, threads: int) -> Iterator[str]:
    """Yield a note on the benchmarks whose ``threads`` seem to wait for one another."""
    found = {name: state.erratic for name, state in timing.states.items() if state.erratic is not None}
    if threads > 1 and found:
        low, high = (f"{bound(found.values()):.0f}" for bound in (min, max))
        names = ", ".join(name.rpartition("::")[2] for name in found)
        yield (
            f"{names}: the slowest round of a launch takes {low if low == high else f'{low} to {high}'} times"
            f" as long as the fastest, as where the {threads} threads of torch wait for one another: try"
            " OMP_NUM_THREADS=1"
        )


def doubtful_assumptions(timing: SequentialComparison) -> Iterator[str]:
    """Yield a note on each assumption that the launches of benchmarks contradict."""
    found: dict[str, list[str]] = {}
    for name, state in timing.states.items():
        if state.failure is None:
            for doubt in doubts(state.pairs, timing.judge(name).estimate):
                found.setdefault(doubt, []).append(name.rpartition("::")[2])
    for doubt, names in found.items():
        yield (
            f"{', '.join(names)}: {doubt}. Intervals assume otherwise, so these may be wrong more often than"
            " alpha: measure again at a quieter time"
        )


def disturbed_launches(timing: SequentialComparison) -> Iterator[str]:
    """Yield a note on what happened during launches that makes their times unlike others, and how often."""
    launches: dict[What, set[int]] = {}
    most: dict[What, float] = {}
    for state in timing.states.values():
        for launch, happened in state.disturbed.items():
            for one in happened:
                launches.setdefault(one.what, set()).add(launch)
                most[one.what] = max(most.get(one.what, 0.0), one.amount, key=abs)
    if launches:
        events = (
            f"{_HAPPENED[what].format(most[what])} (in {_launches(found)})"
            for what, found in launches.items()
        )
        yield (
            f"the machine was disturbed: {'; '.join(events)}. Both sides took turns in each of them, so that"
            " the comparison holds; the ledger marks them"
        )


def on_the_device(residents: Residents) -> Iterator[str]:
    """Yield notes on benchmarks whose sides were not on the device together, and on what a check found."""
    by_reason: dict[str, list[str]] = {}
    for name, why in residents.alone.items():
        by_reason.setdefault(why, []).append(name.rpartition("::")[2])
    for why, names in by_reason.items():
        alone = "ran alone" if why == IN_USE else "had the device to itself"
        yield (
            f"{listed(names, _MOST_LISTED)}: each side {alone}, and the launches of both alternated,"
            f" since {why}"
        )
    found = residents.presence
    if found is not None:
        text = "; ".join(
            f"{100 * one.low:+.2f} to {100 * one.high:+.2f} % on {side}"
            for side, one in found.effects.items()
        )
        name = found.node.rpartition("::")[2]
        if found.disturbs:
            meant = "it disturbs"
        else:
            meant = (
                "it does not disturb" if found.is_small else "so few rounds do not show whether it disturbs"
            )
        yield f"rounds of {name} beside the other side on the device took longer by {text}: {meant}"
    elif residents.not_checked:
        yield (
            f"it was not checked whether the sides disturb one another on the device: {residents.not_checked}"
        )


def cold_starts(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a note on what first calls on an accelerator spent on compiling, by the rows of a run."""
    found: dict[str, dict[Side, dict[str, list[float]]]] = {}
    for row in rows:
        metric, side = row.outcome.metric, row.placement.side
        if metric in _COLD and side is not None:
            known = found.setdefault(row.outcome.benchmark.name, {}).setdefault(side, {})
            known.setdefault(metric.name, []).extend(row.outcome.values)
            if UNREPORTED in row.policy.marks:
                known.setdefault(UNREPORTED, [])
    for name, sides in found.items():
        if not any(known.keys() - {COLD_START.name} for known in sides.values()):
            continue
        text = "; ".join(
            f"{side} {_cold_start(sides[side])}" for side in SIDES if COLD_START.name in sides.get(side, {})
        )
        yield f"first call of {name.rpartition('::')[2]}: {text}"


def _cold_start(metrics: Mapping[str, Sequence[float]]) -> str:
    """Return the median of first calls and of their known parts, in words."""
    whole, *parts = (statistics.median(metrics[one.name]) if one.name in metrics else None for one in _COLD)
    named = [
        f"{word} {human_seconds(seconds)}"
        for word, seconds in zip(("compiling", "autotuning"), parts, strict=True)
        if seconds
    ]
    named += [UNREPORTED] if UNREPORTED in metrics else []
    number = len(metrics[COLD_START.name])
    launches = "1 launch" if number == 1 else f"{number} launches"
    return f"{human_seconds(whole)} (median of {launches}{'; ' if named else ''}{', '.join(named)})"


def _launches(found: AbstractSet[int]) -> str:
    return "1 launch" if len(found) == 1 else f"{len(found)} launches"


def _unseen_changes(sides: OpenSides, surveyed: Survey, loaded: AbstractSet[str] | None) -> Iterator[str]:
    """Yield a note on the changed Python files that no measured process ran, where that is known."""
    failed = any(one.verdict == "FAILED" and one.benchmark.is_file for one in surveyed.findings)
    # A file that broke the collection was loaded.
    if loaded is None or failed:
        return
    folder = subfolder(sides.project, sides.pair, "head")
    target = sides.scope.target
    ran = (target.script,) if target is not None and target.script is not None else ()
    seen = {(folder / file).as_posix() for file in (*loaded, *ran)}
    seen.update(edit.path for edit in surveyed.measuring)
    unseen = [file for file in changed_files(sides.pair) or () if file.endswith(".py") and file not in seen]
    if unseen:
        yield (f"changed, but loaded by no benchmark: {listed(unseen, _MOST_LISTED)}; no verdict covers them")
