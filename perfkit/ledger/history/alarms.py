"""Alarms beside change points: drifts, visible rises, and benchmarks that are no longer measured."""

from __future__ import annotations

import calendar
import hashlib
import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perfkit.ledger.history.change_points import BUILT_IN_MOVED, WithoutMachine, around_step
from perfkit.ledger.history.trends import Facts, places_by_run, select, sessions
from perfkit.model.history import ChangePoint, Kind, Origin, Rise, RiseKind, Silence, Trend
from perfkit.model.history import Creep as Drift
from perfkit.stats.change_points import SHORTEST, LikelyStep, to_and_fro, two_levels, weekly
from perfkit.stats.interval import student_quantile

# One in two hundred on either side.
_DRIFT_ERROR = 0.01
_FEWEST_GATES = 3
# A benchmark that was measured once or twice is not expected to be measured again.
_FEWEST_RUNS = 3
_ID_DIGITS = 8

# The commits of each gate.
_Measured = tuple[frozenset[str], ...]


@dataclass(frozen=True, kw_only=True)
class _Link:
    """The log ratio and variance of a gate over ``commits``, from base at ``begin`` to head at ``end``."""

    begin: float
    end: float
    base: str
    head: str
    commits: frozenset[str]
    log_ratio: float
    variance: float
    launches: int


def find_gate_drifts(trends: Iterable[Trend], facts: Facts, *, since: float) -> Iterator[Drift]:
    """Yield the benchmarks whose gates of merged commits add up to a loss beyond the margin since a place.

    Log ratios add up over gates that have no commit in common. The interval is Student's t at 99 %, with the
    means of both sides taken as independent: launches of both sides have much in common, so it is too wide.
    """
    known: dict[_Measured, list[frozenset[str]]] = {}
    for trend in trends:
        if not trend.lockstep or trend.metric.better != "lower":
            continue
        chain = _chain([link for link in _links(trend, facts) if link.begin >= since], known)
        if len(chain) < _FEWEST_GATES:
            continue
        total = math.fsum(link.log_ratio for link in chain)
        variance = math.fsum(link.variance for link in chain)
        launches = sum(link.launches for link in chain)
        # Each link has two means.
        half = student_quantile(max(launches - 2 * len(chain), 1), _DRIFT_ERROR) * math.sqrt(variance)
        margin = facts.margin_of(trend.benchmark)
        if total - half > math.log1p(margin):
            yield Drift(
                benchmark=trend.benchmark,
                machine_id=trend.machine_id,
                since=chain[0].base,
                until=max(chain, key=lambda link: link.end).head,
                ratio=math.exp(total),
                low=math.exp(total - half),
                high=math.exp(total + half),
                margin=margin,
            )


