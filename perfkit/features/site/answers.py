"""The first lines of pages: how much was judged, whether a benchmark changed, since when, what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfkit.features.site.series import (
    Border,
    Series,
    State,
    is_judged,
    status_words,
)
from perfkit.model.history import ChangePoint, CommitFacts
from perfkit.report import history as wording
from perfkit.report.history import RUNS_TO_JUDGE, short_sha
from perfkit.units import counted

Commits = Mapping[str, CommitFacts]
# What an environment changed of is named by so many facts.
_MOST_FACTS = 3
_FIRST_WORDS = {"pattern": "Not lastingly", "maybe": "Perhaps", "moved": "Yes, with the machine"}
_WAIT = "Wait for more runs, as `pytest --benchmark-autosave` makes them"
_BY_TURNS = "both commits by turns, which names the line that got slower:"
_IN_ONE_ENVIRONMENT = "To see whether the code has a part in it, measure both commits in one environment:"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Whether a benchmark changed and since when, what its environment did, and what to do about it."""

    changed: str
    to_do: str
    command: str | None = None
    environment: str | None = None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """How many benchmarks have runs enough to be judged, of how many, and why the others have not."""

    benchmarks: int
    whole: int
    reasons: tuple[str, ...] = ()

    @property
    def left(self) -> int:
        """How many benchmarks cannot be judged yet."""
        return self.whole - self.benchmarks


def judged_of(by_benchmark: Mapping[str, Sequence[Series]]) -> Judged:
    """Return how many benchmarks can be judged by their first metric, on one machine or more."""
    found: Counter[str] = Counter()
    for series in by_benchmark.values():
        own = [one for one in series if one.metric == series[0].metric]
        found["" if any(map(is_judged, own)) else _lacks(own)] += 1
    reasons = tuple(f"{count} {reason}" for reason, count in found.most_common() if reason)
    return Judged(benchmarks=found[""], whole=sum(found.values()), reasons=reasons)


def _lacks(series: Sequence[Series]) -> str:
    """Return why a benchmark cannot be judged; it follows how many benchmarks have this reason."""
    if any(len(one.order) >= RUNS_TO_JUDGE for one in series):
        return "changed their own source since, so that the count of runs begins anew"
    if sum(len(one.order) for one in series) >= RUNS_TO_JUDGE:
        return f"with {RUNS_TO_JUDGE} runs in all, but fewer on each machine"
    commits = {sha for one in series for trend in one.trends for sha in trend.commits}
    return "measured at one commit only" if len(commits) == 1 else f"with fewer than {RUNS_TO_JUDGE} runs"


def verdict_line(judged: Judged, *, findings: int, slower: int) -> str:
    """Return the first line of the overview: what was found, and in how many of the benchmarks."""
    some = f"{judged.benchmarks} of {counted(judged.whole, 'benchmark')} judged"
    newest = f"{counted(slower, 'benchmark')} slower in the newest run alone"
    if findings:
        also = f", and {newest}" if slower else ""
        return f"Needs attention: {counted(findings, 'finding')}{also}; {some}"
    if slower:
        return f"{newest}; {some}"
    if not judged.benchmarks:
        return f"No benchmark can be judged yet: {judged.whole} measured, each in too few runs"
    if judged.left:
        return (
            f"Nothing needs attention in the {counted(judged.benchmarks, 'benchmark')} judged;"
            f" {judged.left} of {judged.whole} cannot be judged yet"
        )
    return f"Nothing needs attention: {some}"


def more_runs(commits: Commits, selection: str = "") -> str:
    """Return the command that measures commits of the past, until there are runs enough to judge."""
    places = [facts.place for facts in commits.values() if facts.place is not None]
    back = min(RUNS_TO_JUDGE - 1, max(places, default=RUNS_TO_JUDGE - 1))
    return f"perfkit backfill HEAD~{max(back, 1)}..HEAD{selection}"


