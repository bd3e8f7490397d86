"""Change points of trends: their cause, the gates around them, and what all benchmarks of a run share."""

from __future__ import annotations

import hashlib
import itertools
import math
import shlex
import statistics
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, TypeVar

import numpy as np

from perfkit.ledger.history.trends import Facts, Order, select, sessions
from perfkit.model.history import Cause, ChangePoint, GateRatio, Moved, Shift, Trend
from perfkit.model.results import WALL_TIME, Environment, Machine, Row
from perfkit.model.surroundings import MACHINE_SPEEDS, FactChange, lasting_changes, package_options
from perfkit.stats.change_points import (
    LikelyStep,
    Sought,
    Step,
    describe_step,
    find_all_steps,
    likely_step,
    remove_common_factor,
)

T = TypeVar("T")
_ID_DIGITS = 8
# A change point this near to where the environment changes is that change.
_BESIDE = 2
# The machine is seen in so many runs on either side of a change, of which so many have timed fixed work.
_AROUND, _FEWEST_SPEEDS, _HALF = 10, 3, 0.5
# A level is back where it is this near to what it was, or within the sd.
_BACK = 0.02
BUILT_IN_MOVED = "the built-in sentinel moved as well"


def find_change_points(
    trends: Sequence[Trend], common: WithoutMachine, facts: Facts, is_wanted: Callable[[str], bool]
) -> list[ChangePoint]:
    """Return the change points of the wanted benchmarks, and those that others made together with them."""
    wanted = {number: trend for number, trend in enumerate(trends) if is_wanted(trend.benchmark)}
    others = {number: trend for number, trend in enumerate(trends) if number not in wanted}
    levels = [common.levels.get(number, trend.levels) for number, trend in wanted.items()]
    own = dict(zip(wanted, _own_steps([*wanted.values()], levels), strict=True))
    found = _drafts_of(wanted, own, common, facts)
    shifts = {point.shift for points in found.values() for point in points if point.shift}
    shared = replace(common, steps=tuple(one for one in common.steps if one.shift_id in shifts))
    found |= _drafts_of(others, {}, shared, facts)
    drafts = [(trend, point) for number, trend in enumerate(trends) for point in with_returns(found[number])]
    runs = {run for trend, point in drafts for run in trend.run_ids[point.place - 1 : point.place + 1]}
    known = facts.facts_of(runs) if runs else {}
    placed = [_with_places(trend, point, known) for trend, point in drafts]
    sentinels = [point for point in placed if facts.is_sentinel(point.benchmark)]
    by_code = [point for point in placed if point.cause == "code"]
    changed = facts.changes_code({(point.last_before, point.first_after) for point in by_code})
    return [_with_cause(point, sentinels, changed, facts) for point in placed]


def around_step(place: int) -> tuple[slice, slice]:
    """Return which runs before a place and after it show how the machine was."""
    return slice(max(place - _AROUND, 0), place), slice(place, place + _AROUND)


def machine_moved(
    before: Sequence[Mapping[str, str]], after: Sequence[Mapping[str, str]], ratio: float
) -> bool | None:
    """Return whether what fixed work took moved by at least half of a ratio, None where that is open.

    Args:
        before: The facts of the machine in the runs before the change.
        after: Those in the runs after it.
        ratio: What the benchmarks took after / before.
    """
    found: list[bool | None] = []
    for name in MACHINE_SPEEDS:
        sides = [np.log([float(facts[name]) for facts in side if name in facts]) for side in (before, after)]
        if min(map(len, sides)) < _FEWEST_SPEEDS:
            continue
        middles = [float(np.median(side)) for side in sides]
        off = np.concatenate([np.abs(side - middle) for side, middle in zip(sides, middles, strict=True)])
        error = 1.4826 * float(np.median(off)) * math.sqrt(sum(math.pi / 2 / len(side) for side in sides))
        share, doubt = (middles[1] - middles[0]) / math.log(ratio), 3 * error / abs(math.log(ratio))
        found.append(
            True if share - doubt > 0 and share > _HALF else False if share + doubt < _HALF else None
        )
    return True if True in found else None if None in found or not found else False


def _drafts_of(
    trends: Mapping[int, Trend], own: Mapping[int, Sequence[Step]], common: WithoutMachine, facts: Facts
) -> dict[int, list[ChangePoint]]:
    """Return the change points that trends made with others, and their ``own``, by their number."""
    together = {number for step in common.steps for number in step.trends if number in trends}
    known = find_all_steps([Sought(trends[number].levels) for number in together])
    beside = dict(zip(together, known, strict=True))
    return {
        number: [*_drafts(number, trend, own.get(number, ()), beside.get(number, ()), common, facts)]
        for number, trend in trends.items()
    }


