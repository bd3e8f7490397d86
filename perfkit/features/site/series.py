"""The records behind the pages: series of runs with their state, and the data that the scripts read."""

from __future__ import annotations

import functools
import heapq
import itertools
import json
import math
import operator
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar, cast

import numpy as np

from perfkit.identity import shown_run_id
from perfkit.model.comparisons import Verdict
from perfkit.model.history import (
    ChangePoint,
    CommitFacts,
    Creep,
    GateRatio,
    HistoryReport,
    Rise,
    Silence,
    Trend,
)
from perfkit.model.profiles import ProfileSummary
from perfkit.model.results import WALL_TIME, Metric, RunSummary
from perfkit.report.change_log import slug_of
from perfkit.report.chart import ShownTrend, Sparkline, sparkline
from perfkit.report.console import visible
from perfkit.report.history import (
    RUNS_TO_JUDGE,
    change_text,
    commit_date,
    direction_word,
    metric_title,
    ratio_text,
    short_sha,
)
from perfkit.units import counted

DocumentKind = Literal["experiment", "explanation", "document"]
_Found = TypeVar("_Found", Creep, Rise)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A commit that has a name, such as a release or the base of the present work."""

    name: str
    commit: str


@dataclass(frozen=True, kw_only=True)
class GateFinding:
    """What a gate found of one benchmark and metric; ``verdict`` is None where the gate was cut off."""

    benchmark: str
    metric: Metric
    verdict: Verdict | None
    gating: bool = True
    ratio: GateRatio | None = None
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class GateSummary:
    """One gate: the commits that it compared, and what it found."""

    run_id: str
    recorded_at: datetime
    base: str
    head: str
    machine_id: str
    findings: tuple[GateFinding, ...]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A linked file; ``link`` and ``picture`` are paths relative to the site."""

    title: str
    kind: DocumentKind
    link: str
    picture: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProfileEntryPoint:
    """A saved profile, and the paths of its files relative to the site, by name."""

    summary: ProfileSummary
    links: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Site:
    """All that the pages are made of; runs, gates, profiles and releases are oldest first.

    Last values are compared with the commits of ``since``; only steps of ``watched`` metrics raise alarms.
    ``names`` are branches and tags, each with its newest measured commit. Commits ``aside`` are on other
    branches than HEAD: no change of its history begins there.
    """

    project: str
    history: HistoryReport
    runs: tuple[RunSummary, ...] = ()
    gates: tuple[GateSummary, ...] = ()
    profiles: tuple[ProfileEntryPoint, ...] = ()
    documents: tuple[Document, ...] = ()
    releases: tuple[Reference, ...] = ()
    since: tuple[Reference, ...] = ()
    names: tuple[Reference, ...] = ()
    commit_url: str | None = None
    range_url: str | None = None
    watched: frozenset[str] = frozenset({"time"})
    aside: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


