"""The ledger: a folder of immutable parquet files, append-only, one file per run."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from perfkit.errors import LedgerError, UsageError
from perfkit.extras import need
from perfkit.ledger.files import OnStep, ignore_log, list_files, run_stem, write_table
from perfkit.ledger.queries import Meant, Questions
from perfkit.ledger.recording import Run
from perfkit.ledger.remote import check_store, put_published, upload_compacted
from perfkit.ledger.schema import SCHEMA, from_microseconds, from_table, to_microseconds, to_table
from perfkit.model import (
    IMPORT_PREFIX,
    OF_CHANGED_CODE,
    OF_PAIRS,
    TYPICAL_TIME,
    WALL_TIME,
    Commit,
    Environment,
    Machine,
    Metric,
    Row,
    RunSummary,
)
from perfkit.model.history import Kind, Measured, Measurements, Trend

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd

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
    SELECT benchmark, "commit", dirty, bool_or(status = 'ok') AS timed FROM ledger WHERE {_OF_COMMITS}
    GROUP BY benchmark, "commit", dirty
) GROUP BY benchmark HAVING bool_or(timed)
"""
_MEASURED = f"""
SELECT run_id, epoch_us(recorded_at) AS recorded_at, source, "commit", subject,
    epoch_us(commit_time) AS commit_time, machine_id, env_id, benchmark, version, side, launch, block, status,
    message, n, mean, sd, same_as, dirty, filename
FROM ledger WHERE {_OF_COMMITS} AND {{benchmarks}}
ORDER BY filename, file_row_number
"""
_SAME = f"""
SELECT benchmark, version, machine_id, env_id, map_extract(policy, 'overlay')[1], "commit", same_as,
    epoch_us(max(recorded_at)) FROM ledger
WHERE same_as IS NOT NULL AND {_OF_COMMITS} AND NOT dirty GROUP BY ALL
"""
_WITH_SAME = "SELECT DISTINCT filename FROM ledger WHERE same_as IS NOT NULL"
_OVERLAYS = """
SELECT run_id, max(map_extract(policy, 'overlay')[1]) FROM ledger
WHERE list_contains($runs, run_id) GROUP BY run_id
"""
# The rows of $commits, and the times of commits that were measured in several runs.
BESIDE = f"""
list_contains($commits, "commit") OR ({_OF_COMMITS} AND NOT dirty AND "commit" IN (
    SELECT "commit" FROM ledger WHERE {_OF_COMMITS} AND NOT dirty
    GROUP BY "commit" HAVING count(DISTINCT run_id) > 1
))
"""
# These findings of a gate mean that its sides differ, not that the benchmark failed.
_NO_FAILURES = """
SELECT DISTINCT run_id, benchmark FROM ledger
WHERE status <> 'ok' AND map_extract(policy, 'verdict')[1] IN ('NEW', 'MISSING', 'CHANGED', 'SKIPPED')
"""
_VERDICTS = f"""
SELECT benchmark, any_value(policy['verdict']) FROM ledger
WHERE run_id = $run AND metric = '{WALL_TIME.name}' GROUP BY benchmark
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
_ALL_DIFFERENT = ("mean", "sd", "level")
_OF_A_TREND = ("benchmark", "version", "metric", "unit", "better", "exact", "machine_id", "lockstep")


@dataclass(frozen=True, kw_only=True)
class Here:
    """What is wanted of some benchmarks, by node ids, on one machine."""

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


class _Codes:
    """The values of a column, each once and in order, and the number of the value in each row."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        known = encoded.dictionary.to_pylist()
        order = sorted(range(len(known)), key=lambda number: (known[number] is not None, known[number]))
        ranks = np.empty(len(known), dtype=np.int64)
        ranks[order] = np.arange(len(known))
        self.distinct: list[Any] = [known[number] for number in order]
        # Its to_numpy() would import pandas.
        self.numbers = ranks[np.from_dlpack(encoded.indices)]

    def of(self, rows: npt.NDArray[np.intp]) -> list[Any]:
        """Return the values of rows; equal ones are one object, which is compared and hashed sooner."""
        return [*map(self.distinct.__getitem__, self.numbers[rows].tolist())]


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