def _drafts(
    number: int,
    trend: Trend,
    own: Sequence[Step],
    beside: Sequence[Step],
    common: WithoutMachine,
    facts: Facts,
) -> Iterator[ChangePoint]:
    found = [_point(trend, step, facts) for step in own]
    for step in common.steps:
        if number not in step.trends:
            continue
        place, moved = step.step_of(trend, beside, facts.order)
        found = [point for point in found if abs(point.place - place) > _BESIDE]
        if moved is not None:
            found.append(replace(_point(trend, moved, facts), shift=step.shift_id))
    for point in sorted(found, key=lambda point: point.place):
        cause = common.cause(number, trend, around_step(point.place), point.ratio, facts)
        yield replace(point, cause="machine", detail=BUILT_IN_MOVED) if cause == "machine" else point


def _own_steps(trends: Sequence[Trend], levels: Sequence[Sequence[float]]) -> list[list[Step]]:
    """Return the steps of each trend within its environments, and those from one to the next."""
    found: list[list[Step]] = [[] for _ in trends]
    hours = [*map(sessions, trends)]
    edges = [
        [0, *(place for place in range(1, len(trend)) if _differs(trend.env_ids, place)), len(trend)]
        if trend.metric.exact or min(own, default=1.0) > 0
        else []
        for trend, own in zip(trends, levels, strict=True)
    ]
    for part in range(max(map(len, edges), default=1) - 1):
        here = [number for number, own in enumerate(edges) if part < len(own) - 1]
        if part:
            since = [found[number][-1].place if found[number] else 0 for number in here]
            near = find_all_steps(
                [
                    Sought(
                        levels[number][begin : (end := edges[number][part + 1])],
                        trends[number].metric.exact,
                        [*zip(trends[number].env_ids[begin:end], hours[number][begin:end], strict=True)],
                    )
                    for number, begin in zip(here, since, strict=True)
                ]
            )
            for number, begin, steps in zip(here, since, near, strict=True):
                place = edges[number][part]
                beside = [step for step in steps if abs(begin + step.place - place) <= _BESIDE]
                found[number] += [replace(step, place=place) for step in beside[:1]]
        within = [slice(*edges[number][part : part + 2]) for number in here]
        inside = find_all_steps(
            [
                Sought(levels[number][own], trends[number].metric.exact, hours[number][own])
                for number, own in zip(here, within, strict=True)
            ]
        )
        for number, own, steps in zip(here, within, inside, strict=True):
            found[number] += [replace(step, place=own.start + step.place) for step in steps]
    return found


def _differs(names: Sequence[str], place: int) -> bool:
    return names[place] != names[place - 1]


def _point(trend: Trend, step: Step, facts: Facts) -> ChangePoint:
    last, first = trend.commits[step.place - 1], trend.commits[step.place]
    named = (trend.benchmark, trend.version, trend.metric.name, trend.machine_id, trend.lockstep, last, first)
    begin, end = facts.order.place(last), facts.order.place(first)
    commits, acquitted = facts.commits_between(last, first), facts.acquitted(trend, step.place)
    return ChangePoint(
        point_id=hashlib.sha256(repr(named).encode()).hexdigest()[:_ID_DIGITS],
        benchmark=trend.benchmark,
        version=trend.version,
        metric=trend.metric,
        machine_id=trend.machine_id,
        place=step.place,
        last_before=last,
        first_after=first,
        commits=None if commits is None else commits - len(acquitted),
        before=step.before,
        after=step.after,
        ratio=step.ratio,
        low=step.low,
        high=step.high,
        chance=step.chance,
        gate=facts.gate_between(trend, begin, end),
        acquitted=tuple(acquitted),
    )


def with_returns(points: Sequence[ChangePoint]) -> Iterator[ChangePoint]:
    """Yield the change points of a trend with which of them the others undo, and which undo others."""
    for one in points:
        way = 1 if one.ratio > 1 else -1
        back = way * one.before.mean + _near(one)
        yield replace(
            one,
            undone=any(later.place > one.place and way * later.after.mean <= back for later in points),
            undoes=any(
                before.place < one.place
                and (before.ratio > 1) != (one.ratio > 1)
                and abs(one.after.mean - before.before.mean) <= _near(before)
                for before in points
            ),
        )


