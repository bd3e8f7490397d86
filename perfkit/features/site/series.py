"""Puts trends together to what one chart shows, and says in which state each of them is."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from perfkit.features.site.records import Reference
from perfkit.model.history import ChangePoint, CommitFacts, Creep, HistoryReport, Rise, Silence, Trend
from perfkit.model.results import WALL_TIME, Metric

Kind = Literal[
    "worse", "creep", "silent", "unclear", "better", "moved", "accepted", "undone", "few", "steady"
]
# Those that somebody should look at, the most urgent first.
ALARMS: tuple[Kind, ...] = ("worse", "creep", "silent", "unclear")
# A step has six runs on either side; with fewer, nobody can tell it from the scatter of single runs.
_FEW = 12
# A normal variable is within so many deviations of its mean 19 times of 20.
_TWO_SIDED_95 = 1.96


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A step, and the number of its trend among those of its series."""

    point: ChangePoint
    trend: int


@dataclass(frozen=True, kw_only=True)
class Series:
    """All runs of one benchmark and metric on one machine, the benchmark's versions one after another.

    Attributes:
        trends: One for each version.
        order: The place of each run as (trend, place in it), as the chart shows them from left to right.
        label: What tells it from others of the same benchmark, metric and machine: gates, an environment.
        watched: Whether its steps ask for attention.
        noise: The relative sd between levels of identical code, None where it is not known.
        since: What changed since named commits.
    """

    trends: tuple[Trend, ...]
    order: tuple[tuple[int, int], ...]
    label: str = ""
    watched: bool = True
    placed: tuple[Placed, ...] = ()
    creeps: tuple[Creep, ...] = ()
    silences: tuple[Silence, ...] = ()
    rises: tuple[Rise, ...] = ()
    noise: float | None = None
    since: Mapping[str, Change] = field(default_factory=dict)

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
    def lockstep(self) -> bool:
        """Whether all runs were measured by turns with another commit, from which their levels follow."""
        return self.trends[0].lockstep

    @property
    def steps(self) -> tuple[ChangePoint, ...]:
        """The steps of all versions, in the order of their runs."""
        return tuple(placed.point for placed in self.placed)

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

    @property
    def noise_limit(self) -> float | None:
        """The ratio, above 1, that two runs of identical code stay within 19 times of 20."""
        return None if self.noise is None else math.exp(_TWO_SIDED_95 * math.sqrt(2) * self.noise)


@dataclass(frozen=True, kw_only=True)
class Change:
    """The newest level / the level at a named commit.

    ``within_noise`` is None where the noise is not known. ``other_environment`` says that the two runs had
    other software or settings.
    """

    ratio: float
    within_noise: bool | None
    other_environment: bool


@dataclass(frozen=True, kw_only=True)
class State:
    """What to tell of a series before anything else; ``step`` is the step that it is about, if it is one."""

    kind: Kind
    step: ChangePoint | None = None


def series_of(
    history: HistoryReport, since: Sequence[Reference] = (), watched: Collection[str] = (WALL_TIME.name,)
) -> list[Series]:
    """Return the series of a history by benchmark, metric and machine; times come before other metrics."""
    groups = _groups(history)
    placed = _placed(history.points, groups)
    told: set[tuple[str, str]] = set()
    found = []
    for number, group in enumerate(groups):
        first = group.trends[0]
        # Creep and silence are told once, of the first series, which is of the time where there is one.
        place = (first.benchmark, first.machine_id)
        leads = place not in told
        told.add(place)
        bare = Series(
            trends=group.trends,
            order=_merged(group.trends, history.commits),
            label=group.label,
            watched=first.metric.name in watched,
            placed=tuple(sorted(placed[number], key=lambda one: (one.trend, one.point.place))),
            creeps=tuple(one for one in history.creeps if leads and (one.benchmark, one.machine_id) == place),
            rises=tuple(one for one in history.rises if leads and (one.benchmark, one.machine_id) == place),
            silences=tuple(
                one
                for one in history.silences
                if leads and one.machine_id == place[1] and (one.stopped or one.benchmark == place[0])
            ),
            noise=_noise(history, first) if first.metric.name == WALL_TIME.name else None,
        )
        found.append(_with_changes(bare, since, history.commits))
    return found


@dataclass(frozen=True, kw_only=True)
class _Group:
    """Trends that one chart shows."""

    trends: tuple[Trend, ...]
    label: str