def _trends(found: pa.Table, codes: Mapping[str, _Codes], rows: npt.NDArray[np.intp]) -> Iterator[Trend]:
    """Yield the trends that rows, in the order of their time, belong to, by their names."""
    keys = [codes[name].numbers[rows] for name in _OF_A_TREND]
    by_trend = np.lexsort(keys[::-1])
    rows = rows[by_trend]
    # In one go for all trends: their columns are slices.
    columns = {
        attribute: codes[name].of(rows)
        if name in codes
        else [*map(found[name].to_pylist().__getitem__, rows.tolist())]
        for name, attribute in _OF_A_RUN.items()
    }
    differs = np.any([key[by_trend[1:]] != key[by_trend[:-1]] for key in keys], axis=0)
    edges = [0, *(np.flatnonzero(differs) + 1).tolist(), len(rows)] if len(rows) else []
    for begin, end in itertools.pairwise(edges):
        benchmark, version, metric, unit, better, exact, machine_id, lockstep = (
            codes[name].distinct[codes[name].numbers[rows[begin]]] for name in _OF_A_TREND
        )
        own: dict[str, Any] = {name: tuple(column[begin:end]) for name, column in columns.items()}
        yield Trend(
            benchmark=benchmark,
            version=version,
            metric=Metric(name=metric, unit=unit, better=better, exact=exact),
            machine_id=machine_id,
            lockstep=lockstep,
            **own,
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


def _times(microseconds: Sequence[int | None]) -> list[datetime | None]:
    made = {one: None if one is None else from_microseconds(one) for one in set(microseconds)}
    return [made[one] for one in microseconds]


_FRAME = "a data frame"


class Ledger:
    """The measurements kept in one folder."""

    def __init__(self, path: Path, *, on_step: OnStep = ignore_log) -> None:
        self.path = path
        self._on_step = on_step
        self._questions = Questions(path)

    def run(
        self,
        *,
        source: str,
        run_id: str,
        recorded_at: datetime,
        folder: Path | None = None,
        put: Callable[[Path], None] = put_published,
    ) -> Run:
        """Begin a run, for ``with``: its rows are staged as they come and published at the end.

        ``put`` uploads the file to the ledger's store.
        """
        return Run.begin(
            self.path,
            source=source,
            run_id=run_id,
            recorded_at=recorded_at,
            folder=folder,
            put=put,
            on_step=self._on_step,
        )

    def append(self, rows: Sequence[Row]) -> Path:
        """Write the rows of a whole run as one new file and return its path; nothing existing is touched."""
        if not rows:
            raise LedgerError("a run without a single row cannot be recorded")
        first = min(rows, key=lambda row: row.recorded_at)
        target = self.path / f"{run_stem(first.recorded_at, first.source, first.run_id)}.parquet"
        try:
            write_table(to_table(rows), target, on_step=self._on_step)
        except OSError as error:
            raise LedgerError(
                f"cannot write the ledger file {target} ({error.strerror or error}); "
                "choose another place with --ledger PATH"
            ) from error
        put_published(target)
        return target

    def check_writable(self, *, store: bool = True) -> None:
        """Refuse a ledger that could not take a file, before anything is measured; it is not begun yet."""
        try:
            there = next(place for place in (self.path, *self.path.parents) if os.path.lexists(place))
            probe = there / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise LedgerError(
                f"cannot write to the ledger {self.path} ({error.strerror or error}); "
                "choose another place with --ledger PATH"
            ) from error
        if store:
            check_store(self.path)

    def compact(self) -> None:
        """Put the rows of all files into one; the old ones go only when it is safely written."""
        # Recording alone need not wait for this import.
        from perfkit.ledger.maintenance import compact_all

        compact_all(self.path, on_step=self._on_step)
        upload_compacted(self.path)

    def files(self) -> list[Path]:
        """Return the ledger's files, oldest first, without those that compacting has replaced."""
        return list(list_files(self.path).present)

    def rows(self) -> list[Row]:
        """Return every row, in the order of recording."""
        return from_table(self._questions.rows())

    def rows_on(self, commits: Collection[str]) -> list[Row]:
        """Return the rows of some commits, in the order of recording, without reading what has none."""
        return from_table(self._questions.rows('list_contains($commits, "commit")', commits=sorted(commits)))

    def rows_beside(self, commits: Collection[str]) -> list[Row]:
        """Return the rows of some commits, and the times of all that were measured in more than one run."""
        return from_table(self._questions.rows(BESIDE, commits=sorted(commits)))

    def rows_from(self, source: str) -> list[Row]:
        """Return the rows of the runs of one source, in the order of recording."""
        return from_table(self._questions.rows("source = $source", source=source))

    def rows_of(self, run: str) -> list[Row]:
        """Return the rows of the run whose id begins or ends with ``run``."""
        known = self._questions.ask("SELECT DISTINCT run_id FROM ledger")
        found = sorted(name for (name,) in known if name.startswith(run) or name.endswith(run))
        if not found:
            raise LedgerError(f'no run "{run}" in {self.path}; see "perfkit ledger list"')
        if len(found) > 1:
            raise LedgerError(
                f'"{run}" could mean {len(found)} runs ({", ".join(found[:3])} …); give more of it'
            )
        return from_table(self._questions.rows("run_id = $run", run=found[0]))

    def times_of(self, run_id: str, benchmark: str) -> list[Row]:
        """Return a benchmark's rows of wall times in one run, those of lower-quartile calls included."""
        wanted = 'run_id = $run AND benchmark = $benchmark AND metric IN ($time, $typical) AND NOT "exact"'
        names = {"time": WALL_TIME.name, "typical": TYPICAL_TIME.name}
        return from_table(self._questions.rows(wanted, run=run_id, benchmark=benchmark, **names))

    def timed_benchmarks(self) -> dict[str, int]:
        """Return the benchmarks that were timed, with the number of commits without uncommitted changes."""
        return dict(self._questions.ask(_TIMED))

    def measurements(self, benchmarks: Collection[str]) -> Measurements:
        """Return the times of benchmarks at commits, a place for each launch, and failures."""
        if not benchmarks:
            return Measurements(measured=())
        meant = Meant(sorted(benchmarks))
        question = _MEASURED.format(benchmarks=meant.condition)
        found = self._questions.columns(question, **meant.parameters).to_pydict()
        is_dirty, names = found.pop("dirty"), found.pop("filename")
        dirty = frozenset(itertools.compress(found["run_id"], is_dirty))
        files = dict(zip(found["run_id"], names, strict=True))
        for name in ("recorded_at", "commit_time"):
            found[name] = _times(found[name])
        measured = [one for one in map(Measured, *found.values()) if one.run_id not in dirty]
        if failed := {one.run_id for one in measured if one.status != "ok"}:
            # Rows whose launch failed are few, and so are the files that hold them.
            known = set(self._questions.ask(_NO_FAILURES, within={files[run] for run in failed}))
            measured = [
                one if one.status == "ok" else one._replace(compared=(one.run_id, one.benchmark) not in known)
                for one in measured
            ]
        machines, environments = self._places(found, files)
        return Measurements(
            measured=tuple(measured), machines=machines, environments=environments, dirty_runs=dirty
        )

    def same_code(self) -> dict[tuple[Kind, str, str], datetime]:
        """Return the pairs of commits that run the same code for a benchmark, and when that was found."""
        # Few runs have any, and the index lacks the policies.
        files = {name for (name,) in self._questions.ask(_WITH_SAME)}
        found = self._questions.ask(_SAME, within=files) if files else []
        return {(Kind(*kind), sha, same_as): from_microseconds(at) for *kind, sha, same_as, at in found}

    def imported_commits(self) -> frozenset[str]:
        """Return the commits that the ledger has other tools' measurements of."""
        question = 'SELECT DISTINCT "commit" FROM ledger WHERE starts_with(source, $prefix)'
        return frozenset(sha for (sha,) in self._questions.ask(question, prefix=IMPORT_PREFIX))

    def outcomes_of_runs(self, source: str) -> dict[str, tuple[int, str]]:
        """Return of each run of a source how many rows are measured, and why another is not."""
        question = """
        SELECT run_id, count(*) FILTER (status = 'ok'), coalesce(max(message) FILTER (status <> 'ok'), '')
        FROM ledger WHERE source = $source GROUP BY run_id
        """
        found = self._questions.ask(question, source=source)
        return {run_id: (measured, reason) for run_id, measured, reason in found}

    def runs(self) -> list[RunSummary]:
        """Return a summary of each run, oldest first."""
        found = self._questions.ask(_RUNS)
        commits: dict[str, list[str]] = {}
        if several := {one[0]: one[-3] for one in found if one[-2] != one[-1]}:
            question, within = _COMMITS_OF_RUNS, set(several.values())
            for run_id, commit in self._questions.ask(question, within=within, runs=list(several)):
                commits.setdefault(run_id, []).append(commit)
        failed_in = {one[-3] for one in found if one[6]}
        counts = dict(self._questions.ask(_FAILED_COUNTS, within=failed_in)) if failed_in else {}
        runs = (_summary(one, commits.get(one[0], one[-1:]), counts.get(one[0], 0)) for one in found)
        return sorted(runs, key=lambda run: (run.recorded_at, run.run_id))

    def runs_in(self, file: Path) -> list[str]:
        """Return the ids of the runs that a file of this ledger holds, in the order of recording."""
        wanted = "SELECT run_id FROM ledger WHERE filename = $file GROUP BY run_id ORDER BY min(recorded_at)"
        return [run for (run,) in self._questions.ask(wanted, file=str(self.path / file.name))]

    def metrics(self) -> list[str]:
        """Return the names of the metrics of all rows."""
        return [name for (name,) in self.ask("SELECT DISTINCT metric FROM ledger ORDER BY metric")]

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """Return the rows of the answer to a trusted question in SQL, which selects from ``ledger``."""
        return self._questions.ask(question)

    def to_pandas(
        self,
        *,
        benchmark: str | None = None,
        commit: str | None = None,
        source: str | None = None,
        since: datetime | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """Return rows as a data frame, one column per ledger column, ``values`` as arrays.

        ``benchmark`` is a node id or the end of one, ``commit`` the beginning of a hash. ``columns`` are
        those to read, all by default: without ``values`` a large ledger takes a fraction of the time.
        """
        need("pandas", by=_FRAME)
        for name in columns or ():
            if name not in SCHEMA.names:
                raise UsageError(f'the ledger has no column "{name}"; it has {", ".join(SCHEMA.names)}')
        chosen = pa.schema([SCHEMA.field(name) for name in columns or SCHEMA.names])
        listed = ", ".join(f'"{name}"' for name in chosen.names)
        meant = Meant(() if benchmark is None else (benchmark,))
        found = self._questions.columns(
            f"SELECT {listed} FROM ledger WHERE {meant.condition}"
            ' AND starts_with("commit", $commit) AND ($source IS NULL OR source = $source)'
            " AND epoch_us(recorded_at) >= $since ORDER BY filename, file_row_number",
            **meant.parameters,
            commit=commit or "",
            source=source,
            since=0 if since is None else to_microseconds(since),
        )
        frame: pd.DataFrame = found.cast(chosen).to_pandas()
        return frame

    def sql(self, question: str) -> pd.DataFrame:
        """Return the answer to a question in SQL, which selects from ``ledger``, as a data frame.

        Example: ``sql('SELECT benchmark, avg(mean) FROM ledger GROUP BY benchmark')``. The columns "commit",
        "values", "group" and "order" are written in quotes.
        """
        need("pandas", by=_FRAME)
        frame: pd.DataFrame = self._questions.answer(question).to_pandas()
        return frame

    def series(self, benchmark: str, *, metric: str = "time", since: datetime | None = None) -> pd.DataFrame:
        """Return what each run measured of a benchmark, in the order of recording, as a data frame.

        Its columns are those of ``perfkit.model.history.Trend``; mean and sd are over launches. Runs with
        uncommitted changes are left out. ``benchmark`` is a node id or the end of one.
        """
        need("pandas", by=_FRAME)
        import pandas as pd

        wanted = Wanted(benchmarks=(benchmark,), metric=metric, since=since)
        return pd.DataFrame(points_of(self.trends(wanted).trends))

    def trends(self, wanted: Wanted) -> Trends:
        """Return the trends of what is wanted, in the order of their benchmarks' names."""
        meant = Meant(sorted(wanted.benchmarks))
        levels = _LEVELS.format(benchmarks=meant.condition, here="true" if wanted.here is None else _HERE)
        limits: dict[str, object] = {}
        if (here := wanted.here) is not None:
            levels = _LAST.format(levels=levels)
            limits = {"named": sorted(here.benchmarks), "machine_id": here.machine_id, "env_id": here.env_id}
            limits["most"] = here.runs
        found = self._questions.columns(
            levels,
            metric=wanted.metric,
            **meant.parameters,
            **limits,
            since=0 if wanted.since is None else to_microseconds(wanted.since),
        )
        codes = {name: _Codes(found[name]) for name in found.column_names if name not in _ALL_DIFFERENT}
        times = codes["recorded_at"]
        times.distinct = [*map(from_microseconds, times.distinct)]
        runs, commits = codes["run_id"].numbers, codes["commit"].numbers
        by_time = np.lexsort((commits, runs, times.numbers))
        # The newest row of each commit in a run has what all rows of it have.
        measured = (runs * (commits.max(initial=0) + 1) + commits)[by_time]
        _, firsts = np.unique(measured, return_index=True)
        _, lasts = np.unique(measured[::-1], return_index=True)
        kept = by_time[len(by_time) - 1 - lasts[np.argsort(firsts)]]
        newest = {name: one.of(kept) for name, one in codes.items()}
        dirty = frozenset(itertools.compress(newest["run_id"], newest["dirty"]))
        files = dict(zip(newest["run_id"], newest["filename"], strict=True))
        # Who asks for what was measured here knows this machine and this environment.
        machines, environments = ({}, {}) if wanted.here else self._places(newest, files)
        facts = zip(newest["subject"], newest["commit_time"], strict=True)
        described = dict(zip(newest["commit"], facts, strict=True))
        if dirty:
            left_out = [number for number, run in enumerate(codes["run_id"].distinct) if run in dirty]
            by_time = by_time[~np.isin(runs[by_time], left_out)]
        return Trends(
            trends=tuple(_trends(found, codes, by_time)),
            dirty_runs=dirty,
            commits={
                sha: Commit(sha=sha, subject=subject, time=None if time is None else from_microseconds(time))
                for sha, (subject, time) in described.items()
            },
            machines=machines,
            environments=environments,
            files=files,
        )

    def facts_of_runs(self, files: Mapping[str, str]) -> dict[str, tuple[Machine, Environment]]:
        """Return the machine and the environment of some runs, each given with the file that holds it."""
        found = self._questions.ask(_FACTS, within=set(files.values()), runs=sorted(files))
        return {
            run: (
                Machine(machine_id=machine_id, facts=machine or {}),
                Environment(env_id=env_id, facts=env or {}),
            )
            for run, machine_id, machine, env_id, env in found
        }

    def verdicts_of_gate(self, run: str, file: str) -> dict[str, str | None]:
        """Return the verdict on the time of each benchmark in a gate, which is in a file."""
        return dict(self._questions.ask(_VERDICTS, within={file}, run=run))

    def overlays_of_runs(self, files: Mapping[str, str]) -> dict[str, str | None]:
        """Return the commit of benchmark files that was laid over each run, given with its file."""
        return dict(self._questions.ask(_OVERLAYS, within=set(files.values()), runs=sorted(files)))

    def _places(
        self, found: Mapping[str, Sequence[Any]], files: Mapping[str, str]
    ) -> tuple[dict[str, Machine], dict[str, Environment]]:
        ids = zip(found["machine_id"], found["env_id"], strict=True)
        samples = dict(zip(ids, found["run_id"], strict=True))
        facts = self.facts_of_runs({run: files[run] for run in samples.values()}).values()
        machines = {machine.machine_id: machine for machine, _ in facts}
        return machines, {environment.env_id: environment for _, environment in facts}