def _near(point: ChangePoint) -> float:
    """Return how far from the level before a change point counts as back: less than half of the change."""
    before = point.before
    return max(before.sd or 0.0, min(_BACK * before.mean, abs(point.after.mean - before.mean) / 2))


def _with_places(
    trend: Trend, point: ChangePoint, known: Mapping[str, tuple[Machine, Environment]]
) -> ChangePoint:
    before, after = (known.get(trend.run_ids[point.place - back]) for back in (1, 0))
    if before is None or after is None:
        return point
    changes = lasting_changes(before, after)
    if not changes:
        return point
    options, command = package_options(changes), ""
    if options and point.metric == WALL_TIME:
        command = shlex.join(["perfkit", "bisect", *options, "--benchmark", point.benchmark])
    detail = "; ".join(map(_fact_text, changes))
    return replace(point, cause="environment", detail=detail, command=command)


def _fact_text(change: FactChange) -> str:
    before, after = ("not set" if value is None else value for value in (change.before, change.after))
    return f"{change.fact} {before} -> {after}"


def _with_cause(
    point: ChangePoint,
    sentinels: Iterable[ChangePoint],
    changed: Collection[tuple[str, str]],
    facts: Facts,
) -> ChangePoint:
    evidence = "" if point.cause != "code" else _machine_evidence(point, sentinels, changed, facts)
    return replace(point, cause="machine", detail=evidence) if evidence else point


def _machine_evidence(
    point: ChangePoint,
    sentinels: Iterable[ChangePoint],
    changed: Collection[tuple[str, str]],
    facts: Facts,
) -> str:
    if facts.is_sentinel(point.benchmark):
        return "it is a sentinel, which no commit can slow down"
    moved = next((other for other in sentinels if _is_same(point, other, facts.order)), None)
    if moved is not None:
        return f"the sentinel {moved.benchmark} moved as well"
    if point.gate is not None and _refutes(point.gate, point):
        return "a gate of these commits, side by side, found no such change"
    if point.last_before == point.first_after:
        return "both runs are of one commit"
    if point.acquitted and not point.commits:
        return "the benchmark runs the same code at all of its commits"
    same_code = (point.last_before, point.first_after) not in changed
    return "no code differs between the commits" if same_code else ""


def _is_same(point: ChangePoint, sentinel: ChangePoint, order: Order) -> bool:
    ranges = [(order.place(one.last_before), order.place(one.first_after)) for one in (point, sentinel)]
    overlap = min(end for _, end in ranges) - max(begin for begin, _ in ranges)
    same_direction = (point.ratio > 1) == (sentinel.ratio > 1)
    least = min(abs(math.log(point.low)), abs(math.log(point.high)))
    return (
        point.machine_id == sentinel.machine_id
        and overlap >= 0
        and same_direction
        and least <= max(abs(math.log(sentinel.low)), abs(math.log(sentinel.high)))
    )


def _refutes(gate: GateRatio, point: ChangePoint) -> bool:
    return gate.low <= 1 <= gate.high and (gate.high < point.low or gate.low > point.high)


def noise_of(trend: Trend, points: Iterable[ChangePoint], *, drifts: bool = False) -> float | None:
    """Return the relative sd of runs between change points, None for fewer than three runs.

    It is 1.4826 times the median absolute deviation of log levels from the median of their stretch (Rousseeuw
    and Croux 1993). If the trend ``drifts``, differences between neighbouring runs are used.
    """
    if len(trend) < 3 or trend.metric.exact or min(trend.levels) <= 0:  # noqa: PLR2004 (a deviation needs three)
        return None
    cuts = [0, *sorted(point.place for point in points), len(trend)]
    off: list[float] = []
    for begin, end in itertools.pairwise(cuts):
        logs = [math.log(level) for level in trend.levels[begin:end]]
        if drifts:
            logs = [(after - before) / math.sqrt(2) for before, after in itertools.pairwise(logs)]
        middle = statistics.median(logs) if logs else 0.0
        off += [abs(log - middle) for log in logs]
    return 1.4826 * statistics.median(off)


# A common factor needs this many benchmarks in a run.
_FEWEST = 4
# A benchmark took part in a shift if it moved by at least this share of it.
_LEAST_PART = 0.25


class _Measured(NamedTuple):
    """A run at a commit, in the order of commits."""

    place: float
    recorded_at: datetime
    run_id: str
    commit: str