Kind = Literal[
    "worse",
    "drift",
    "silent",
    "unclear",
    "better",
    "maybe",
    "moved",
    "accepted",
    "pattern",
    "undone",
    "few",
    "steady",
]
# Those that somebody should look at, the most urgent first.
ALARMS: tuple[Kind, ...] = ("worse", "drift", "silent", "unclear")
# The heat map colours a change that is so many times what two runs of identical code differ by.
_CLEAR = 1.5
# This many runs on either side of a change of the environment are compared.
_MOST_BESIDE = 12
# A move of the level there is clear beyond so many standard errors, more of them where they are of few runs.
_ERRORS, _ERRORS_OF_FEW, _FEW_BESIDE = 3.0, 4.0, 10
# A cut elsewhere that leaves less than this share of the scatter is where the level moved.
_BETTER_CUT = 0.7
# A smaller one is not worth a word, and one of single runs has to be as large as an eye would see.
_WORTH_A_WORD, _SEEN = 0.02, 0.05
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
# Whole numbers below this have no more than six digits.
_FEW_DIGITS = 1e6
# A normal variable is within this many deviations of its mean 19 times of 20.
_TWO_SIDED_95 = 1.96
# Identical code can differ by this much, as it lies elsewhere in memory: few runs may all agree by chance.
_LEAST_LIMIT = 1.005


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A step, and the number of its trend among those of its series."""

    point: ChangePoint
    trend: int


@dataclass(frozen=True, kw_only=True)
class Border:
    """The newest change of the environment in a trend, between the runs at ``before`` and ``commit``.

    ``facts`` are (name, value before, value after). ``level`` and ``level_after`` are the medians of ``runs``
    before and of the first ``runs_after`` of ``runs_since``; ``is_clear`` where they differ by more than they
    scatter.
    """

    before: str
    commit: str
    facts: tuple[tuple[str, str, str], ...]
    level: float
    level_after: float
    runs: int
    runs_after: int
    runs_since: int
    is_clear: bool

    @property
    def ratio(self) -> float:
        """The level after / before."""
        return self.level_after / self.level


@dataclass(frozen=True, kw_only=True)
class Series:
    """All runs of one benchmark and metric on one machine, a trend for each version of the benchmark.

    ``order`` has each run as (trend, place in it); ``noise`` is the relative sd between levels of one code.
    """

    trends: tuple[Trend, ...]
    order: tuple[tuple[int, int], ...]
    label: str = ""
    watched: bool = True
    placed: tuple[Placed, ...] = ()
    drifts: tuple[Creep, ...] = ()
    silences: tuple[Silence, ...] = ()
    rises: tuple[Rise, ...] = ()
    noise: float | None = None
    since: Mapping[str, Change] = field(default_factory=dict)
    border: Border | None = None

    @property
    def benchmark(self) -> str:
        """The benchmark's node id."""
        return self.trends[0].benchmark

    @property
    def metric(self) -> Metric:
        """What all runs measured."""
        return self.trends[0].metric

    @property
    def machine_id(self) -> str:
        """The machine that all runs were made on."""
        return self.trends[0].machine_id

    @property
    def current(self) -> tuple[ChangePoint, ...]:
        """The steps of the newest version."""
        newest, _ = self.order[-1]
        return tuple(placed.point for placed in self.placed if placed.trend == newest)

    @property
    def last(self) -> tuple[Trend, int]:
        """The newest run: its trend, and its place there."""
        trend, place = self.order[-1]
        return self.trends[trend], place

    @property
    def last_at(self) -> datetime:
        """When the newest run was recorded."""
        trend, place = self.last
        return trend.recorded_at[place]

    def column(self, name: str) -> Sequence[Any]:
        """Return what a column of the trends has for each run."""
        columns = [getattr(trend, name) for trend in self.trends]
        if len(columns) == 1:
            return cast("Sequence[Any]", columns[0])
        return [columns[number][place] for number, place in self.order]

    @functools.cached_property
    def newest(self) -> dict[str, int]:
        """The number of the newest run of each commit, the commits in their order."""
        return {commit: number for number, commit in enumerate(self.column("commits"))}

    @functools.cached_property
    def picture(self) -> Sparkline:
        """The small picture of its runs."""
        return sparkline(self.shown)

    @functools.cached_property
    def shown(self) -> ShownTrend:
        """The runs, and the steps that nobody set aside; a reviewed or undone one needs no attention."""
        places = {key: place for place, key in enumerate(self.order)} if self.placed else {}
        (first, begin), (last, end) = self.order[0], self.order[-1]
        return ShownTrend(
            ends=((self.trends[first], begin), (self.trends[last], end)),
            levels=self.column("levels"),
            means=self.column("means"),
            sds=self.column("sds"),
            launches=self.column("launches"),
            steps=[
                (
                    one.point,
                    places[one.trend, one.point.place],
                    not one.point.is_open or one.point.is_over,
                )
                for one in self.placed
                if one.point.state != "ignored"
            ],
        )

    @property
    def noise_limit(self) -> float | None:
        """The ratio, above 1, that two runs of identical code stay within 19 times of 20."""
        if self.noise is None:
            return None
        return max(_LEAST_LIMIT, math.exp(_TWO_SIDED_95 * math.sqrt(2) * self.noise))


@dataclass(frozen=True, kw_only=True)
class Change:
    """The newest level / the level at a named commit; ``within_noise`` is None where that is not known."""

    ratio: float
    within_noise: bool | None
    other_environment: bool


@dataclass(frozen=True, kw_only=True)
class State:
    """The most urgent state of a series, with the change point or change of environment that it is about."""

    kind: Kind
    step: ChangePoint | None = None
    border: Border | None = None