def _groups(history: HistoryReport) -> list[_Group]:
    """Return the trends of each chart: gates apart from others, and environments that take turns apart."""
    kinds: dict[tuple[str, str, str, bool], list[Trend]] = {}
    for trend in history.trends:
        if len(trend):
            key = (trend.benchmark, trend.metric.name, trend.machine_id, trend.lockstep)
            kinds.setdefault(key, []).append(trend)
    found = []
    for key in sorted(kinds, key=_reading_order):
        trends = kinds[key]
        benchmark, metric, machine, lockstep = key
        label = "gates" if lockstep and (benchmark, metric, machine, False) in kinds else ""
        if len({trend.version for trend in trends}) == len(trends):
            found.append(_Group(trends=_oldest_first(trends), label=label))
            continue
        by_environment: dict[str, list[Trend]] = {}
        for trend in trends:
            by_environment.setdefault(trend.env_ids[-1], []).append(trend)
        for env_id, alike in sorted(by_environment.items()):
            told = _environment_label(env_id, by_environment, history.environments)
            found.append(_Group(trends=_oldest_first(alike), label=", ".join(filter(None, (label, told)))))
    return found


def _oldest_first(trends: Iterable[Trend]) -> tuple[Trend, ...]:
    return tuple(sorted(trends, key=lambda trend: (trend.recorded_at[0], trend.version)))


def _environment_label(
    env_id: str, others: Iterable[str], environments: Mapping[str, Mapping[str, str]]
) -> str:
    """Return what tells an environment from others beside it: "python CPython 3.12.4"; else its id."""
    known = [environments.get(other, {}) for other in others]
    own = environments.get(env_id, {})
    differing = [name for name in sorted(own) if len({facts.get(name) for facts in known}) > 1]
    return ", ".join(f"{name} {own[name]}" for name in differing[:2]) or env_id


def _placed(points: Iterable[ChangePoint], groups: Sequence[_Group]) -> list[list[Placed]]:
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
    alive = [step for step in current if step.state != "ignored" and not is_undone(step, current)]
    opened = [step for step in alive if step.is_open and series.watched]
    losses = [step for step in opened if step.worse]
    moved = [step for step in alive if step.state == "open"]
    found = (
        *(State(kind="worse", step=step) for step in losses[-1:]),
        *(State(kind="creep") for one in series.creeps if one.cause == "code"),
        *(State(kind="silent") for _ in series.silences[:1]),
        *(State(kind="unclear") for _ in series.rises[:1]),
        *(State(kind="better", step=step) for step in opened[-1:]),
        *(State(kind="moved", step=step) for step in moved[-1:]),
        *(State(kind="moved") for _ in series.creeps),
        *(State(kind="accepted", step=step) for step in alive[-1:]),
        *(State(kind="few") for _ in range(len(series.last[0]) < _FEW)),
        *(State(kind="undone", step=step) for step in current[-1:] if step.state != "ignored"),
    )
    return found[0] if found else State(kind="steady")


def band(trend: Trend, place: int) -> tuple[float, float]:
    """Return the band around the level of a run: the sd over launches, as a share of their mean."""
    mean, sd, level = trend.means[place], trend.sds[place] or 0.0, trend.levels[place]
    half = level * min(sd / mean, 1.0) if mean else 0.0
    return level - half, level + half


def is_undone(step: ChangePoint, steps: Iterable[ChangePoint]) -> bool:
    """Tell whether later ones of a trend's steps have brought the level back to what it was before."""
    later = [other for other in steps if other.place > step.place]
    if not later:
        return False
    now = max(later, key=lambda other: other.place).after.mean
    allowed = step.before.sd or 0.0
    higher_now = now > step.before.mean + allowed
    lower_now = now < step.before.mean - allowed
    return not (higher_now if step.ratio > 1 else lower_now)


def _with_changes(series: Series, since: Sequence[Reference], commits: Mapping[str, CommitFacts]) -> Series:
    changes = {reference.name: _change(series, reference.commit, commits) for reference in since}
    return replace(series, since={name: change for name, change in changes.items() if change is not None})


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


def _noise(history: HistoryReport, trend: Trend) -> float | None:
    """Return by what two runs of the same code differ, None where it is not known."""
    return history.noise.get(trend.machine_id, {}).get(trend.benchmark)


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


def _reading_order(key: tuple[str, str, str, bool]) -> tuple[str, bool, str, str, bool]:
    benchmark, metric, machine, lockstep = key
    return benchmark, metric != WALL_TIME.name, metric, machine, lockstep
