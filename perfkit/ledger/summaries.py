"""What a ledger's runs measured, in summaries: made by queries, without raw values, and not row by row."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from perfkit.ledger.queries import Meant, Questions
from perfkit.ledger.schema import from_microseconds, to_microseconds
from perfkit.model import OF_CHANGED_CODE, OF_PAIRS, Commit, Environment, Machine, Metric, RunSummary
from perfkit.model.change_log import Measured, Measurements
from perfkit.model.history import Trend

# These measure both sides in turns in processes forked for it, and their levels differ from others'.
_LOCKSTEP = ", ".join(f"'{source}'" for source in sorted(OF_PAIRS))
_CHANGED = ", ".join(f"'{source}'" for source in sorted(OF_CHANGED_CODE))
_OF_COMMITS = f"metric = 'time' AND NOT \"exact\" AND source NOT IN ({_CHANGED})"
_RUNS = """
SELECT run_id, epoch_us(min(recorded_at)), count(*), bool_or(dirty), count(DISTINCT benchmark),
    count(DISTINCT ("commit", launch)), count(*) FILTER (status <> 'ok'),
    arg_min({'source': source, 'subject': subject, 'where': machine_id}, recorded_at),
    max(filename), min("commit"), max("commit")
FROM ledger GROUP BY run_id
"""
_COMMITS_OF_RUNS = """
SELECT run_id, "commit" FROM ledger WHERE list_contains($runs, run_id)
GROUP BY ALL ORDER BY min(filename), min(file_row_number)
"""
# Whether a row is of a count takes as long to read as all else of it, and few rows failed.
_FAILED_COUNTS = """
SELECT run_id, count(*) FROM ledger WHERE status <> 'ok' AND counted GROUP BY run_id
"""
_TIMED = f"""
SELECT benchmark, count(*) FILTER (NOT dirty) FROM (
    SELECT DISTINCT benchmark, "commit", dirty FROM ledger WHERE {_OF_COMMITS}
) GROUP BY benchmark
"""
_MEASURED = f"""
SELECT run_id, epoch_us(recorded_at) AS recorded_at, source, "commit", subject,
    epoch_us(commit_time) AS commit_time, machine_id, env_id, benchmark, version, side, launch, block, status,
    message, n, mean, sd, dirty, filename
FROM ledger WHERE {_OF_COMMITS} AND {{benchmarks}}
ORDER BY filename, file_row_number
"""
# The rows of $commits, and the times of commits that were measured in several runs.
BESIDE = f"""
list_contains($commits, "commit") OR ({_OF_COMMITS} AND NOT dirty AND "commit" IN (
    SELECT "commit" FROM ledger WHERE {_OF_COMMITS} AND NOT dirty
    GROUP BY "commit" HAVING count(DISTINCT run_id) > 1
))
"""
# These findings of a gate only say that its sides differ; they do not mean that the benchmark failed.
_NO_FAILURES = """
SELECT DISTINCT run_id, benchmark FROM ledger
WHERE status <> 'ok' AND map_extract(policy, 'verdict')[1] IN ('NEW', 'MISSING', 'CHANGED', 'SKIPPED')
"""
_FACTS = """
SELECT DISTINCT ON (run_id) run_id, machine_id, machine, env_id, env FROM ledger
WHERE list_contains($runs, run_id) ORDER BY run_id, filename, file_row_number
"""
# A run's level is the lower quartile over its launches of the quickest round: other work on the machine only
# slows. Of what other tools measured the rounds may not be known.
_LEVELS = f"""
SELECT benchmark, version, metric, unit, better, "exact", machine_id, source IN ({_LOCKSTEP}) AS lockstep,
    env_id, run_id, "commit", any_value(source) AS source, epoch_us(min(recorded_at)) AS recorded_at,
    count(*) AS launches, avg(mean) AS mean,
    CASE WHEN count(*) > 1 THEN stddev_samp(mean) ELSE any_value(sd) END AS sd,
    quantile_cont(coalesce(lowest, median, mean), 0.25) AS level, bool_or(dirty) AS dirty,
    any_value(subject) AS subject, epoch_us(max(commit_time)) AS commit_time, max(filename) AS filename
FROM ledger
WHERE status = 'ok' AND mean IS NOT NULL AND source NOT IN ({_CHANGED}, 'experiment') AND metric = $metric
    AND {{benchmarks}}
    AND epoch_us(recorded_at) >= $since AND {{here}}
