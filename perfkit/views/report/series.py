"""Puts trends together to what one chart shows, and says in which state each of them is."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, TypeVar

from perfkit.records.history import ChangePoint, CommitFacts, Creep, HistoryReport, Silence, Trend
from perfkit.records.results import WALL_TIME, Metric
from perfkit.records.site import Reference

Kind = Literal["worse", "creep", "silent", "better", "accepted", "undone", "few", "steady"]
# Those that somebody should look at, the most urgent first.
ALARMS: tuple[Kind, ...] = ("worse", "creep", "silent")
# With fewer runs, nobody can tell a step from the scatter of single runs.
_FEW = 4
# A normal variable is within so many deviations of its mean 19 times of 20.
_TWO_SIDED_95 = 1.96
_Alarm = TypeVar("_Alarm", Creep, Silence)


@dataclass(frozen=True, kw_only=True)
class Series:
    """All runs of one benchmark and metric on one machine, the benchmark's versions one after another.

    ``order`` has the place of each run as (trend, place in it), as the chart shows them from left to right.
    ``noise`` is the relative sd between levels of identical code, None where it is not known.
    """

    trends: tuple[Trend, ...]
    order: tuple[tuple[int, int], ...]
    steps: tuple[ChangePoint, ...] = ()
    creeps: tuple[Creep, ...] = ()
    silences: tuple[Silence, ...] = ()
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
    """The newest value / the value at a named commit.

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


def series_of(history: HistoryReport, since: Sequence[Reference]) -> list[Series]:
    """Return the series of a history, by benchmark, metric and machine; times come before other metrics."""
    grouped: dict[tuple[str, str, str], list[Trend]] = {}
    for trend in history.trends:
        if len(trend):
            grouped.setdefault((trend.benchmark, trend.metric.name, trend.machine_id), []).append(trend)
    steps: dict[tuple[str, str, str], list[ChangePoint]] = {}
    for step in history.points:
        steps.setdefault((step.benchmark, step.metric.name, step.machine_id), []).append(step)
    told: set[tuple[str, str]] = set()
    found = []
    for key in sorted(grouped, key=_reading_order):
        benchmark, metric, machine = key
        # Creep and silence are told once, of the first metric, which is the time where there is one.
        leads = (benchmark, machine) not in told
        told.add((benchmark, machine))
        trends = tuple(sorted(grouped[key], key=lambda trend: (trend.recorded_at[0], trend.version)))
        noise = history.noise.get((benchmark, machine)) if metric == WALL_TIME.name else None
        bare = Series(
            trends=trends,
            order=_merged(trends, history.commits),
            steps=_in_order(steps.get(key, ()), trends),
            creeps=_of(history.creeps, benchmark, machine) if leads else (),
            silences=_of(history.silences, benchmark, machine) if leads else (),
            noise=noise,
        )
        found.append(_with_changes(bare, since, history.commits))
    return found


def state_of(series: Series) -> State:
    """Return the most urgent thing that is true of the newest runs of a series."""
    trend, _ = series.last
    current = [step for step in series.steps if step.version == trend.version]
    alive = [step for step in current if step.state != "ignored" and not is_undone(step, current)]
    opened = [step for step in alive if step.state == "open"]
    losses = [step for step in opened if step.worse]
    found = (
        *(State(kind="worse", step=step) for step in losses[-1:]),
        *(State(kind="creep") for _ in series.creeps[:1]),
        *(State(kind="silent") for _ in series.silences[:1]),
        *(State(kind="better", step=step) for step in opened[-1:]),
        *(State(kind="accepted", step=step) for step in alive[-1:]),
        *(State(kind="few") for _ in range(len(trend) < _FEW)),
        *(State(kind="undone", step=step) for step in current[-1:] if step.state != "ignored"),
    )
    return found[0] if found else State(kind="steady")


def is_undone(step: ChangePoint, steps: Iterable[ChangePoint]) -> bool:
    """Tell whether later steps of the same trend have brought the value back to what it was before."""
    later = [other for other in steps if other.version == step.version and other.place > step.place]
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
    """Return the change since the newest run at a commit or before it, None where there is no such run."""
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
    before, after = trend.means[place], trend.means[last]
    if before == after:
        return Change(ratio=1.0, within_noise=True, other_environment=False)
    if before <= 0 or after <= 0:
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


def _in_order(steps: Iterable[ChangePoint], trends: Sequence[Trend]) -> tuple[ChangePoint, ...]:
    """Return steps as their trends lie, then as they follow one another."""
    versions = [trend.version for trend in trends]
    known = [step for step in steps if step.version in versions]
    return tuple(sorted(known, key=lambda step: (versions.index(step.version), step.place)))


def _reading_order(key: tuple[str, str, str]) -> tuple[str, bool, str, str]:
    benchmark, metric, machine = key
    return benchmark, metric != WALL_TIME.name, metric, machine


def _of(alarms: Iterable[_Alarm], benchmark: str, machine: str) -> tuple[_Alarm, ...]:
    return tuple(alarm for alarm in alarms if alarm.benchmark == benchmark and alarm.machine_id == machine)
