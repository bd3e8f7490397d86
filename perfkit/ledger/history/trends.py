"""Trends in the order of their commits, each of one environment after the other."""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from perfkit.model.history import CommitFacts, GateRatio, Origin, Trend
from perfkit.model.results import Environment, Machine

# Runs within an hour are alike, unlike those of another hour.
_SESSION_GAP = timedelta(hours=1)
_COLUMNS = tuple(field.name for field in fields(Trend) if str(field.type).startswith("tuple"))


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of commits: known ones by their place in history, others by their time among those."""

    places: Mapping[str, float]

    @classmethod
    def of(cls, commits: Iterable[CommitFacts]) -> Order:
        """Return the order of commits; this clone may lack some, such as those that were rewritten."""
        known: list[CommitFacts] = []
        unknown: list[CommitFacts] = []
        for commit in commits:
            (unknown if commit.place is None else known).append(commit)
        places: dict[str, float] = {commit.sha: float(commit.place or 0) for commit in known}
        timed = sorted((commit.time, float(commit.place or 0)) for commit in known if commit.time is not None)
        times, until = (
            [time for time, _ in timed],
            list(itertools.accumulate((place for _, place in timed), max)),
        )
        late = sorted(unknown, key=lambda one: (one.time is None, one.time, one.sha) if one.time else (True,))
        for number, commit in enumerate(late, start=1):
            before = bisect.bisect_right(times, commit.time) if commit.time else len(until)
            place = until[before - 1] if before else -1.0
            places[commit.sha] = place + number / (len(late) + 1)
        return cls(places=places)

    def place(self, sha: str) -> float:
        """Return where a commit stands."""
        return self.places.get(sha, math.inf)

    def places_of(self, trend: Trend) -> list[float]:
        """Return where the commits of a trend stand."""
        return [self.places.get(sha, math.inf) for sha in trend.commits]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is needed beside trends to judge them."""

    order: Order
    facts_of: Callable[[Collection[str]], Mapping[str, tuple[Machine, Environment]]]
    commits_between: Callable[[str, str], int | None]
    commits_of: Callable[[str, str], frozenset[str] | None]
    changes_code: Callable[[Collection[tuple[str, str]]], Collection[tuple[str, str]]]
    gate_between: Callable[[Trend, float, float], GateRatio | None]
    is_sentinel: Callable[[str], bool]
    margin_of: Callable[[str], float]
    origins: Mapping[Origin, str]
    accepted: Collection[str]
    acquitted: Callable[[Trend, int], frozenset[str]]
    machine_moved: Callable[[tuple[str, ...], tuple[str, ...], float], bool | None]


def arrange(trends: Iterable[Trend], order: Order) -> list[Trend]:
    """Return trends in the order of their commits, runs of one commit in the order of recording."""
    return [part for trend in trends for part in _by_environment(_in_order(trend, order))]


def chained(trend: Trend) -> Trend:
    """Return a trend of gates with the first base and each head, whose level follows from its base's."""
    levels: dict[str, float] = {}
    kept: list[tuple[int, float]] = []
    for places in places_by_run(trend).values():
        base, head = places[0], places[-1]
        first = trend.commits[base]
        if first not in levels:
            levels[first] = trend.levels[base]
            kept.append((base, levels[first]))
        if len(places) == 2 and trend.levels[base] > 0:  # noqa: PLR2004 (base and head)
            level = levels[first] * trend.levels[head] / trend.levels[base]
            levels[trend.commits[head]] = level
            kept.append((head, level))
    kept.sort()
    shown = select(trend, [place for place, _ in kept])
    return replace(shown, levels=tuple(level for _, level in kept))


def places_by_run(trend: Trend) -> dict[str, list[int]]:
    """Return the places of each run in a trend; a gate has two, its base and its head."""
    runs: dict[str, list[int]] = {}
    for place, run_id in enumerate(trend.run_ids):
        runs.setdefault(run_id, []).append(place)
    return runs


def _in_order(trend: Trend, order: Order) -> Trend:
    stand = order.places_of(trend)
    if all(map(operator.lt, stand, stand[1:])):
        return trend
    keys = list(zip(stand, trend.recorded_at, trend.run_ids, strict=True))
    places = sorted(range(len(trend)), key=keys.__getitem__)
    return trend if places == list(range(len(trend))) else select(trend, places)


