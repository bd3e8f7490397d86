"""What no list of steps shows: losses that add up little by little, and benchmarks that have gone silent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from perfkit.history.trends import Order, places_by_run
from perfkit.records.history import Creep, Silence, Trend
from perfkit.stats.interval import student_quantile

# One in two hundred on either side: the alarm is for a sum that nobody would call noise.
_CREEP_ERROR = 0.01
_FEWEST_GATES = 3
# A benchmark that was measured once or twice has no habit that it could break.
_FEWEST_RUNS = 3


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


def find_silence(
    trends: Sequence[Trend], *, now: datetime, most_days: int, places: Mapping[str, float]
) -> Iterator[Silence]:
    """Yield the benchmarks that were not measured for more than ``most_days`` days, each machine apart.

    A benchmark's versions count together. A machine on which nothing at all was measured for so long is told
    once, by that of these benchmarks which was measured there last: its others did not stop by themselves.
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
        )


def _later(commit: str, places: Mapping[str, float]) -> int | None:
    """Return how many of the measured commits are newer, None where git does not know this one."""
    place = places.get(commit)
    return None if place is None else sum(one > place for one in places.values())
