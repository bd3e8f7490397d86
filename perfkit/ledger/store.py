"""The ledger: a folder of immutable parquet files, append-only, one file per run."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfkit.errors import LedgerError
from perfkit.extras import need
from perfkit.ledger.files import (
    OnStep,
    ignore_log,
    present_files,
    run_stem,
    write_table,
)
from perfkit.ledger.queries import Questions, select_rows
from perfkit.ledger.recording import Run
from perfkit.ledger.remote import check_store, put_published, upload_compacted
from perfkit.ledger.schema import from_table, to_table
from perfkit.ledger.summaries import (
    BESIDE,
    Trends,
    Wanted,
    points_of,
    read_facts,
    read_measurements,
    read_runs,
    read_trends,
    timed_benchmarks,
)
from perfkit.model import (
    IMPORT_PREFIX,
    TYPICAL_TIME,
    WALL_TIME,
    Environment,
    Machine,
    Row,
    RunSummary,
)
from perfkit.model.change_log import Measurements

if TYPE_CHECKING:
    import pandas as pd

_FRAME = "a data frame"


class Ledger:
    """The measurements kept in one folder."""

    def __init__(self, path: Path, *, on_step: OnStep = ignore_log) -> None:
        self.path = path
        self._on_step = on_step
        self._questions = Questions(path)

    def run(self, *, source: str, run_id: str, recorded_at: datetime, folder: Path | None = None) -> Run:
        """Begin a run whose rows are staged as they come, for ``with``; the end of the block publishes them.

        They are staged in ``folder``, by default where ``recover`` finds those of a run that was cut off.

        Raises:
            LedgerError: the run was recorded already, or the ledger cannot be written.
        """
        return Run.begin(
            self.path,
            source=source,
            run_id=run_id,
            recorded_at=recorded_at,
            folder=folder,
            on_step=self._on_step,
        )

    def append(self, rows: Sequence[Row]) -> Path:
        """Write the rows of a whole run as one new file and return its path; nothing existing is touched.

        Raises:
            LedgerError: there are no rows, or the folder cannot be written.
            RecordingError: the file is in the copy of a ledger in a store, and not in the store yet.
        """
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

    def check_writable(self) -> None:
        """Refuse a ledger that could not take a file, before anything is measured.

        Raises:
            LedgerError: the folder cannot be made or written, or its store takes nothing.
        """
        probe = self.path / f".probe-{os.getpid()}"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise LedgerError(
                f"cannot write to the ledger {self.path} ({error.strerror or error}); "
                "choose another place with --ledger PATH"
            ) from error
        check_store(self.path)

    def compact(self) -> None:
        """Put the rows of all files into one; the old ones go only when it is safely written.

        It names the files whose place it takes, so that no row counts twice where a compacting was cut off.

        Raises:
            LedgerError: a file is damaged, or the folder cannot be written.
            RecordingError: the store has not the compacted file yet, or has the old ones still.
        """
        # Whoever only records need not wait for this import.
        from perfkit.ledger.upkeep import compact_all

        compact_all(self.path, on_step=self._on_step)
        upload_compacted(self.path)

    def files(self) -> list[Path]:
        """Return the ledger's files, oldest first, without those that compacting has replaced."""
        return list(present_files(self.path))

    def rows(self) -> list[Row]:
        """Return every row, in the order of recording.

        Raises:
            LedgerError: a file is damaged or was written by a newer perfkit.
        """
        return from_table(self._questions.rows())

    def rows_on(self, commits: Collection[str]) -> list[Row]:
        """Return the rows of some commits, in the order of recording, without reading what has none.

        Raises:
            LedgerError: a file is damaged, or one that has such rows was written by a newer perfkit.
        """
        return from_table(self._questions.rows('list_contains($commits, "commit")', commits=sorted(commits)))

    def rows_beside(self, commits: Collection[str]) -> list[Row]:
        """Return the rows of some commits, and the times of all that were measured in more than one run.

        These tell by how much runs of identical code differ, of which a commit with one run says nothing.

        Raises:
            LedgerError: a file is damaged, or one that has such rows was written by a newer perfkit.
        """
        return from_table(self._questions.rows(BESIDE, commits=sorted(commits)))

    def rows_from(self, source: str) -> list[Row]:
        """Return the rows of the runs of one source, in the order of recording.

        Raises:
            LedgerError: a file is damaged, or one that has such rows was written by a newer perfkit.
        """
        return from_table(self._questions.rows("source = $source", source=source))

    def rows_of(self, run: str) -> list[Row]:
        """Return the rows of the run whose id begins or ends with ``run``.

        Raises:
            LedgerError: no run, or more than one, is meant.
        """
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
        """Return the rows of a benchmark's wall times in one run, those of typical calls too, as recorded.

        Raises:
            LedgerError: a file is damaged, or one that has such rows was written by a newer perfkit.
        """
        wanted = 'run_id = $run AND benchmark = $benchmark AND metric IN ($time, $typical) AND NOT "exact"'
        names = {"time": WALL_TIME.name, "typical": TYPICAL_TIME.name}
        return from_table(self._questions.rows(wanted, run=run_id, benchmark=benchmark, **names))

    def timed_benchmarks(self) -> dict[str, int]:
        """Return the benchmarks that were timed at commits, with the number of those.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        return timed_benchmarks(self._questions)

    def measurements(self, benchmarks: Collection[str]) -> Measurements:
        """Return the times of benchmarks, node ids or ends of some, at commits: a place for each launch.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        return read_measurements(self._questions, benchmarks)

    def imported_commits(self) -> frozenset[str]:
        """Return the commits that the ledger has other tools' measurements of.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        question = 'SELECT DISTINCT "commit" FROM ledger WHERE starts_with(source, $prefix)'
        return frozenset(sha for (sha,) in self._questions.ask(question, prefix=IMPORT_PREFIX))

    def outcomes_of_runs(self, source: str) -> dict[str, tuple[int, str]]:
        """Return of each run of a source how many rows are measured, and why another is not.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        question = """
        SELECT run_id, count(*) FILTER (status = 'ok'), coalesce(max(message) FILTER (status <> 'ok'), '')
        FROM ledger WHERE source = $source GROUP BY run_id
        """
        found = self._questions.ask(question, source=source)
        return {run_id: (measured, reason) for run_id, measured, reason in found}

    def runs(self) -> list[RunSummary]:
        """Return what each run measured in a line, oldest first.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        return read_runs(self._questions)

    def runs_in(self, file: Path) -> list[str]:
        """Return the ids of the runs that a file of this ledger holds, in the order of recording.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        wanted = "SELECT run_id FROM ledger WHERE filename = $file GROUP BY run_id ORDER BY min(recorded_at)"
        return [run for (run,) in self._questions.ask(wanted, file=str(self.path / file.name))]

    def metrics(self) -> list[str]:
        """Return the names of the metrics of all rows.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        return [name for (name,) in self.ask("SELECT DISTINCT metric FROM ledger ORDER BY metric")]

    def ask(self, question: str) -> list[tuple[Any, ...]]:
        """Return the rows of the answer to a question of perfkit's own in SQL, which selects from ``ledger``.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
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

        Raises:
            UsageError: there is no such column, or pandas is not installed.
            LedgerError: a file is damaged or was written by a newer perfkit.
        """
        need("pandas", by=_FRAME)
        found = select_rows(
            self._questions, columns, benchmark=benchmark, commit=commit, source=source, since=since
        )
        frame: pd.DataFrame = found.to_pandas()
        return frame

    def sql(self, question: str) -> pd.DataFrame:
        """Return the answer to a question in SQL, which selects from ``ledger``, as a data frame.

        Example: ``sql('SELECT benchmark, avg(mean) FROM ledger GROUP BY benchmark')``. The columns "commit",
        "values", "group" and "order" are written in quotes.

        Raises:
            UsageError: the question is not understood, or pandas is not installed.
            LedgerError: a file is damaged or was written by a newer perfkit.
        """
        need("pandas", by=_FRAME)
        frame: pd.DataFrame = self._questions.answer(question).to_pandas()
        return frame

    def series(self, benchmark: str, *, metric: str = "time", since: datetime | None = None) -> pd.DataFrame:
        """Return what each run measured of a benchmark, in the order of recording, as a data frame.

        Its columns are those of ``perfkit.model.history.Trend``; mean and sd are over launches. Runs with
        uncommitted changes are left out. ``benchmark`` is a node id or the end of one.

        Raises:
            UsageError: pandas is not installed.
            LedgerError: a file is damaged or was written by a newer perfkit.
        """
        need("pandas", by=_FRAME)
        import pandas as pd

        wanted = Wanted(benchmarks=(benchmark,), metric=metric, since=since)
        return pd.DataFrame(points_of(self.trends(wanted).trends))

    def trends(self, wanted: Wanted) -> Trends:
        """Return the trends of what is wanted, each in the order of recording.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        return read_trends(self._questions, wanted)

    def facts_of_runs(self, files: Mapping[str, str]) -> dict[str, tuple[Machine, Environment]]:
        """Return the machine and the environment of some runs, each given with the file that holds it.

        Raises:
            LedgerError: a file is damaged, is no ledger file, or was written by a newer perfkit.
        """
        return read_facts(self._questions, files)