def series_of(
    history: HistoryReport, since: Sequence[Reference] = (), watched: Collection[str] = (WALL_TIME.name,)
) -> list[Series]:
    """Return the series of a history by benchmark, metric and machine; times come before other metrics."""
    groups = _groups(history)
    placed = _placed(history.points, groups)
    drifts, rises = _owned(history.creeps, groups), _owned(history.rises, groups)
    led: set[tuple[str, str]] = set()
    found = []
    for number, group in enumerate(groups):
        first = group.trends[0]
        # Silences belong to the first series, which has the times if there are any.
        place = (first.benchmark, first.machine_id)
        leads = place not in led
        led.add(place)
        bare = replace(
            group,
            watched=first.metric.name in watched,
            placed=tuple(sorted(placed[number], key=lambda one: (one.trend, one.point.place))),
            drifts=tuple(drifts[number]),
            rises=tuple(rises[number]),
            silences=tuple(
                one
                for one in history.silences
                if leads and one.machine_id == place[1] and (one.stopped or one.benchmark == place[0])
            ),
            noise=history.noise.get(first.machine_id, {}).get(first.benchmark)
            if first.metric.name == WALL_TIME.name
            else None,
        )
        changes = {one.name: _change(bare, one.commit, history.commits) for one in since}
        known = {name: change for name, change in changes.items() if change is not None}
        found.append(replace(bare, since=known, border=_border(bare, history.environments)))
    return found


def _owned(found: Iterable[_Found], groups: Sequence[Series]) -> dict[int, list[_Found]]:
    """Return drifts or rises by the number of their series, the first that has both of their commits."""
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, group in enumerate(groups):
        numbers[group.benchmark, group.machine_id].append(number)
    owned: dict[int, list[_Found]] = defaultdict(list)
    for one in found:
        own = numbers[one.benchmark, one.machine_id]
        ends = {one.since, one.until}
        having = [number for number in own if ends.issubset(groups[number].column("commits"))]
        for number in (having or own)[:1]:
            owned[number].append(one)
    return owned


def _border(series: Series, environments: Mapping[str, Mapping[str, str]]) -> Border | None:
    """Return the newest change of the environment among the runs of the newest version, if there is one."""
    newest, _ = series.order[-1]
    trend = series.trends[newest]
    places = [place for number, place in series.order if number == newest]
    stretches = [
        list(group) for _, group in itertools.groupby(places, key=lambda place: trend.env_ids[place])
    ]
    if len(stretches) < 2:  # noqa: PLR2004 (one on either side)
        return None
    before, after = _beside(trend, stretches[-2][-_MOST_BESIDE:], stretches[-1][:_MOST_BESIDE])
    levels = [[trend.levels[place] for place in side] for side in (before, after)]
    if min(map(min, levels)) <= 0:
        return None
    low, high = map(statistics.median, levels)
    old, new = (environments.get(trend.env_ids[side[0]], {}) for side in (before, after))
    return Border(
        before=trend.commits[before[-1]],
        commit=trend.commits[after[0]],
        facts=tuple(
            (name, old.get(name, "none"), new.get(name, "none"))
            for name in sorted({*old, *new})
            if old.get(name) != new.get(name)
        ),
        level=low,
        level_after=high,
        runs=len(before),
        runs_after=len(after),
        runs_since=len(stretches[-1]),
        is_clear=abs(math.log(high / low)) > _clearly_beyond(levels, series.noise_limit),
    )


def _beside(trend: Trend, before: list[int], after: list[int]) -> tuple[list[int], list[int]]:
    """Return the runs on either side up to where the level moved by itself, before or after the border."""
    while len(both := before + after) > 2 and min(trend.levels[place] for place in both) > 0:  # noqa: PLR2004
        logs = [math.log(trend.levels[place]) for place in both]
        scatter = [_squares(logs[:cut]) + _squares(logs[cut:]) for cut in range(1, len(both))]
        here = scatter[len(before) - 1]
        best = 1 + min(range(len(scatter)), key=scatter.__getitem__)
        if best == len(before) or scatter[best - 1] > _BETTER_CUT * here:
            break
        before, after = (
            (both[best : len(before)], after) if best < len(before) else (before, both[len(before) : best])
        )
    return before, after


def _squares(values: Sequence[float]) -> float:
    mean = statistics.fmean(values)
    return sum((value - mean) ** 2 for value in values)


def _clearly_beyond(levels: Sequence[Sequence[float]], limit: float | None) -> float:
    """Return the logarithm of the ratio beyond which two levels differ by more than their runs scatter."""
    logs = [[math.log(level) for level in side] for side in levels]
    freedom = sum(len(side) - 1 for side in logs)
    if freedom < 2:  # noqa: PLR2004 (a scatter of two runs is unknown)
        return max(math.log(limit) if limit else 0.0, math.log1p(_SEEN))
    error = math.sqrt(sum(map(_squares, logs)) / freedom * sum(1 / len(side) for side in logs))
    errors = _ERRORS if freedom >= _FEW_BESIDE else _ERRORS_OF_FEW
    return max(errors * error, math.log1p(_WORTH_A_WORD))