def _links(trend: Trend, facts: Facts) -> Iterator[_Link]:
    """Yield a link for each run of a trend that interleaved two commits."""
    for places in places_by_run(trend).values():
        if len(places) != 2:  # noqa: PLR2004 (base and head)
            continue
        base, head = sorted(places, key=lambda place: facts.order.place(trend.commits[place]))
        relative = [_relative_variance(trend, place) for place in (base, head)]
        commits = facts.commits_of(trend.commits[base], trend.commits[head])
        if not commits or None in relative or min(trend.means[base], trend.means[head]) <= 0:
            continue
        yield _Link(
            begin=facts.order.place(trend.commits[base]),
            end=facts.order.place(trend.commits[head]),
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
    """Return links that have no commit in common, in the order of their bases."""
    last = {link.commits: link for link in links}
    measured = tuple(last)
    if measured not in known:
        known[measured] = _counting(measured)
    return sorted((last[commits] for commits in known[measured]), key=lambda link: link.begin)


def _counting(measured: _Measured) -> list[frozenset[str]]:
    """Return which sets of commits count, so that no commit counts twice.

    A set with two or more disjoint parts that were measured themselves gives way to them, such as a gate
    against a release. The largest of the rest come first, since they include later fixes of the same change.
    """
    by_size = sorted(measured, key=len)
    whole = [one for one in by_size if len(_disjoint(part for part in by_size if part < one)) <= 1]
    return _disjoint(reversed(whole))


def _disjoint(measured: Iterable[frozenset[str]]) -> list[frozenset[str]]:
    found: list[frozenset[str]] = []
    covered: set[str] = set()
    for commits in measured:
        if covered.isdisjoint(commits):
            found.append(commits)
            covered |= commits
    return found


def find_drifts(
    trends: Sequence[Trend],
    points: Iterable[ChangePoint],
    common: WithoutMachine,
    facts: Facts,
    is_wanted: Callable[[str], bool],
) -> Iterator[Drift]:
    """Yield the drifts in plain runs, one for each wanted benchmark and machine.

    A drift counts from the best level, else the last release, else the base; change points are taken out. A
    rise that all benchmarks share is a drift of each until a sentinel drifts as well.
    """
    found: dict[tuple[str, str], Drift] = {}
    numbers = {id(trend): number for number, trend in enumerate(trends)}
    for trend, own in _with_steps(trends, points):
        drift = _drift_of(trend, own, facts) if is_wanted(trend.benchmark) else None
        key = (trend.benchmark, trend.machine_id)
        if drift is not None and (key not in found or drift.low > found[key].low):
            sides = _ends(trend, drift.since)
            cause = common.cause(numbers[id(trend)], trend, sides, drift.ratio, facts)
            found[key] = replace(drift, detail=BUILT_IN_MOVED if cause == "machine" else "")
    sentinels = [one for one in found.values() if facts.is_sentinel(one.benchmark)]
    for one in found.values():
        if not facts.is_sentinel(one.benchmark):
            detail = one.detail or _machine_evidence(one, sentinels, facts)
            yield replace(one, cause="machine", detail=detail) if detail else one


def find_rises(
    trends: Sequence[Trend],
    points: Iterable[ChangePoint],
    drifts: Iterable[Drift],
    common: WithoutMachine,
    facts: Facts,
    is_wanted: Callable[[str], bool],
) -> Iterator[Rise]:
    """Yield the wanted benchmarks whose chart steps, rises or has a pattern without a change point."""
    reported = {(one.benchmark, one.machine_id) for one in drifts}
    numbers = {id(trend): number for number, trend in enumerate(trends)}
    shown = [
        (trend, steps)
        for trend, steps in _with_steps(trends, points)
        if (trend.benchmark, trend.machine_id) not in reported
        and not facts.is_sentinel(trend.benchmark)
        and is_wanted(trend.benchmark)
    ]
    steady = [trend for trend, steps in shown if not steps]
    found_of = to_and_fro([trend.levels for trend in steady])
    habits = {numbers[id(trend)]: habit for trend, habit in zip(steady, found_of, strict=True)}
    for trend, steps in shown:
        key, number = (trend.benchmark, trend.machine_id), numbers[id(trend)]
        if key in reported:
            continue
        first, levels = _without_steps(trend, steps, facts.accepted)
        judged = _in_known_environment(trend, first)
        first = max(first, judged.env_ids.index(judged.env_ids[-1]))
        begin = max([first, *(step.place for step in steps)])
        seen = common.likely_step(number, judged, begin, facts.order)
        found = None if steps else _pattern(trend, habits[number], seen)
        if (
            found is None
            and not (seen and seen.probable)
            and not any(one.state == "open" and one.cause == "code" for one in steps)
        ):
            found = _rise(judged, levels[: len(judged)], first)
        if found is None and seen is not None:
            kind: RiseKind = "step" if seen.probable else "possible step"
            found = replace(
                _shown(judged, seen.place - 1, seen.place, seen.ratio, kind),
                runs=len(trend) - seen.place,
                needed=seen.needed,
            )
        if found is not None:
            reported.add(key)
            sides = around_step(len(trend) - found.runs) if found.runs else _ends(judged, found.since)
            cause = None if found.is_pattern else common.cause(number, trend, sides, found.ratio, facts)
            yield replace(found, cause=cause)


def _in_known_environment(trend: Trend, first: int) -> Trend:
    """Leave out the last runs, from ``first`` on, of environments with too few runs to show a step."""
    end = len(trend)
    while end:
        begin = trend.env_ids.index(trend.env_ids[end - 1])
        if begin <= first or end - begin >= SHORTEST:
            break
        end = begin
    if end in (0, len(trend)):
        return trend
    return select(trend, range(end))


def _ends(trend: Trend, since: str) -> tuple[slice, slice]:
    """Return the runs at both ends of a rise since a commit."""
    return around_step(trend.commits.index(since))[1], around_step(len(trend))[0]


def _shown(trend: Trend, since: int, until: int, ratio: float, kind: RiseKind) -> Rise:
    return Rise(
        benchmark=trend.benchmark,
        machine_id=trend.machine_id,
        since=trend.commits[since],
        until=trend.commits[until],
        ratio=ratio,
        kind=kind,
    )


def _pattern(trend: Trend, habit: tuple[int, float] | None, step: LikelyStep | None) -> Rise | None:
    """Return the pattern of a level that keeps coming back, on one side of a probable step too."""
    levels, last = trend.levels, len(trend) - 1
    if habit:
        return replace(_shown(trend, 0, last, habit[1], "to and fro"), changes=habit[0])
    if step and step.probable and not (two_levels(levels[: step.place]) or two_levels(levels[step.place :])):
        return None
    if week := weekly(levels, trend.recorded_at):
        days = tuple(calendar.day_name[day] for day in week[0])
        return replace(_shown(trend, 0, last, week[1], "weekly"), days=days)
    if habit := two_levels(levels):
        return replace(_shown(trend, 0, last, habit[1], "two levels"), changes=habit[0])
    return None


def _rise(trend: Trend, levels: Sequence[float], first: int) -> Rise | None:
    """Return how far the last levels visibly lie above the best one."""
    from perfkit.stats.drift import best_place, visible_rise

    start = first + best_place(levels[first:])
    ratio = visible_rise(levels[start:])
    return None if ratio is None else _shown(trend, start, len(trend) - 1, ratio, "rise")


def _with_steps(
    trends: Sequence[Trend], points: Iterable[ChangePoint]
) -> Iterator[tuple[Trend, Sequence[ChangePoint]]]:
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
    first = _accepted_place(trend, accepted)
    levels = list(trend.levels)
    for step in steps:
        levels[step.place :] = [level / step.ratio for level in levels[step.place :]]
        # No level before a gain is the best one.
        first = first if step.worse else max(first, step.place)
    return first, levels


def _newest_versions(trends: Iterable[Trend]) -> Iterator[Trend]:
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


def _drift_of(trend: Trend, steps: Iterable[ChangePoint], facts: Facts) -> Drift | None:
    from perfkit.stats.drift import FEWEST, best_place, find_drift

    if len(trend) < FEWEST:
        return None
    first, levels = _without_steps(trend, steps, facts.accepted)
    places = facts.order.places_of(trend)
    starts: dict[Origin, int] = {"best": first + best_place(levels[first:])}
    for origin, commit in facts.origins.items():
        at = facts.order.place(commit)
        starts[origin] = max(first, bisect_right(places, at) - 1)
    margin = facts.margin_of(trend.benchmark)
    measured_in = sessions(trend)
    for origin, start in starts.items():
        drift = find_drift(
            levels[start:], sessions=measured_in[start:], environments=trend.env_ids[start:], least=margin
        )
        if drift is not None:
            return Drift(
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
                creep_id=_drift_id(trend, len(trend) - 1),
            )
    return None


def _drift_id(trend: Trend, place: int) -> str:
    named = (trend.benchmark, trend.version, trend.metric.name, trend.machine_id, trend.commits[place])
    return hashlib.sha256(repr(("drift", *named)).encode()).hexdigest()[:_ID_DIGITS]


def _accepted_place(trend: Trend, accepted: Collection[str]) -> int:
    if not accepted:
        return 0
    return next((place for place in reversed(range(len(trend))) if _drift_id(trend, place) in accepted), 0)


def _machine_evidence(drift: Drift, sentinels: Iterable[Drift], facts: Facts) -> str:
    for other in sentinels:
        if other.machine_id == drift.machine_id and other.high >= drift.low:
            return f"the sentinel {other.benchmark} became slower as well"
    same_code = not facts.changes_code([(drift.since, drift.until)])
    return "no code differs between the commits" if same_code else ""


def find_silences(
    trends: Sequence[Trend],
    *,
    now: datetime,
    most_days: int,
    places: Mapping[str, float],
    same: Mapping[tuple[Kind, str, str], datetime],
) -> Iterator[Silence]:
    """Yield the benchmarks that were not measured for more than ``most_days`` days, by machine.

    One that need not be, since it runs the ``same`` code as before, is not silent.
    """
    last: dict[tuple[str, str], tuple[datetime, str, int]] = {}
    for trend in trends:
        key = (trend.benchmark, trend.machine_id)
        newest = max(range(len(trend)), key=trend.recorded_at.__getitem__)
        at, commit, runs = last.get(key, (trend.recorded_at[newest], trend.commits[newest], 0))
        if trend.recorded_at[newest] >= at:
            at, commit = trend.recorded_at[newest], trend.commits[newest]
        last[key] = (at, commit, runs + len(trend))
    for (kind, commit, _), at in same.items():
        key = (kind.benchmark, kind.machine_id)
        if key in last and at > last[key][0]:
            last[key] = (at, commit, last[key][2])
    newest_of: dict[str, datetime] = {}
    newest_regular: dict[str, datetime] = {}
    for (_, machine_id), (at, _, runs) in last.items():
        newest_of[machine_id] = max(at, newest_of.get(machine_id, at))
        if runs >= _FEWEST_RUNS:
            newest_regular[machine_id] = max(at, newest_regular.get(machine_id, at))
    reported: set[str] = set()
    for (benchmark, machine_id), (at, commit, runs) in last.items():
        if runs < _FEWEST_RUNS:
            continue
        alive = (now - newest_of[machine_id]).days <= most_days
        days = ((newest_of[machine_id] if alive else now) - at).days
        is_newest = at == newest_regular[machine_id] and machine_id not in reported
        if days <= most_days or not (alive or is_newest):
            continue
        reported.add(machine_id)
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
    place = places.get(commit)
    return None if place is None else sum(one > place for one in places.values())