def _by_environment(trend: Trend) -> Iterator[Trend]:
    stretches = [name for name, _ in itertools.groupby(trend.env_ids)]
    if len(stretches) == len(set(stretches)):
        yield trend
        return
    for name in dict.fromkeys(trend.env_ids):
        yield select(trend, [place for place, env_id in enumerate(trend.env_ids) if env_id == name])


def select(trend: Trend, places: Sequence[int]) -> Trend:
    """Return a trend of some of its runs, in the order given."""
    columns: dict[str, Any] = {}
    for name in _COLUMNS:
        column = getattr(trend, name)
        columns[name] = tuple(map(column.__getitem__, places))
    return replace(trend, **columns)


def sessions(trend: Trend) -> tuple[Hashable, ...]:
    """Return a number for each run, shared by those that were measured without an hour's pause."""
    return _sessions(trend.recorded_at)


@functools.lru_cache(maxsize=128)
def _sessions(times: tuple[datetime, ...]) -> tuple[Hashable, ...]:
    # Most benchmarks have the same runs.
    by_time = sorted(range(len(times)), key=times.__getitem__)
    numbers = [0] * len(times)
    number = 0
    for before, place in itertools.pairwise(by_time):
        number += times[place] - times[before] >= _SESSION_GAP
        numbers[place] = number
    return tuple(numbers)


def on_branch(trend: Trend, is_wanted: Callable[[str], bool]) -> Trend:
    """Return the runs of a trend whose commits are wanted."""
    return select(trend, [place for place, commit in enumerate(trend.commits) if is_wanted(commit)])


# The known levels of one commit, by benchmark and version.
Levels = Mapping[tuple[str, str], float]


class Gaps:
    """The order in which to measure wanted places of a history: where it is least certain first.

    The ends come first, then the middle of the largest gap between places that are measured or about to be.
    Gaps at whose ends the known levels differ by more than ``margin``, a share, come before all others.
    """

    def __init__(self, wanted: Iterable[int], *, margin: float) -> None:
        self._wanted = sorted(set(wanted))
        self._margin = math.log1p(margin)
        self._done: set[int] = set()
        self._levels: dict[int, Levels] = {}
        self._differences: dict[tuple[int, int], bool] = {}

    @property
    def done(self) -> int:
        """How many of the wanted places are done."""
        return len(self._done.intersection(self._wanted))

    def finish(self, place: int) -> None:
        """Note that a place is measured or about to be."""
        self._done.add(place)

    def learn(self, place: int, levels: Levels) -> None:
        """Note the levels at a place, once."""
        self._levels[place] = levels

    def levels(self, place: int) -> Levels:
        """Return the levels at a place."""
        return self._levels.get(place, {})

    def beside(self, place: int) -> dict[int, Levels]:
        """Return the levels of the nearest places on both sides that are measured, the nearer one first."""
        known = sorted((self._done & self._levels.keys()) - {place})
        at = bisect_left(known, place)
        near = sorted(known[max(at - 1, 0) : at + 1], key=lambda one: abs(one - place))
        return {one: self._levels[one] for one in near}

    def next(self) -> int | None:
        """Return the place to measure next, None where no wanted one is left."""
        left = [place for place in self._wanted if place not in self._done]
        if not left:
            return None
        ends = (self._wanted[0], self._wanted[-1])
        for end in ends:
            if end not in self._done:
                return end
        gaps = [
            (self.differ(begin, end), until - since, -begin, since)
            for begin, end in itertools.pairwise(sorted({*self._done, *ends}))
            if (since := bisect_right(left, begin)) < (until := bisect_left(left, end))
        ]
        _, inside, _, since = max(gaps)
        return left[since + (inside - 1) // 2]

    def differ(self, begin: int, end: int) -> bool:
        """Return whether any benchmark's level differs by more than the margin between two places."""
        if begin not in self._levels or end not in self._levels:
            return False
        if (begin, end) not in self._differences:
            one, other = self._levels[begin], self._levels[end]
            self._differences[begin, end] = any(
                min(one[key], other[key]) > 0 and abs(math.log(other[key] / one[key])) > self._margin
                for key in one.keys() & other.keys()
            )
        return self._differences[begin, end]