def is_judged(series: Series) -> bool:
    """Return whether a series has runs enough, of the newest version, that a change point could be found."""
    return len(series.last[0]) >= RUNS_TO_JUDGE or bool(series.current)


def _groups(history: HistoryReport) -> list[Series]:
    """Return the trends of each chart: gates separately, and alternating environments separately."""
    kinds: dict[tuple[str, str, str, bool], list[Trend]] = {}
    for trend in history.trends:
        if len(trend):
            key = (trend.benchmark, trend.metric.name, trend.machine_id, trend.lockstep)
            kinds.setdefault(key, []).append(trend)

    def series(trends: Iterable[Trend], *labels: str) -> Series:
        ordered = tuple(sorted(trends, key=lambda trend: (trend.recorded_at[0], trend.version)))
        order = _merged(ordered, history.commits)
        return Series(trends=ordered, order=order, label=", ".join(filter(None, labels)))

    found = []
    for key in sorted(kinds, key=lambda key: (key[0], key[1] != WALL_TIME.name, *key[1:])):
        trends = kinds[key]
        benchmark, metric, machine, lockstep = key
        label = "gates" if lockstep and (benchmark, metric, machine, False) in kinds else ""
        if len({trend.version for trend in trends}) == len(trends):
            found.append(series(trends, label))
            continue
        by_environment: dict[str, list[Trend]] = {}
        for trend in trends:
            by_environment.setdefault(trend.env_ids[-1], []).append(trend)
        for env_id, own in sorted(by_environment.items()):
            named = _environment_label(env_id, by_environment, history.environments)
            found.append(series(own, label, named))
    return found


def _environment_label(
    env_id: str, others: Iterable[str], environments: Mapping[str, Mapping[str, str]]
) -> str:
    """Return how an environment differs from others: "python CPython 3.12.4"; else its id."""
    known = [environments.get(other, {}) for other in others]
    own = environments.get(env_id, {})
    differing = [name for name in sorted(own) if len({facts.get(name) for facts in known}) > 1]
    return ", ".join(f"{name} {own[name]}" for name in differing[:2]) or env_id


def _placed(points: Iterable[ChangePoint], groups: Sequence[Series]) -> list[list[Placed]]:
    """Return the steps of each group: a step belongs to the trend that has its commits at its place."""
    trends: dict[tuple[str, str, str, str], list[tuple[int, int, Trend]]] = {}
    for number, group in enumerate(groups):
        for place, trend in enumerate(group.trends):
            key = (trend.benchmark, trend.metric.name, trend.machine_id, trend.version)
            trends.setdefault(key, []).append((number, place, trend))
    found: list[list[Placed]] = [[] for _ in groups]
    taken: set[tuple[int, int, int]] = set()
    for point in points:
        for number, place, trend in trends.get(
            (point.benchmark, point.metric.name, point.machine_id, point.version), ()
        ):
            here = (number, place, point.place)
            around = trend.commits[max(point.place - 1, 0) : point.place + 1]
            if around == (point.last_before, point.first_after) and here not in taken:
                taken.add(here)
                found[number].append(Placed(point=point, trend=place))
                break
    return found


def state_of(series: Series) -> State:
    """Return the most urgent thing that is true of the newest runs of a series."""
    current = series.current
    alive = [step for step in current if step.state != "ignored" and not step.is_over]
    opened = [step for step in alive if step.is_open and series.watched]
    losses = [step for step in opened if step.worse]
    moved = [step for step in alive if step.state == "open"]
    found = (
        *(State(kind="worse", step=step) for step in losses[-1:]),
        *(State(kind="drift") for one in series.drifts if one.cause == "code"),
        *(State(kind="silent") for _ in series.silences[:1]),
        *(State(kind="unclear") for one in series.rises if kind_of_rise(one) == "unclear"),
        *(State(kind="better", step=step) for step in opened[-1:]),
        *(State(kind=kind) for one in series.rises if (kind := kind_of_rise(one)) in {"better", "maybe"}),
        *(State(kind="moved", step=step) for step in moved[-1:]),
        *(State(kind="moved") for _ in series.drifts),
        *(State(kind="moved") for one in series.rises if kind_of_rise(one) == "moved"),
        *(State(kind="accepted", step=step) for step in alive[-1:]),
        *(State(kind="pattern") for one in series.rises if one.is_pattern),
        *(State(kind="few") for _ in range(len(series.last[0]) < RUNS_TO_JUDGE)),
        *(State(kind="moved", border=one) for one in [series.border] if one is not None and one.is_clear),
        *(State(kind="undone", step=step) for step in current[-1:] if step.state != "ignored"),
    )
    return found[0] if found else State(kind="steady")


