"""Trends in the order of their commits, each of one environment after the other."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from perfkit.model.history import CommitFacts, Trend

# What was measured within an hour is alike and says nothing of another hour.
_OCCASION = timedelta(hours=1)
_COLUMNS = tuple(field.name for field in fields(Trend) if str(field.type).startswith("tuple"))


@dataclass(frozen=True, kw_only=True)
class Order:
    """The order of commits: known ones by their place in history, others by their time among those."""

    places: Mapping[str, float]

    @classmethod
    def of(cls, commits: Iterable[CommitFacts]) -> Order:
        """Return the order of commits; this clone may lack some, such as those that were rewritten.

        Such a commit stands behind the known ones that are not younger. Those without a time come last.
        """
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
        return self.places.get(sha, float("inf"))


def arrange(trends: Iterable[Trend], order: Order) -> list[Trend]:
    """Return trends in the order of their commits, runs of one commit in that of recording.

    A trend whose environments follow one another stays whole. Where they take turns, as where two versions of
    Python are measured side by side, each of them has a trend of its own.
    """
    return [part for trend in trends for part in _by_environment(_in_order(trend, order))]


def chained(trend: Trend) -> Trend:
    """Return a trend of gates with the first base and each head, whose level follows from its base's.

    Both sides of a gate ran in turns, so their ratio says more than their levels, each of its own hour.
    """
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
    """Return the places of each run in a trend: of a gate those of its base and its head."""
    runs: dict[str, list[int]] = {}
    for place, run_id in enumerate(trend.run_ids):
        runs.setdefault(run_id, []).append(place)
    return runs


def _in_order(trend: Trend, order: Order) -> Trend:
    def key(place: int) -> tuple[float, datetime, str]:
        return order.place(trend.commits[place]), trend.recorded_at[place], trend.run_ids[place]

    return select(trend, sorted(range(len(trend)), key=key))


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
        columns[name] = tuple(column[place] for place in places)
    return replace(trend, **columns)


def occasions(trend: Trend) -> tuple[Hashable, ...]:
    """Return a number for each run, shared by those that were measured without an hour's pause."""
    by_time = sorted(range(len(trend)), key=trend.recorded_at.__getitem__)
    numbers = [0] * len(trend)
    number = 0
    for before, place in itertools.pairwise(by_time):
        number += trend.recorded_at[place] - trend.recorded_at[before] >= _OCCASION
        numbers[place] = number
    return tuple(numbers)


def on_branch(trend: Trend, is_wanted: Callable[[str], bool]) -> Trend:
    """Return the runs of a trend whose commits are wanted."""
    return select(trend, [place for place, commit in enumerate(trend.commits) if is_wanted(commit)])