GROUP BY ALL
"""
_IN_ORDER = ' ORDER BY benchmark, version, unit, better, "exact", machine_id, lockstep, recorded_at, run_id'
_HERE = """benchmark IN (SELECT unnest($named)) AND machine_id = $machine_id
    AND ($env_id IS NULL OR env_id = $env_id)"""
_LAST = """FROM ({levels}) QUALIFY row_number() OVER (
    PARTITION BY benchmark, version, unit, better, "exact", machine_id, lockstep
    ORDER BY recorded_at DESC, run_id DESC
) <= $most
"""
_OF_A_RUN = {
    "run_id": "run_ids",
    "commit": "commits",
    "recorded_at": "recorded_at",
    "source": "sources",
    "env_id": "env_ids",
    "launches": "launches",
    "mean": "means",
    "sd": "sds",
    "level": "levels",
}
_OF_A_TREND = ("benchmark", "version", "metric", "unit", "better", "exact", "machine_id", "lockstep")


@dataclass(frozen=True, kw_only=True)
class Here:
    """What is wanted of some benchmarks, by node ids, on one machine.

    It is the newest ``runs`` runs of each trend, of one environment, or of any where ``env_id`` is None.
    """

    benchmarks: Collection[str]
    machine_id: str
    env_id: str | None
    runs: int


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which measurements are wanted: of these benchmarks, node ids or ends of some, or of all."""

    benchmarks: Collection[str] = ()
    metric: str = "time"
    since: datetime | None = None
    here: Here | None = None


@dataclass(frozen=True, kw_only=True)
class Trends:
    """Trends, each in the order of recording, and what is known of their commits, machines and environments.

    ``dirty_runs`` are left out since they had uncommitted changes; ``files`` has the file of each run.
    """

    trends: tuple[Trend, ...]
    dirty_runs: frozenset[str] = frozenset()
    commits: Mapping[str, Commit] = field(default_factory=dict)
    machines: Mapping[str, Machine] = field(default_factory=dict)
    environments: Mapping[str, Environment] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def read_runs(questions: Questions) -> list[RunSummary]:
    """Return what each run measured in a line, oldest first.

    Raises:
        LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
    """
    found = questions.ask(_RUNS)
    several = {one[0]: one[-3] for one in found if one[-2] != one[-1]}
    commits: dict[str, list[str]] = {}
    if several:
        within = set(several.values())
        for run_id, commit in questions.ask(_COMMITS_OF_RUNS, within=within, runs=list(several)):
            commits.setdefault(run_id, []).append(commit)
    failed = {one[0]: one[-3] for one in found if one[6]}
    counts: dict[str, int] = {}
    if failed:
        within = set(failed.values())
        counts = dict(questions.ask(_FAILED_COUNTS, within=within))
    runs = (_summary(one, commits.get(one[0], one[-1:]), counts.get(one[0], 0)) for one in found)
    return sorted(runs, key=lambda run: (run.recorded_at, run.run_id))


def _summary(found: Sequence[Any], commits: Sequence[str], failed_counts: int) -> RunSummary:
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
        failed=failed - failed_counts,
        machine_id=first["where"],
    )


def read_trends(questions: Questions, wanted: Wanted) -> Trends:
    """Return the trends of what is wanted, in the order of their benchmarks' names.

    Raises:
        LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
    """
    meant = Meant(sorted(wanted.benchmarks))
    levels = _LEVELS.format(benchmarks=meant.condition, here="true" if wanted.here is None else _HERE)
    limits: dict[str, object] = {}
    if (here := wanted.here) is not None:
        levels = _LAST.format(levels=levels)
        limits = {"named": sorted(here.benchmarks), "machine_id": here.machine_id, "env_id": here.env_id}
        limits["most"] = here.runs
    found = questions.columns(
        levels + _IN_ORDER,
        metric=wanted.metric,
        **meant.parameters,
        **limits,
        since=0 if wanted.since is None else to_microseconds(wanted.since),
    ).to_pydict()
    runs, commits = found["run_id"], found["commit"]
    dirty = frozenset(run for run, is_dirty in zip(runs, found["dirty"], strict=True) if is_dirty)
    files = dict(zip(runs, found["filename"], strict=True))
    # Who asks for what was measured here knows this machine and this environment.
    machines, environments = ({}, {}) if wanted.here else _places(questions, found, files)
    told = dict(zip(commits, zip(found["subject"], found["commit_time"], strict=True), strict=True))
    return Trends(
        trends=tuple(_trends(found, dirty)),
        dirty_runs=dirty,
        commits={
            sha: Commit(sha=sha, subject=subject, time=None if time is None else from_microseconds(time))
            for sha, (subject, time) in told.items()
        },
        machines=machines,
        environments=environments,
        files=files,
    )


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