def kind_of_rise(rise: Rise) -> Kind:
    """Return the kind of what a chart shows without a clear change point."""
    if rise.is_pattern:
        return "pattern"
    if rise.cause == "machine":
        return "moved"
    return "maybe" if rise.kind == "possible step" else "unclear" if rise.ratio > 1 else "better"


def status_words(series: Series, state: State, commits: Mapping[str, CommitFacts]) -> str:
    """Return the state of a series in a few words: "slower since 2026-03-01"."""
    step = state.step
    if step is not None:
        since = f"since {commit_date(step.first_after, commits) or short_sha(step.first_after)}"
        word = "steady" if state.kind == "undone" else direction_word(step.ratio, step.metric)
        why = {"accepted": ", accepted", "moved": f", with the {step.cause}"}.get(state.kind, "")
        return f"{word} {since}{why}"
    moved = series.border if series.border is not None and series.border.is_clear else None
    by_environment = ""
    if moved is not None:
        day = commit_date(moved.commit, commits) or short_sha(moved.commit)
        by_environment = f"{change_text(moved.ratio, series.metric)} since {day}, with the environment"
    if state.border is not None:
        return by_environment
    if state.kind in {"drift", "moved"} and series.drifts:
        why = ", with the machine" if state.kind == "moved" else ""
        return f"drifted {ratio_text(series.drifts[-1].ratio)}{why}"
    if state.kind == "silent":
        days = counted(series.silences[-1].days, "day")
        return f"machine stopped {days} ago" if series.silences[-1].stopped else f"silent for {days}"
    if state.kind in {"unclear", "better", "maybe", "moved", "pattern"}:
        rise = series.rises[-1]
        since = commit_date(rise.until, commits) or short_sha(rise.until)
        word, size = direction_word(rise.ratio, series.metric), ratio_text(rise.ratio)
        by_machine = rise.cause == "machine"
        words = {
            "to and fro": f"to and fro, {rise.changes} times",
            "two levels": f"up and down by {size}",
            "weekly": f"{size} on {' and '.join(rise.days)}",
            "step": f"{'' if by_machine else 'probably '}{word} since {since}",
            "possible step": f"may be {word} since {since}",
            "rise": f"rose {size}{'' if rise.cause else ', cause unclear'}",
        }[rise.kind]
        return f"{words}, with the machine" if by_machine else words
    few = f"not judged yet: {len(series.last[0])} of {RUNS_TO_JUDGE} runs"
    return "steady" if state.kind == "steady" else "; ".join(filter(None, (few, by_environment)))


def _change(series: Series, commit: str, commits: Mapping[str, CommitFacts]) -> Change | None:
    """Return the change since the newest run at a commit or before it, None where one of both is missing."""
    trend, last = series.last
    limit = commits[commit].place if commit in commits else None
    if limit is None:
        return None
    for place in reversed(range(len(trend))):
        facts = commits.get(trend.commits[place])
        if facts is not None and facts.place is not None and facts.place <= limit:
            break
    else:
        return None
    before, after = trend.levels[place], trend.levels[last]
    if place == last or before <= 0 or after <= 0:
        return None
    ratio = after / before
    noise = series.noise_limit
    return Change(
        ratio=ratio,
        within_noise=None if noise is None else 1 / noise <= ratio <= noise,
        other_environment=trend.env_ids[place] != trend.env_ids[last],
    )


def _merged(trends: Sequence[Trend], commits: Mapping[str, CommitFacts]) -> tuple[tuple[int, int], ...]:
    """Return the runs of all versions in the order of commits; each version keeps the order of its own."""
    if len(trends) == 1:
        return tuple((0, place) for place in range(len(trends[0])))
    keyed = [_keyed(number, trend, commits) for number, trend in enumerate(trends)]
    return tuple((number, place) for _, number, place in heapq.merge(*keyed))


def _keyed(number: int, trend: Trend, commits: Mapping[str, CommitFacts]) -> Iterator[tuple[int, int, int]]:
    """Yield (place in history, trend, place in it); what git does not know follows the run before it."""
    reached = -1
    for place, commit in enumerate(trend.commits):
        facts = commits.get(commit)
        if facts is not None and facts.place is not None:
            reached = max(reached, facts.place)
        yield reached, number, place


class _Json(str):
    """A part of a script that is JSON already."""

    __slots__ = ()