@dataclass(frozen=True, kw_only=True)
class CommonStep:
    """A change point of the common factor of several ``trends``, given by their places."""

    trends: tuple[int, ...]
    machine_id: str
    last_before: str
    first_after: str
    at: datetime
    ratio: float
    chance: float
    around: tuple[tuple[str, ...], tuple[str, ...]]

    @property
    def shift_id(self) -> str:
        """The id of the shift, stable for its machine and commits."""
        named = (self.machine_id, self.last_before, self.first_after, self.ratio > 1)
        return hashlib.sha256(repr(named).encode()).hexdigest()[:_ID_DIGITS]

    def place_in(self, trend: Trend, order: Order) -> int:
        """Return the place of the step in a trend."""
        keys = [
            (order.place(commit), at) for commit, at in zip(trend.commits, trend.recorded_at, strict=True)
        ]
        return bisect_left(keys, (order.place(self.first_after), self.at))

    def step_of(self, trend: Trend, beside: Sequence[Step], order: Order) -> tuple[int, Step | None]:
        """Return the place of the step in a trend with these steps, and the trend's own there, if any."""
        place = self.place_in(trend, order)
        step = describe_step(trend.levels, place, beside=beside, chance=self.chance)
        if step is None or step.low <= 1 <= step.high:
            return place, None
        return place, step if self.has_part(step.ratio) else None

    def has_part(self, ratio: float) -> bool:
        """Return whether a benchmark's own change is part of the step."""
        own, common = math.log(ratio), math.log(self.ratio)
        return own / common >= _LEAST_PART


@dataclass(frozen=True, kw_only=True)
class WithoutMachine:
    """The levels of trends, by their place, without the common factor of their runs, and its steps."""

    levels: Mapping[int, Sequence[float]]
    steps: tuple[CommonStep, ...]
    likely: tuple[CommonStep, ...]

    def cause(
        self, number: int, trend: Trend, sides: tuple[slice, slice], ratio: float, facts: Facts
    ) -> Cause | None:
        """Return the cause of a change between runs as the built-in sentinel shows it, None if it does not.

        A change that is mostly the benchmark's own, and not that of all in its runs, is none of the machine.
        """
        if trend.lockstep or trend.metric.exact or ratio == 1:
            return None
        own = [statistics.median(levels[side]) for side in sides if (levels := self.levels.get(number))]
        if own and math.log(own[1] / own[0]) / math.log(ratio) > _HALF:
            return None
        moved = facts.machine_moved(trend.run_ids[sides[0]], trend.run_ids[sides[1]], ratio)
        return None if moved is None else "machine" if moved else "code"

    def likely_step(self, number: int, trend: Trend, begin: int, order: Order) -> LikelyStep | None:
        """Return the likely step of a trend after a place, the common one first, then a probable one."""
        for step in (*self.likely, *self.steps[::-1]):
            place = step.place_in(trend, order)
            if number in step.trends and begin < place < len(trend):
                # Half of few runs may be outliers, which are slow.
                before, after = (
                    np.quantile(trend.levels[begin:place], 0.25),
                    np.quantile(trend.levels[place:], 0.25),
                )
                ratio = float(after / before)
                if step.has_part(ratio):
                    return LikelyStep(place, ratio, probable=True)
        both = (self.levels.get(number, trend.levels), trend.levels)
        found = [one for levels in both if (one := likely_step(levels[begin : len(trend)])) is not None]
        best = max(found, key=lambda one: one.probable, default=None)
        return None if best is None else best._replace(place=begin + best.place)


