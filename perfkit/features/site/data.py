"""Writes what the pages' scripts read: columns of whole numbers, in files that a page loads as scripts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from perfkit.features.site.records import Reference
from perfkit.features.site.series import Placed, Series
from perfkit.features.site.wording import (
    amount_text,
    metric_title,
    ratio_text,
)
from perfkit.identity import short_run_id
from perfkit.model.history import CommitFacts, HistoryReport
from perfkit.report.console import visible

# The smallest value of a series keeps so many digits.
_DIGITS = 6
# Whole numbers up to here are exact in a script.
_LARGEST_EXACT = 2**53


def script(name: str, value: object) -> str:
    """Return a script that gives a name to a value; nothing in the value can end the script or its line."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return f'"use strict";window.{name}={text};\n'


def commits_in_order(history: HistoryReport) -> list[str]:
    """Return the commits of all runs, oldest first; one that git does not know follows the one before it."""
    keys: dict[str, tuple[int, datetime]] = {}
    for trend in history.trends:
        reached = -1
        for commit, recorded_at in zip(trend.commits, trend.recorded_at, strict=True):
            facts = history.commits.get(commit)
            if facts is not None and facts.place is not None:
                reached = facts.place
            if commit not in keys or keys[commit] > (reached, recorded_at):
                keys[commit] = (reached, recorded_at)
    return sorted(keys, key=lambda sha: (keys[sha], sha))


def commits_script(
    order: Sequence[str], commits: Mapping[str, CommitFacts], releases: Iterable[Reference]
) -> str:
    """Return the script that tells of commits; times are seconds since 1970, each minus the one before."""
    facts = [commits.get(sha) or CommitFacts(sha=sha) for sha in order]
    authors = {name: number for number, name in enumerate(dict.fromkeys(one.author for one in facts))}
    places = {sha: number for number, sha in enumerate(order)}
    known = [(one, commits.get(one.commit)) for one in releases]
    return script(
        "perfkitCommits",
        {
            "sha": list(order),
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


def benchmark_script(series: Sequence[Series], order: Mapping[str, int], history: HistoryReport) -> str:
    """Return the script with all runs of a benchmark; ``order`` numbers the commits."""
    runs = _Runs(order)
    told = [_series(one, runs) for one in series]
    return script("perfkitBenchmark", {"series": told, **runs.columns(history)})


class _Runs:
    """The runs of a benchmark, told once though several metrics were measured in them."""

    def __init__(self, order: Mapping[str, int]) -> None:
        self._order = order
        self._numbers: dict[tuple[str, str, datetime, str, str], int] = {}
        self._sources: dict[str, int] = {}
        self._environments: dict[str, int] = {}

    def number(self, key: tuple[str, str, datetime, str, str]) -> int:
        """Return the number of a run, given as (run, commit, time, source, environment)."""
        return self._numbers.setdefault(key, len(self._numbers))

    def columns(self, history: HistoryReport) -> dict[str, object]:
        """Return the columns, in the order of the numbers that runs were given."""
        keys = list(self._numbers)
        sources = self._numbered(self._sources, [source for _, _, _, source, _ in keys])
        environments = self._numbered(self._environments, [env for *_, env in keys])
        return {
            "runs": {
                "id": [short_run_id(run) for run, *_ in keys],
                "commit": _differences([self._order[commit] for _, commit, *_ in keys]),
                "time": _differences([_seconds(at) for _, _, at, _, _ in keys]),
                "source": sources,
                "env": environments,
            },
            "sources": [visible(source) for source in self._sources],
            "environments": [
                {"id": env, "facts": _facts(history.environments.get(env, {}))} for env in self._environments
            ],
        }

    @staticmethod
    def _numbered(numbers: dict[str, int], names: Iterable[str]) -> list[int]:
        return [numbers.setdefault(name, len(numbers)) for name in names]


def _series(series: Series, runs: _Runs) -> dict[str, object]:
    trends = series.trends
    points = [(trends[number], place) for number, place in series.order]
    means = [trend.means[place] for trend, place in points]
    scale, exact = _scale(means)
    at = {key: number for number, key in enumerate(series.order)}
    numbers = [
        runs.number(
            (
                trend.run_ids[place],
                trend.commits[place],
                trend.recorded_at[place],
                trend.sources[place],
                trend.env_ids[place],
            )
        )
        for trend, place in points
    ]
    limit = series.noise_limit
    return {
        "metric": visible(metric_title(series.metric)),
        "unit": visible(series.metric.unit),
        "better": series.metric.better,
        "machine": series.machine_id,
        "scale": scale,
        "exact": exact,
        "noise": None if limit is None else round(limit, 5),
        "run": _differences(numbers),
        "mean": [_scaled(value, scale) for value in means],
        "level": [_scaled(trend.levels[place], scale) for trend, place in points],
        "lockstep": series.lockstep,
        "sd": [_scaled(trend.sds[place], scale) for trend, place in points],
        "launches": [trend.launches[place] for trend, place in points],
        "version": [number for number, _ in series.order] if len(trends) > 1 else 0,
        "steps": [_step(placed, at, scale) for placed in series.placed],
    }


def _step(placed: Placed, at: Mapping[tuple[int, int], int], scale: float) -> dict[str, object]:
    step = placed.point
    return {
        "id": step.point_id,
        "at": at[placed.trend, step.place],
        "text": ratio_text(step.ratio),
        "words": amount_text(step.ratio, step.metric),
        "worse": step.worse,
        "state": step.state,
        "cause": step.cause,
        "before": _scaled(step.before.mean, scale),
        "after": _scaled(step.after.mean, scale),
        "runs": [step.before.runs, step.after.runs],
    }


def _scale(values: Sequence[float]) -> tuple[float, bool]:
    """Return what a whole number of a column is worth, and whether the numbers are then exact."""
    largest = max(map(abs, values), default=0.0)
    if all(value == math.floor(value) for value in values) and largest < _LARGEST_EXACT:
        return 1.0, True
    least = min((abs(value) for value in values if value), default=1.0)
    power = math.floor(math.log10(least)) - _DIGITS + 1
    while largest / 10.0**power > _LARGEST_EXACT:
        power += 1
    return float(f"1e{power}"), False


def _scaled(value: float | None, scale: float) -> int | float | None:
    if value is None or not math.isfinite(value):
        return None
    if scale == 1.0 and value != round(value):
        return round(value, 3)
    return round(value / scale)


def _differences(numbers: Sequence[int | None]) -> list[int | None]:
    """Return each number minus the known one before it: they are short, as neighbours are alike."""
    found: list[int | None] = []
    before = 0
    for number in numbers:
        found.append(None if number is None else number - before)
        before = before if number is None else number
    return found


def _seconds(time: datetime | None) -> int | None:
    if time is None:
        return None
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return math.floor(known.timestamp())


def _facts(facts: Mapping[str, str]) -> dict[str, str]:
    return {visible(name): visible(value) for name, value in sorted(facts.items())}