def script(name: str, value: object) -> str:
    """Return a script that gives a name to a value; nothing in the value can end the script or its line."""
    text = _json(value)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'"use strict";window.{name}={text};\n'


def _json(value: object) -> str:
    if isinstance(value, _Json):
        return value
    if isinstance(value, dict):
        return f"{{{','.join(f'{_json(str(key))}:{_json(one)}' for key, one in value.items())}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return f"[{','.join(map(_json, value))}]"
    return _ENCODER.encode(value)


def commits_in_order(history: HistoryReport) -> list[str]:
    """Return the commits of all runs, oldest first; one that git does not know follows the one before it."""
    keys: dict[str, tuple[int, datetime]] = {}
    # Most benchmarks have the same runs.
    for trend in {(trend.commits, trend.recorded_at): trend for trend in history.trends}.values():
        reached = -1
        for commit, recorded_at in zip(trend.commits, trend.recorded_at, strict=True):
            facts = history.commits.get(commit)
            if facts is not None and facts.place is not None:
                reached = facts.place
            if commit not in keys or keys[commit] > (reached, recorded_at):
                keys[commit] = (reached, recorded_at)
    return sorted(keys, key=lambda sha: (keys[sha], sha))


def commits_script(order: Sequence[str], site: Site) -> str:
    """Return the script with the commits; times are seconds since 1970, each minus the one before."""
    commits = site.history.commits
    facts = [commits.get(sha) or CommitFacts(sha=sha) for sha in order]
    authors = {name: number for number, name in enumerate(dict.fromkeys(one.author for one in facts))}
    places = {sha: number for number, sha in enumerate(order)}
    known = [(one, commits.get(one.commit)) for one in site.releases]
    return script(
        "perfkitCommits",
        {
            "sha": list(order),
            "aside": [number for number, sha in enumerate(order) if sha in site.aside],
            "subject": [visible(one.subject or "") for one in facts],
            "time": _differences([_seconds(one.time) for one in facts]),
            "author": [authors[one.author] for one in facts],
            "authors": [visible(name or "") for name in authors],
            "releases": [
                {
                    "name": visible(release.name),
                    "at": _first_from(found.place, order, commits)
                    if found and found.place is not None
                    else places.get(release.commit),
                    "time": _seconds(found.time) if found else None,
                }
                for release, found in known
            ],
        },
    )


def _first_from(place: int, order: Sequence[str], commits: Mapping[str, CommitFacts]) -> int | None:
    """Return the number of the first measured commit at a place in history or after it."""
    for number, sha in enumerate(order):
        facts = commits.get(sha)
        if facts is not None and facts.place is not None and facts.place >= place:
            return number
    return None


def benchmark_script(series: Sequence[Series], runs: Runs) -> str:
    """Return the script with all runs of a benchmark."""
    numbers, columns = runs.of(series)
    shown = [_series(one, own) for one, own in zip(series, numbers, strict=True)]
    return script("perfkitBenchmark", {"series": shown, **columns})


def levels_script(
    by_benchmark: Mapping[str, Sequence[Series]],
    titles: Mapping[str, str],
    machines: Mapping[str, str],
    order: Mapping[str, int],
    site: Site,
) -> str:
    """Return the script with the newest level of each benchmark's first metric at each commit."""
    numbers = {benchmark: number for number, benchmark in enumerate(by_benchmark)}
    first = {benchmark: series[0].metric for benchmark, series in by_benchmark.items()}
    shown = [
        (numbers[benchmark], one)
        for benchmark, series in by_benchmark.items()
        for one in series
        if one.metric == first[benchmark]
    ]
    return script(
        "perfkitLevels",
        {
            "clear": _CLEAR,
            "benchmarks": [
                {
                    "name": titles[benchmark],
                    "file": visible(benchmark.partition("::")[0].rpartition("/")[2]),
                    "slug": slug_of(benchmark),
                    "unit": visible(metric.unit),
                    "better": metric.better,
                }
                for benchmark, metric in first.items()
            ],
            "machines": {one.machine_id: machines.get(one.machine_id, one.machine_id) for _, one in shown},
            "names": [
                [visible(one.name), order[one.commit]]
                for one in (*site.names, *site.since)
                if one.commit in order
            ],
            "series": [_levels(one, order) | {"benchmark": number} for number, one in shown],
            "gates": [
                [numbers[found.benchmark], order[gate.base], order[gate.head], gate.machine_id]
                + [_value(value) for value in (ratio.ratio, ratio.low, ratio.high, 1 - ratio.alpha)]
                for gate in site.gates
                if gate.base in order and gate.head in order
                for found in gate.findings
                if (ratio := found.ratio) is not None
                and ratio.low < ratio.high
                and found.metric == first.get(found.benchmark)
            ],
        },
    )