def answer_of(series: Series, state: State, commits: Commits, *, selection: str, beyond: str) -> Answer:
    """Return the answers about a series; ``beyond`` is by how much its newest run is worse, or empty.

    ``selection`` are the options that limit a command to the benchmark.
    """
    border = None if series.border is None else _border_sentence(series.border, series, state, commits)
    words = _sentence(status_words(series, state, commits))
    if state.step is not None and state.kind in {"worse", "better", "moved", "accepted"}:
        found = _of_step(state.step, state, commits, selection)
    elif state.border is not None:
        found = Answer(
            changed=f"{words}. Whether the code did it is not known.",
            to_do=_IN_ONE_ENVIRONMENT,
            command=_gate(state.border.before, state.border.commit, selection),
        )
    elif state.kind == "few":
        found = Answer(
            changed=f"Not known yet: {RUNS_TO_JUDGE} runs are needed to find lasting changes, and it has"
            f" {len(series.last[0])}.",
            to_do="Measure commits of the past:",
            command=more_runs(commits, selection),
        )
    elif state.kind == "drift":
        drift = series.drifts[-1]
        found = Answer(
            changed=f"Yes, gradually: {wording.drift_sentence(drift)}.",
            to_do=f"Measure {_BY_TURNS}",
            command=_gate(drift.since, drift.until, selection),
        )
    elif beyond:
        found = _of_newest(series, beyond, selection)
    else:
        found = _of_kind(series, state, commits, words, selection)
    return replace(found, environment=border)


def _of_step(step: ChangePoint, state: State, commits: Commits, selection: str) -> Answer:
    """Return the answers about a change point."""
    changed, accept = (
        f"Yes: {_step_sentence(step, commits)}",
        f"`perfkit history accept {step.point_id} --reason TEXT`",
    )
    gate = _gate(step.last_before, step.first_after, selection)
    if state.kind == "worse":
        accept = f"If it is meant to be so: {accept}. If not, "
        if (step.commits or 0) > 1 and len(step.suspects) != 1:
            search = f"perfkit bisect --from-history {step.point_id}"
            return Answer(changed=changed, to_do=f"{accept}find the commit:", command=search)
        again = " again" if wording.gate_sentence(step) else ""
        return Answer(changed=changed, to_do=f"{accept}measure{again} {_BY_TURNS}", command=gate)
    if state.kind == "moved":
        return Answer(changed=changed, to_do=_IN_ONE_ENVIRONMENT, command=gate)
    nothing = f"Nothing; {accept} takes it off the list." if state.kind == "better" else "Nothing."
    return Answer(changed=changed, to_do=nothing)


def _of_newest(series: Series, beyond: str, selection: str) -> Answer:
    """Return the answers about a series whose newest run alone is worse."""
    trend, place = series.last
    newest = trend.commits[place]
    before = next((sha for sha in reversed(trend.commits[:place]) if sha != newest), None)
    runs = counted(len(trend), "run")
    return Answer(
        changed=f"Not lastingly in {runs}, but the newest run is {beyond} than the one before.",
        to_do=f"{_WAIT}, or decide it now:" if before else f"{_WAIT}.",
        command=_gate(before, newest, selection) if before else None,
    )


def _gate(base: str, head: str, selection: str) -> str:
    return f"perfkit gate --base {short_sha(base)} --head {short_sha(head)}{selection}"


def _of_kind(series: Series, state: State, commits: Commits, words: str, selection: str) -> Answer:
    """Return the answers of a series without an open change point."""
    if state.kind == "silent":
        return Answer(
            changed=f"Not known: {wording.silence_sentence(series.silences[-1])}.",
            to_do="Measure it again, or remove it: it may have been renamed, skipped or deleted.",
        )
    if state.kind in {"unclear", "better", "maybe", "moved", "pattern"} and series.rises:
        rise = series.rises[-1]
        found = _FIRST_WORDS.get(state.kind, "Probably")
        sentence, _, cause = wording.rise_sentence(rise).partition(". ")
        changed = f"{found}: {sentence.removeprefix('probably ')}."
        if state.kind in {"pattern", "moved"}:
            because = f" {cause}." if cause and "`" not in cause else ""
            return Answer(changed=f"{changed}{because}", to_do="Nothing: no commit did it.")
        return Answer(
            changed=changed,
            to_do=f"{_WAIT}, or decide it now:",
            command=_gate(rise.since, rise.until, selection),
        )
    if state.kind == "moved":
        return Answer(
            changed=f"Yes, with the machine: {wording.drift_sentence(series.drifts[-1])}.",
            to_do="Nothing: no commit did it.",
        )
    if state.kind == "undone":
        return Answer(changed=f"Not lastingly: {words}, after a change that is over.", to_do="Nothing.")
    return _of_steady(series, commits)


