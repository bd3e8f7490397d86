"""Find what no list of steps shows: losses that add up little by little, and benchmarks that went silent."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perfkit.ledger.history.trends import Order, places_by_run, sessions
from perfkit.model.history import ChangePoint, Creep, Origin, Rise, Silence, Trend
from perfkit.stats.distributions import student_quantile

# One in two hundred on either side: the alarm is for a sum that nobody would call noise.
_CREEP_ERROR = 0.01
_FEWEST_GATES = 3
# A benchmark that was measured once or twice has no habit that it could break.
_FEWEST_RUNS = 3
_ID_DIGITS = 8


# The commits of each gate.
_Measured = tuple[frozenset[str], ...]


@dataclass(frozen=True, kw_only=True)
class _Link:
    """What a gate found of ``commits``, those after base up to head: a log ratio and its variance.

    ``begin`` and ``end`` are the places of base and head in history.
    """

    begin: float
    end: float
    base: str
    head: str
    commits: frozenset[str]
    log_ratio: float
    variance: float
    launches: int


def find_creep(
    trends: Iterable[Trend],
    order: Order,
    *,
    since: float,
    margin_of: Callable[[str], float],
    commits_of: Callable[[str, str], frozenset[str] | None],
) -> Iterator[Creep]:
    """Yield the benchmarks whose gates of merged commits lost more than the margin since a place.

    ``commits_of`` returns the commits after a first one up to a last one, None where the first is no ancestor
    of the last, or the last one was not merged. The log ratios of gates add up that have no commit in common.
    The interval is that of Student's t at 99 %, with the variances of both sides' means, which are taken to
    be independent: launches of both sides have much in common, so it is too wide rather than too narrow.
    """
    known: dict[_Measured, list[frozenset[str]]] = {}
    for trend in trends:
        if not trend.lockstep or trend.metric.better != "lower":
            continue
        chain = _chain([link for link in _links(trend, order, commits_of) if link.begin >= since], known)
        if len(chain) < _FEWEST_GATES:
            continue
        total = math.fsum(link.log_ratio for link in chain)
        variance = math.fsum(link.variance for link in chain)
        launches = sum(link.launches for link in chain)
        # Each link has two means.
        half = student_quantile(max(launches - 2 * len(chain), 1), _CREEP_ERROR) * math.sqrt(variance)
        margin = margin_of(trend.benchmark)
        if total - half > math.log1p(margin):
            yield Creep(
                benchmark=trend.benchmark,
                machine_id=trend.machine_id,
                since=chain[0].base,
                until=max(chain, key=lambda link: link.end).head,
                ratio=math.exp(total),
                low=math.exp(total - half),
                high=math.exp(total + half),
                margin=margin,
            )


def _links(
    trend: Trend, order: Order, commits_of: Callable[[str, str], frozenset[str] | None]
) -> Iterator[_Link]:
    """Yield what each run of a trend says of the two commits that it measured side by side."""
    for places in places_by_run(trend).values():
        if len(places) != 2:  # noqa: PLR2004 (base and head)
            continue
        base, head = sorted(places, key=lambda place: order.place(trend.commits[place]))
        relative = [_relative_variance(trend, place) for place in (base, head)]
        commits = commits_of(trend.commits[base], trend.commits[head])
        if not commits or None in relative or min(trend.means[base], trend.means[head]) <= 0:
            continue
        yield _Link(
            begin=order.place(trend.commits[base]),
            end=order.place(trend.commits[head]),
            base=trend.commits[base],
            head=trend.commits[head],
            commits=commits,
            log_ratio=math.log(trend.means[head] / trend.means[base]),
            variance=math.fsum(one for one in relative if one is not None),
            launches=trend.launches[base] + trend.launches[head],
        )


def _relative_variance(trend: Trend, place: int) -> float | None:
    sd, mean = trend.sds[place], trend.means[place]
    return None if sd is None or not mean else (sd / mean) ** 2 / trend.launches[place]


def _chain(links: Sequence[_Link], known: dict[_Measured, list[frozenset[str]]]) -> list[_Link]:
    """Return links that have no commit in common, in the order of their bases.

    Of links of the same commits the last counts. Which links count does not depend on what they found: it is
    ``known`` for all benchmarks that the same gates measured.
    """
    last = {link.commits: link for link in links}
    measured = tuple(last)
    if measured not in known:
        known[measured] = _counting(measured)
    return sorted((last[commits] for commits in known[measured]), key=lambda link: link.begin)


def _counting(measured: _Measured) -> list[frozenset[str]]:
    """Return which commits that were measured together count, so that none counts twice.

    What is made of parts that were measured themselves gives way to these, as a gate against a release does:
    two of them at least, of which each has commits of its own. One part alone says nothing of the rest. Of
    what is left, that with the most commits comes first, as it has what came to the same change later.
    """
    by_size = sorted(measured, key=len)
    whole = [one for one in by_size if len(_apart(part for part in by_size if part < one)) <= 1]
    return _apart(reversed(whole))


def _apart(measured: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    """Return those that have no commit in common with one before them."""
    found: list[frozenset[str]] = []
    covered: set[str] = set()
    for commits in measured:
        if covered.isdisjoint(commits):
            found.append(commits)
            covered |= commits
    return found


@dataclass(frozen=True, kw_only=True)
class DriftFacts:
    """What drifts in plain runs are judged by.

    ``origins`` has the commits of the last release and of the base, where there are any; ``changes_code``
    tells whether any code differs between two commits; ``accepted`` are the ids that a person settled.
    """

    order: Order
    origins: Mapping[Origin, str]
    margin_of: Callable[[str], float]
    is_sentinel: Callable[[str], bool]
    changes_code: Callable[[str, str], bool]
    accepted: Collection[str]


def find_drifts(trends: Sequence[Trend], points: Iterable[ChangePoint], facts: DriftFacts) -> Iterator[Creep]:
    """Yield the benchmarks whose plain runs became slower little by little, one for each machine.

    A drift is counted from the best level, else from the last release or from the base, and steps are taken
    out, since they are reported on their own. The levels are those that were measured: a rise that all
    benchmarks share is one of each until a sentinel drifts as well.
    """
    found: dict[tuple[str, str], Creep] = {}
    for trend, own in _with_steps(trends, points):
        drift = _drift_of(trend, own, facts)
        key = (trend.benchmark, trend.machine_id)
        if drift is not None and (key not in found or drift.low > found[key].low):
            found[key] = drift
    sentinels = [one for one in found.values() if facts.is_sentinel(one.benchmark)]
    for one in found.values():
        if not facts.is_sentinel(one.benchmark):
            detail = _acquitted(one, sentinels, facts)
            yield replace(one, cause="machine", detail=detail) if detail else one


def find_rises(
    trends: Sequence[Trend], points: Iterable[ChangePoint], creeps: Iterable[Creep], facts: DriftFacts
) -> Iterator[Rise]:
    """Yield the benchmarks that a person sees rise in a chart, though no open step and no drift says so."""
    from perfkit.stats.drift import best_place, visible_rise

    reported = {(one.benchmark, one.machine_id) for one in creeps}
    for trend, steps in _with_steps(trends, points):
        key = (trend.benchmark, trend.machine_id)
        if key in reported or facts.is_sentinel(trend.benchmark) or any(one.is_open for one in steps):
            continue
        first, levels = _without_steps(trend, steps, facts.accepted)
        first = max(first, trend.env_ids.index(trend.env_ids[-1]))
        start = first + best_place(levels[first:])
        ratio = visible_rise(levels[start:])
        if ratio is not None:
            reported.add(key)
            yield Rise(
                benchmark=trend.benchmark,
                machine_id=trend.machine_id,
                since=trend.commits[start],
                until=trend.commits[-1],
                ratio=ratio,
            )


def _with_steps(
    trends: Sequence[Trend], points: Iterable[ChangePoint]
) -> Iterator[tuple[Trend, Sequence[ChangePoint]]]:
    """Yield the trends that a drift may be in, each with its own steps."""
    steps: dict[tuple[str, str, str, str], list[ChangePoint]] = {}
    for point in points:
        key = (point.benchmark, point.version, point.machine_id, point.metric.name)
        steps.setdefault(key, []).append(point)
    for trend in _newest_versions(trends):
        named = (trend.benchmark, trend.version, trend.machine_id, trend.metric.name)
        yield (
            trend,
            [
                step
                for step in steps.get(named, ())
                if trend.commits[step.place - 1 : step.place + 1] == (step.last_before, step.first_after)
            ],
        )


def _without_steps(
    trend: Trend, steps: Iterable[ChangePoint], accepted: Collection[str]
) -> tuple[int, list[float]]:
    """Return the run that a drift may begin at first, and the levels without the steps."""
    first = _accepted_place(trend, accepted)
    levels = list(trend.levels)
    for step in steps:
        levels[step.place :] = [level / step.ratio for level in levels[step.place :]]
        # No level before a gain is the best one.
        first = first if step.worse else max(first, step.place)
    return first, levels


def _newest_versions(trends: Iterable[Trend]) -> Iterator[Trend]:
    """Yield the trends of plain runs that a drift may be in, of each benchmark's newest version."""
    timed = [
        one
        for one in trends
        if not one.lockstep and one.metric.better == "lower" and not one.metric.exact and min(one.levels) > 0
    ]
    newest = {
        (one.benchmark, one.machine_id): one.version
        for one in sorted(timed, key=lambda one: max(one.recorded_at))
    }
    return (one for one in timed if newest[one.benchmark, one.machine_id] == one.version)