def slower_at(commit: str, series: Sequence[Series]) -> float | None:
    """Return by which ratio a benchmark's newest cell of the heat map is red, None where it is not.

    ``series`` are all of the benchmark; the cell shows the first metric.
    """
    found = [_last_change(one, commit) for one in series if one.metric == series[0].metric]
    return max(filter(None, found), default=None)


def _last_change(series: Series, commit: str) -> float | None:
    newest = series.newest
    # A gate has its own verdict.
    if len(newest) < 2 or series.trends[0].lockstep or series.noise_limit is None:  # noqa: PLR2004 (two levels)
        return None
    if next(reversed(newest)) != commit:
        return None
    runs = reversed(newest.values())
    (after, last), (before, earlier) = (series.order[next(runs)] for _ in range(2))
    levels = series.trends[before].levels[earlier], series.trends[after].levels[last]
    if before != after or min(levels) <= 0:
        return None
    ratio = levels[1] / levels[0]
    is_worse = (ratio > 1) == (series.metric.better == "lower")
    return ratio if is_worse and abs(math.log(ratio)) > _CLEAR * math.log(series.noise_limit) else None


def _levels(series: Series, order: Mapping[str, int]) -> dict[str, object]:
    """Return the columns of a series, one value a commit; levels are logarithms in steps of 1e-5."""
    numbers = series.newest.values()
    levels = [*map(series.column("levels").__getitem__, numbers)]
    env_ids = series.column("env_ids")
    kinds = [(series.order[number][0], env_ids[number]) for number in numbers]
    return {
        "machine": series.machine_id,
        "gates": series.trends[0].lockstep,
        "noise": None if series.noise_limit is None else round(series.noise_limit, 5),
        "commit": _differences([order[commit] for commit in series.newest]),
        "named": [order[commit] for commit in _named_commits(series) if commit in order],
        "level": _differences(_in_steps(levels)),
        # Where another version of the benchmark or other software begins.
        "kinds": [
            [next(group)[0], str(number), env_id]
            for (number, env_id), group in itertools.groupby(enumerate(kinds), key=lambda one: one[1])
        ],
    }


def _in_steps(levels: Sequence[float]) -> list[int | None]:
    """Return the logarithms of levels in steps of 1e-5, None for a level that has none."""
    if min(levels) > 0:
        found: list[int | None] = np.rint(1e5 * np.log(levels)).astype(np.int64).tolist()
        return found
    return [round(1e5 * math.log(level)) if level > 0 else None for level in levels]


class Runs:
    """The numbered runs of benchmarks, shared by the metrics of each; most benchmarks have the same ones.

    ``order`` numbers the commits.
    """

    def __init__(self, order: Mapping[str, int], history: HistoryReport) -> None:
        self._order, self._history = order, history
        self._known: dict[tuple[tuple[object, ...], ...], tuple[list[_Json], dict[str, _Json]]] = {}

    def of(self, series: Iterable[Series]) -> tuple[list[_Json], dict[str, _Json]]:
        """Return the numbers of the runs of each series, and the columns of all runs, in their order."""
        names = ("run_ids", "commits", "recorded_at", "sources", "env_ids")
        key = tuple(tuple(tuple(one.column(name)) for name in names) for one in series)
        if key not in self._known:
            self._known[key] = self._numbered(key)
        return self._known[key]

    def _numbered(self, columns: Iterable[Sequence[Iterable[Any]]]) -> tuple[list[_Json], dict[str, _Json]]:
        numbers: dict[tuple[Any, ...], int] = {}
        found = [[numbers.setdefault(key, len(numbers)) for key in zip(*own, strict=True)] for own in columns]
        runs, commits, times, sources, env_ids = zip(*numbers, strict=True)
        of_source, of_env = (
            {one: at for at, one in enumerate(dict.fromkeys(own))} for own in (sources, env_ids)
        )
        facts = self._history.environments
        whole = {
            "runs": {
                "id": [*map(shown_run_id, runs)],
                "commit": _differences([*map(self._order.__getitem__, commits)]),
                "time": _differences([*map(_seconds, times)]),
                "source": [*map(of_source.__getitem__, sources)],
                "env": [*map(of_env.__getitem__, env_ids)],
            },
            "sources": [*map(visible, of_source)],
            "environments": [{"id": env, "facts": _facts(facts.get(env, {}))} for env in of_env],
        }
        encoded = {name: _Json(_json(column)) for name, column in whole.items()}
        return [_Json(_json(_differences(own))) for own in found], encoded