def _of_steady(series: Series, commits: Commits) -> Answer:
    """Return the answers of a series in which nothing was found; a new environment needs runs of its own."""
    border, needed = series.border, RUNS_TO_JUDGE // 2
    if border is not None and border.runs_since < needed:
        runs = f"{border.runs_since} of {needed} runs"
        return Answer(
            changed=f"Not known since the environment changed ({runs}); steady before that.",
            to_do=f"{_WAIT}.",
        )
    since = wording.commit_date(series.trends[series.order[0][0]].commits[series.order[0][1]], commits)
    return Answer(
        changed=f"No: steady in {counted(len(series.last[0]), 'run')}{f' since {since}' if since else ''}.",
        to_do="Nothing.",
    )


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:]


def _step_sentence(step: ChangePoint, commits: Commits) -> str:
    """Return the size of a change point, since when, and by which commit or what else."""
    amount, _ = wording.step_words(step)
    day = wording.commit_date(step.first_after, commits)
    since = f"{amount} since {day}" if day else amount
    accepted = f" It was {step.state}{f': {step.reason}' if step.reason else ''}." * (step.state != "open")
    if step.cause != "code":
        # What an environment changed of has a line of its own.
        detail = f" ({step.detail})" if step.detail and step.cause == "machine" else ""
        where = f"as the {step.cause} changed{detail}"
        return f"{since}, {where}, first measured at {_titled(step.first_after, commits)}.{accepted}"
    if len(step.suspects) == 1:
        return f"{since}, by {_titled(step.suspects[0], commits)}.{accepted}"
    if step.commits == 1:
        return f"{since}, by {_titled(step.first_after, commits)}.{accepted}"
    some = f"one of {step.commits} commits" if step.commits else "a commit"
    return (
        f"{since}, by {some} after {short_sha(step.last_before)}, up to"
        f" {_titled(step.first_after, commits)}.{accepted}"
    )


def _runs(number: int) -> str:
    return "the run" if number == 1 else f"the {number} runs"


def _border_sentence(border: Border, series: Series, state: State, commits: Commits) -> str:
    """Return what changed of the environment, since which commit, and how the level moved there."""
    day = wording.commit_date(border.commit, commits)
    what = _facts_text(border.facts) or "in what the ledger does not record"
    changed = f"Changed at {short_sha(border.commit)}{f' of {day}' if day else ''}: {what}."
    before, after = (wording.value_text(value, series.metric) for value in (border.level, border.level_after))
    # Those beside it in which the times did not move again by themselves.
    first = f"the first {counted(border.runs_after, 'run')}"
    since = first if border.runs_after < border.runs_since else _runs(border.runs_after)
    runs = f"{before} in {_runs(border.runs)} before it, {after} in {since} from it on"
    if state.step is not None and state.step.first_after == border.commit:
        return changed
    if border.is_clear:
        moved = wording.change_text(border.ratio, series.metric)
        return f"{changed} With it: {moved}, {runs}."
    unknown = "Whether that made a difference is not known yet"
    known = "That made no clear difference"
    return f"{changed} {unknown if border.runs_since < RUNS_TO_JUDGE // 2 else known}: {runs}."


def _facts_text(facts: Iterable[tuple[str, str, str]]) -> str:
    """Return what differs between two environments: "torch 2.8.0 → 2.9.1"."""
    known = [f"{name} {before} → {after}" for name, before, after in facts]
    more = f" and {len(known) - _MOST_FACTS} more" if len(known) > _MOST_FACTS else ""
    return f"{', '.join(known[:_MOST_FACTS])}{more}"


def _titled(sha: str, commits: Commits) -> str:
    subject = wording.commit_subject(sha, commits)
    return f"{short_sha(sha)} “{subject}”" if subject else short_sha(sha)