def _drift_of(trend: Trend, steps: Iterable[ChangePoint], facts: DriftFacts) -> Creep | None:
    from perfkit.stats.drift import FEWEST, best_place, find_drift

    if len(trend) < FEWEST:
        return None
    first, levels = _without_steps(trend, steps, facts.accepted)
    places = [facts.order.place(commit) for commit in trend.commits]
    starts: dict[Origin, int] = {"best": first + best_place(levels[first:])}
    for origin, commit in facts.origins.items():
        at = facts.order.place(commit)
        starts[origin] = max(first, sum(place <= at for place in places) - 1)
    margin = facts.margin_of(trend.benchmark)
    measured_in = sessions(trend)
    for origin, start in starts.items():
        drift = find_drift(
            levels[start:], sessions=measured_in[start:], environments=trend.env_ids[start:], least=margin
        )
        if drift is not None:
            return Creep(
                benchmark=trend.benchmark,
                machine_id=trend.machine_id,
                since=trend.commits[start],
                until=trend.commits[-1],
                ratio=drift.ratio,
                low=drift.low,
                high=drift.high,
                margin=margin,
                origin=origin,
                runs=len(trend) - start,
                creep_id=_creep_id(trend, len(trend) - 1),
            )
    return None


def _creep_id(trend: Trend, place: int) -> str:
    named = (trend.benchmark, trend.version, trend.metric.name, trend.machine_id, trend.commits[place])
    return hashlib.sha256(repr(("drift", *named)).encode()).hexdigest()[:_ID_DIGITS]