def _series(series: Series, numbers: _Json) -> dict[str, object]:
    trends = series.trends
    at = {key: number for number, key in enumerate(series.order)} if series.placed else {}
    repeats = any(trend.repeated for trend in trends)
    limit = series.noise_limit
    return {
        "metric": visible(metric_title(series.metric)),
        "unit": visible(series.metric.unit),
        "better": series.metric.better,
        "machine": series.machine_id,
        "noise": None if limit is None else round(limit, 5),
        "run": numbers,
        "mean": _values(series.column("means")),
        "level": _values(series.column("levels")),
        "lockstep": series.trends[0].lockstep,
        "sd": _values(series.column("sds")),
        "launches": [*series.column("launches")],
        "version": [number for number, _ in series.order] if len(trends) > 1 else 0,
        "steps": [_step(placed, at) for placed in series.placed],
        "likely": _likely(series),
        "same": _same_code(series),
        "repeated": [
            number
            for number, (trend, place) in enumerate(series.order if repeats else ())
            if trends[trend].commits[place] in trends[trend].repeated
        ],
    }


def _named_commits(series: Series) -> list[str]:
    """Return the first commits after changes that last or probably do."""
    known = [one.point.first_after for one in series.placed if one.point.state != "ignored"]
    return known + [one.until for one in series.rises[-1:] if one.kind == "step"]


def _likely(series: Series) -> list[object] | None:
    """Return the first run after a step that is not sure, with its size; None where another series has it."""
    for one in series.rises[-1:]:
        if one.kind in ("step", "possible step"):
            for number, (trend, place) in enumerate(series.order):
                if series.trends[trend].commits[place] == one.until:
                    return [number, change_text(one.ratio, series.metric)]
    return None


def _same_code(series: Series) -> dict[int, list[str]]:
    """Return the commits, not measured, that run the same code as the one of a run, by the run's number."""
    known = [(sha, other) for trend in series.trends for sha, other in trend.same_code.items()]
    numbers: dict[str, int] = {}
    if known:
        numbers = {series.trends[at].commits[place]: run for run, (at, place) in enumerate(series.order)}
    found: dict[int, list[str]] = {}
    for sha, other in known:
        if other in numbers:
            found.setdefault(numbers[other], []).append(short_sha(sha))
    return found


def _step(placed: Placed, at: Mapping[tuple[int, int], int]) -> dict[str, object]:
    step = placed.point
    return {
        "id": step.point_id,
        "at": at[placed.trend, step.place],
        "text": ratio_text(step.ratio),
        "words": change_text(step.ratio, step.metric),
        "worse": step.worse,
        "state": step.state,
        "cause": step.cause,
        "before": _value(step.before.mean),
        "after": _value(step.after.mean),
        "runs": [step.before.runs, step.after.runs],
    }


def _value(value: float | None) -> float | None:
    """Return a number for a script: whole ones as they are, others with six digits."""
    if value is None or not math.isfinite(value):
        return None
    return round(value) if value == round(value) else float(f"{value:.6g}")


def _values(values: Sequence[float | None]) -> _Json:
    """Return numbers for a script, as ``_value`` does."""
    is_whole = None not in values
    known = cast("Sequence[float]", values) if is_whole else [one for one in values if one is not None]
    if known and min(known) > -_FEW_DIGITS and max(known) < _FEW_DIGITS:
        whole = known if is_whole else [math.nan if one is None else one for one in values]
        # All at once: there are millions.
        text = ("%.6g," * len(whole)) % (*whole,)
        return _Json(f"[{text[:-1].replace('nan', 'null')}]")
    return _Json(_json([*map(_value, values)]))


def _differences(numbers: Sequence[int | None]) -> list[int | None]:
    """Return each number minus the known one before it: they are short, as neighbours are alike."""
    if None not in numbers:
        known = cast("Sequence[int]", numbers)
        return [*map(operator.sub, known, (0, *known[:-1]))]
    found: list[int | None] = []
    before = 0
    for number in numbers:
        found.append(None if number is None else number - before)
        before = before if number is None else number
    return found


@functools.lru_cache(maxsize=1 << 16)
def _seconds(time: datetime | None) -> int | None:
    if time is None:
        return None
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return math.floor(known.timestamp())


def _facts(facts: Mapping[str, str]) -> dict[str, str]:
    return {visible(name): visible(value) for name, value in sorted(facts.items())}