def without_machine(
    trends: Sequence[Trend], order: Order, is_sentinel: Callable[[str], bool]
) -> WithoutMachine:
    """Remove from each trend the common factor of the others in the same runs.

    Exact counters do not depend on the machine's speed. Sentinels stay as they are, since they show whether
    the machine or the code changed, and so do gates, whose ratios are free of the machine.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    for place, trend in enumerate(trends):
        if not trend.lockstep and not trend.metric.exact and min(trend.levels) > 0:
            groups.setdefault((trend.machine_id, tuple(dict.fromkeys(trend.env_ids))), []).append(place)
    levels: dict[int, Sequence[float]] = {}
    steps: list[CommonStep] = []
    likely: list[CommonStep] = []
    for places in groups.values():
        if len(places) < _FEWEST:
            continue
        beside = [trends[place] for place in places]
        keys = [(trend.run_ids, trend.commits, trend.recorded_at) for trend in beside]
        # Most benchmarks have the same runs.
        measured = {
            key: list(_runs(trend, order)) for key, trend in dict(zip(keys, beside, strict=True)).items()
        }
        runs = [_Measured(*run) for run in sorted(set(itertools.chain(*measured.values())))]
        numbers: dict[tuple[float, datetime, str, str], int] = {run: row for row, run in enumerate(runs)}
        rows_of = {key: list(map(numbers.__getitem__, own)) for key, own in measured.items()}
        rows = [rows_of[key] for key in keys]
        table = np.full((len(runs), len(beside)), np.nan)
        for column, (own, trend) in enumerate(zip(rows, beside, strict=True)):
            table[own, column] = trend.levels
        found = remove_common_factor(table)
        for column, (place, trend) in enumerate(zip(places, beside, strict=True)):
            if not is_sentinel(trend.benchmark):
                levels[place] = found.levels[rows[column], column].tolist()
        clear = found.machine_steps()
        begin = clear[-1].place if clear else 0
        known = [run for run in range(begin, len(runs)) if math.isfinite(found.factor[run])]
        seen = likely_step(found.factor[known])
        for kept, place, ratio, chance in (
            *((steps, step.place, step.ratio, step.chance) for step in clear),
            *([(likely, known[seen.place], seen.ratio, 1.0)] if seen and seen.probable else []),
        ):
            before, after = (tuple(run.run_id for run in runs[side]) for side in around_step(place))
            kept.append(
                CommonStep(
                    trends=tuple(places),
                    machine_id=beside[0].machine_id,
                    last_before=runs[place - 1].commit,
                    first_after=runs[place].commit,
                    at=runs[place].recorded_at,
                    ratio=ratio,
                    chance=chance,
                    around=(before, after),
                )
            )
    return WithoutMachine(levels=levels, steps=tuple(steps), likely=tuple(likely))


def _runs(trend: Trend, order: Order) -> Iterator[tuple[float, datetime, str, str]]:
    return zip(order.places_of(trend), trend.recorded_at, trend.run_ids, trend.commits, strict=True)


def shifts_of(
    common: WithoutMachine,
    trends: Sequence[Trend],
    points: Sequence[ChangePoint],
    facts: Facts,
) -> Iterator[Shift]:
    """Yield the steps that several benchmarks made together, with the cause that their own steps show."""
    for step in common.steps:
        measured = {name for place in step.trends if not facts.is_sentinel(name := trends[place].benchmark)}
        moved = [
            point
            for point in points
            if point.shift == step.shift_id
            and point.benchmark in measured
            and (point.ratio > 1) == (step.ratio > 1)
        ]
        if not moved:
            continue
        causes = {point.cause for point in moved}
        watched = any(
            one.machine_id == step.machine_id and facts.is_sentinel(one.benchmark) for one in trends
        )
        watched = watched or facts.machine_moved(*step.around, step.ratio) is False
        shown = causes.pop() if "code" not in causes and len(causes) == 1 else None
        yield Shift(
            machine_id=step.machine_id,
            last_before=step.last_before,
            first_after=step.first_after,
            at=step.at,
            benchmarks=len({point.benchmark for point in moved}),
            measured=len(measured),
            ratio=statistics.median(point.ratio for point in moved),
            low=statistics.median(point.low for point in moved),
            high=statistics.median(point.high for point in moved),
            cause=shown or ("code" if watched else None),
            shift_id=step.shift_id,
            detail=moved[0].detail,
        )


def moved_since_last(rows: Iterable[Row], trends: Iterable[Trend]) -> list[Moved]:
    """Return how each timed benchmark of a pytest session moved since its last run, the farthest first."""
    known = {(one.benchmark, one.version): one for one in trends if not one.lockstep}
    found = []
    for row in rows:
        outcome = row.outcome
        trend = known.get((outcome.benchmark.name, outcome.benchmark.version))
        if trend is None or outcome.metric != WALL_TIME or outcome.status != "ok" or not outcome.values:
            continue
        past = select(trend, [place for place, run in enumerate(trend.run_ids) if run != row.run_id])
        level = min(outcome.values)
        if len(past) and min(*past.levels, level, math.inf) > 0:
            last = {session: place for place, session in enumerate(sessions(past))}
            spread = noise_of(select(past, sorted(last.values())), ())
            ratio = level / past.levels[-1]
            found.append(
                Moved(benchmark=outcome.benchmark.name, ratio=ratio, commit=past.commits[-1], spread=spread)
            )
    return sorted(found, key=lambda one: -one.size)