def _accepted_place(trend: Trend, accepted: Collection[str]) -> int:
    """Return the last run whose drift a person accepted, or the first run."""
    if not accepted:
        return 0
    return next((place for place in reversed(range(len(trend))) if _creep_id(trend, place) in accepted), 0)


def _acquitted(creep: Creep, sentinels: Iterable[Creep], facts: DriftFacts) -> str:
    """Return why no commit made a drift, or an empty text."""
    for other in sentinels:
        if other.machine_id == creep.machine_id and other.high >= creep.low:
            return f"the sentinel {other.benchmark} became slower as well"
    same_code = not facts.changes_code(creep.since, creep.until)
    return "no code differs between the commits" if same_code else ""


def find_silence(
    trends: Sequence[Trend], *, now: datetime, most_days: int, places: Mapping[str, float]
) -> Iterator[Silence]:
    """Yield the benchmarks that were not measured for more than ``most_days`` days, each machine apart.

    A benchmark's versions count together. A machine that stopped is reported once, by the benchmark that was
    measured there last.
    """
    last: dict[tuple[str, str], tuple[datetime, str, int]] = {}
    for trend in trends:
        key = (trend.benchmark, trend.machine_id)
        newest = max(range(len(trend)), key=trend.recorded_at.__getitem__)
        at, commit, runs = last.get(key, (trend.recorded_at[newest], trend.commits[newest], 0))
        if trend.recorded_at[newest] >= at:
            at, commit = trend.recorded_at[newest], trend.commits[newest]
        last[key] = (at, commit, runs + len(trend))
    newest_of: dict[str, datetime] = {}
    newest_habit: dict[str, datetime] = {}
    for (_, machine_id), (at, _, runs) in last.items():
        newest_of[machine_id] = max(at, newest_of.get(machine_id, at))
        if runs >= _FEWEST_RUNS:
            newest_habit[machine_id] = max(at, newest_habit.get(machine_id, at))
    told: set[str] = set()
    for (benchmark, machine_id), (at, commit, runs) in last.items():
        if runs < _FEWEST_RUNS:
            continue
        alive = (now - newest_of[machine_id]).days <= most_days
        days = ((newest_of[machine_id] if alive else now) - at).days
        is_newest = at == newest_habit[machine_id] and machine_id not in told
        if days <= most_days or not (alive or is_newest):
            continue
        told.add(machine_id)
        yield Silence(
            benchmark=benchmark,
            machine_id=machine_id,
            last_commit=commit,
            last_at=at,
            days=days,
            commits=_later(commit, places),
            stopped=0 if alive else sum(other == machine_id for _, other in last),
        )


def _later(commit: str, places: Mapping[str, float]) -> int | None:
    """Return how many of the measured commits are newer, None where git does not know this one."""
    place = places.get(commit)
    return None if place is None else sum(one > place for one in places.values())