def points_of(trends: Sequence[Trend]) -> dict[str, list[Any]]:
    """Return the runs of several trends by column, in the order of recording."""
    columns: dict[str, list[Any]] = {name: [] for name in (*_OF_A_TREND, *_OF_A_RUN)}
    for trend in trends:
        shared = (
            trend.benchmark,
            trend.version,
            *(trend.metric.name, trend.metric.unit, trend.metric.better, trend.metric.exact),
            *(trend.machine_id, trend.lockstep),
        )
        for name, value in zip(_OF_A_TREND, shared, strict=True):
            columns[name] += [value] * len(trend)
        for name, attribute in _OF_A_RUN.items():
            columns[name] += getattr(trend, attribute)
    order = sorted(range(len(columns["run_id"])), key=lambda place: columns["recorded_at"][place])
    return {name: [column[place] for place in order] for name, column in columns.items()}


def timed_benchmarks(questions: Questions) -> dict[str, int]:
    """Return the benchmarks that were timed, with the number of commits without changes beside them.

    Raises:
        LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
    """
    return dict(questions.ask(_TIMED))


def read_measurements(questions: Questions, benchmarks: Collection[str]) -> Measurements:
    """Return the times of benchmarks at commits, a place for each launch, and failures.

    ``benchmarks`` are node ids, or ends of some; none of them means none.

    Raises:
        LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
    """
    if not benchmarks:
        return Measurements(measured=())
    meant = Meant(sorted(benchmarks))
    found = questions.columns(_MEASURED.format(benchmarks=meant.condition), **meant.parameters).to_pydict()
    is_dirty, names = found.pop("dirty"), found.pop("filename")
    dirty = frozenset(itertools.compress(found["run_id"], is_dirty))
    files = dict(zip(found["run_id"], names, strict=True))
    for name in ("recorded_at", "commit_time"):
        found[name] = _times(found[name])
    measured = [one for one in map(Measured, *found.values()) if one.run_id not in dirty]
    if failed := {one.run_id for one in measured if one.status != "ok"}:
        # Rows whose launch failed are few, and so are the files that hold them.
        known = set(questions.ask(_NO_FAILURES, within={files[run] for run in failed}))
        measured = [
            one if one.status == "ok" else one._replace(compared=(one.run_id, one.benchmark) not in known)
            for one in measured
        ]
    machines, environments = _places(questions, found, files)
    return Measurements(
        measured=tuple(measured),
        machines=machines,
        environments=environments,
        dirty_runs=dirty,
    )


def _times(microseconds: Sequence[int | None]) -> list[datetime | None]:
    """Return times, each made once: many rows share one."""
    made = {one: None if one is None else from_microseconds(one) for one in set(microseconds)}
    return [made[one] for one in microseconds]


def _places(
    questions: Questions, found: Mapping[str, Sequence[Any]], files: Mapping[str, str]
) -> tuple[dict[str, Machine], dict[str, Environment]]:
    """Return the machines and environments of what was found, by the facts of one run in each."""
    ids = zip(found["machine_id"], found["env_id"], strict=True)
    samples = dict(zip(ids, found["run_id"], strict=True))
    facts = read_facts(questions, {run: files[run] for run in samples.values()}).values()
    machines = {machine.machine_id: machine for machine, _ in facts}
    return machines, {environment.env_id: environment for _, environment in facts}


def read_facts(questions: Questions, files: Mapping[str, str]) -> dict[str, tuple[Machine, Environment]]:
    """Return the machine and the environment of some runs, each given with the file that holds it.

    Raises:
        LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
    """
    found = questions.ask(_FACTS, within=set(files.values()), runs=sorted(files))
    return {
        run: (
            Machine(machine_id=machine_id, facts=machine or {}),
            Environment(env_id=env_id, facts=env or {}),
        )
        for run, machine_id, machine, env_id, env in found
    }
