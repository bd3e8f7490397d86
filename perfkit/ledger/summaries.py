"""What a ledger's runs measured, in summaries: made by queries, without raw values, and not row by row."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perfkit.ledger.queries import Questions
from perfkit.ledger.schema import from_microseconds, to_microseconds
from perfkit.records import OF_CHANGED_CODE, Commit, Metric, RunSummary
from perfkit.records.history import Trend

# These measure both sides in turns in processes forked for it, and their levels differ from others'.
LOCKSTEP = ("gate", "bisect")
_RUNS = """
SELECT run_id, epoch_us(min(recorded_at)), count(*), bool_or(dirty), count(DISTINCT benchmark),
    count(DISTINCT ("commit", launch)), count(*) FILTER (status <> 'ok' AND NOT counted),
    arg_min({'source': source, 'subject': subject, 'machine': machine_id}, recorded_at),
    min("commit"), max("commit")
FROM ledger GROUP BY run_id
"""
_COMMITS_OF_RUNS = """
SELECT run_id, "commit" FROM ledger WHERE list_contains($runs, run_id)
GROUP BY ALL ORDER BY min(filename), min(file_row_number)
"""
# A run's level is the lower quartile of its launches' medians: other work on the machine only slows.
_LEVELS = """
SELECT benchmark, version, metric, unit, better, "exact", machine_id, source IN ({lockstep}) AS lockstep,
    env_id, run_id, "commit", any_value(source) AS source, epoch_us(min(recorded_at)) AS recorded_at,
    count(*) AS launches, avg(mean) AS mean,
    CASE WHEN count(*) > 1 THEN stddev_samp(mean) ELSE any_value(sd) END AS sd,
    quantile_cont(median, 0.25) AS level, bool_or(dirty) AS dirty
FROM ledger
WHERE status = 'ok' AND mean IS NOT NULL AND source NOT IN ({changed}) AND metric = $metric{conditions}
GROUP BY ALL ORDER BY benchmark, version, unit, better, "exact", machine_id, lockstep, recorded_at, run_id
"""
_OF_A_TREND = ("benchmark", "version", "metric", "unit", "better", "exact", "machine_id", "lockstep")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which measurements are wanted: of these benchmarks, or all; since a time; of one metric."""

    benchmarks: Collection[str] = ()
    metric: str = "time"
    since: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Trends:
    """Trends, each in the order of recording, and the runs left out since they had uncommitted changes."""

    trends: tuple[Trend, ...]
    dirty_runs: frozenset[str] = field(default_factory=frozenset)


def read_runs(questions: Questions) -> list[RunSummary]:
    """Return what each run measured in a line, oldest first.

    Raises:
        LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
    """
    found = questions.ask(_RUNS)
    several = [run_id for run_id, *_, first, last in found if first != last]
    commits: dict[str, list[str]] = {}
    if several:
        for run_id, commit in questions.ask(_COMMITS_OF_RUNS, runs=several):
            commits.setdefault(run_id, []).append(commit)
    runs = (_summary(one, commits.get(one[0], one[-1:])) for one in found)
    return sorted(runs, key=lambda run: (run.recorded_at, run.run_id))


def _summary(found: Sequence[Any], commits: Sequence[str]) -> RunSummary:
    run_id, recorded_at, rows, dirty, benchmarks, launches, failed, first, *_ = found
    return RunSummary(
        run_id=run_id,
        recorded_at=from_microseconds(recorded_at),
        source=first["source"],
        commits=tuple(commits),
        subject=first["subject"],
        dirty=dirty,
        benchmarks=benchmarks,
        launches=launches,
        rows=rows,
        failed=failed,
        machine_id=first["machine"],
    )


def read_trends(questions: Questions, wanted: Wanted) -> Trends:
    """Return the trends of what is wanted, in the order of their benchmarks' names.

    Raises:
        LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
    """
    conditions = ""
    parameters: dict[str, object] = {}
    if wanted.benchmarks:
        conditions += " AND list_contains($benchmarks, benchmark)"
        parameters["benchmarks"] = sorted(wanted.benchmarks)
    if wanted.since is not None:
        conditions += " AND recorded_at >= make_timestamptz($since)"
        parameters["since"] = to_microseconds(wanted.since)
    found = questions.columns(
        _LEVELS.format(
            lockstep=_listed(LOCKSTEP), changed=_listed(sorted(OF_CHANGED_CODE)), conditions=conditions
        ),
        metric=wanted.metric,
        **parameters,
    )
    dirty = frozenset(found.filter(found["dirty"])["run_id"].to_pylist())
    return Trends(trends=tuple(_trends(found.to_pydict(), dirty)), dirty_runs=dirty)


def _trends(columns: Mapping[str, Sequence[Any]], dirty: Collection[str]) -> Iterator[Trend]:
    keys = list(zip(*(columns[name] for name in _OF_A_TREND), strict=True))
    for key, places in itertools.groupby(range(len(keys)), keys.__getitem__):
        kept = [place for place in places if columns["run_id"][place] not in dirty]
        if not kept:
            continue
        benchmark, version, metric, unit, better, exact, machine_id, lockstep = key

        def of(name: str, kept: Sequence[int] = kept) -> tuple[Any, ...]:
            column = columns[name]
            return tuple(column[place] for place in kept)

        yield Trend(
            benchmark=benchmark,
            version=version,
            metric=Metric(name=metric, unit=unit, better=better, exact=exact),
            machine_id=machine_id,
            lockstep=lockstep,
            run_ids=of("run_id"),
            commits=of("commit"),
            recorded_at=tuple(map(from_microseconds, of("recorded_at"))),
            sources=of("source"),
            env_ids=of("env_id"),
            launches=of("launches"),
            means=of("mean"),
            sds=of("sd"),
            levels=of("level"),
        )


def read_commits(questions: Questions) -> dict[str, Commit]:
    """Return what the ledger knows of each commit that it has measurements of."""
    known = questions.ask(
        'SELECT "commit", arg_max(subject, recorded_at), epoch_us(max(commit_time)) FROM ledger GROUP BY ALL'
    )
    return {
        sha: Commit(sha=sha, subject=subject, time=None if time is None else from_microseconds(time))
        for sha, subject, time in known
    }


def read_facts(questions: Questions, kind: str) -> dict[str, Mapping[str, str]]:
    """Return the facts of each machine, or environment: ``kind`` is "machine" or "env".

    They are those of one run each, since maps of all rows take long to read.
    """
    runs = questions.ask(f"SELECT {kind}_id, max(run_id) FROM ledger GROUP BY {kind}_id")
    found = questions.ask(
        f"SELECT {kind}_id, any_value({kind}) FROM ledger"
        f" WHERE list_contains($runs, run_id) GROUP BY {kind}_id",
        runs=[run for _, run in runs],
    )
    return {name: dict(facts or {}) for name, facts in found}


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"'{word}'" for word in words)
