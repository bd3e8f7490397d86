"""The ledger: a folder of immutable parquet files, append-only, one file per run."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit.errors import LedgerError
from perfkit.identity import short_run_id
from perfkit.ledger.files import (
    COMPACTED_FILES,
    OnStep,
    compacted_name,
    only_one,
    present_files,
    remove_temporary,
    replaced_names,
    run_stem,
    say_nothing,
    with_replaced,
    write_table,
)
from perfkit.ledger.recording import Run
from perfkit.ledger.schema import SCHEMA, SCHEMA_VERSION, from_table, to_table
from perfkit.records import Row

if TYPE_CHECKING:
    import pandas as pd


class Ledger:
    """The measurements kept in one folder."""

    def __init__(self, path: Path, *, on_step: OnStep = say_nothing) -> None:
        self.path = path
        self._on_step = on_step

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
        return target

    def check_writable(self) -> None:
        """Refuse a ledger that could not take a file, before anything is measured.

        Raises:
            LedgerError: the folder cannot be made or written.
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

    def compact(self) -> None:
        """Put the rows of all files into one; the old ones go only when it is safely written.

        It names the files whose place it takes, so that no row counts twice where a compacting was cut off.

        Raises:
            LedgerError: a file is damaged, or the folder cannot be written.
        """
        if len(self._present()) <= 1:
            return
        try:
            with only_one(self.path):
                self._compact()
        except OSError as error:
            raise LedgerError(f"cannot compact the ledger {self.path} ({error.strerror or error})") from error

    def files(self) -> list[Path]:
        """Return the ledger's files, oldest first, without those that compacting has replaced."""
        return list(present_files(self.path))

    def rows(self) -> list[Row]:
        """Return every row, in the order of recording.

        Raises:
            LedgerError: a file is damaged or was written by a newer perfkit.
        """
        return [row for table in self._tables() for row in from_table(table)]

    def rows_on(self, commits: Collection[str]) -> list[Row]:
        """Return the rows of some commits, in the order of recording, without reading what has none.

        Raises:
            LedgerError: a file is damaged, or one that has such rows was written by a newer perfkit.
        """
        wanted = frozenset(commits)
        return self._rows_where("commit", wanted.__contains__)

    def rows_from(self, source: str) -> list[Row]:
        """Return the rows of the runs of one source, in the order of recording.

        Raises:
            LedgerError: a file is damaged, or one that has such rows was written by a newer perfkit.
        """
        return self._rows_where("source", source.__eq__)

    def rows_of(self, run: str) -> list[Row]:
        """Return the rows of the run whose id begins or ends with ``run``.

        Raises:
            LedgerError: no run, or more than one, is meant.
        """
        rows = self._rows_where("run_id", lambda run_id: run_id.startswith(run) or run_id.endswith(run))
        found = sorted({row.run_id for row in rows})
        if not found:
            raise LedgerError(f'no run "{run}" in {self.path}; see "perfkit ledger list"')
        if len(found) > 1:
            raise LedgerError(
                f'"{run}" could mean {len(found)} runs ({", ".join(found[:3])} …); give more of it'
            )
        return rows

    def texts_of(self, column: str) -> frozenset[str]:
        """Return the different texts of a column, without reading any other one.

        Raises:
            LedgerError: a file is damaged.
        """
        found: set[str] = set()
        for file in self.files():
            with _opened(file) as parquet:
                found.update(parquet.read(columns=[column])[column].unique().to_pylist())
        return frozenset(found)

    def _rows_where(self, column: str, wanted: Callable[[str], bool]) -> list[Row]:
        found = ((_read_where(file, column, wanted), ends) for file, ends in present_files(self.path).items())
        return [
            row for table, ends in found if table is not None for row in from_table(_without(table, ends))
        ]

    def _tables(self) -> Iterator[pa.Table]:
        """Yield the rows of each file, without those that an earlier one holds, too."""
        for file, ends in present_files(self.path).items():
            yield _without(read_table(file), ends)

    def _present(self) -> list[Path]:
        return sorted(self.path.glob("*.parquet"))

    def _compact(self) -> None:
        files = self.files()
        tables = list(self._tables())
        replaced = replaced_names(self.path)
        for file in self._present():
            if file.name in replaced:
                file.unlink()
        if len(files) == 1:
            return
        target = self.path / compacted_name(files)
        remove_temporary(self.path, COMPACTED_FILES)
        names = replaced.union(file.name for file in files)
        write_table(with_replaced(pa.concat_tables(tables), names), target, on_step=self._on_step)
        for file in files:
            file.unlink()
            self._on_step("replaced file removed")

    def to_pandas(self) -> pd.DataFrame:
        """Return every row as a data frame, one column per ledger column, ``values`` as arrays.

        Raises:
            LedgerError: a file is damaged or was written by a newer perfkit.
        """
        tables = list(self._tables())
        frame: pd.DataFrame = pa.concat_tables([SCHEMA.empty_table(), *tables]).to_pandas()
        return frame


def read_table(file: Path) -> pa.Table:
    """Return one ledger file as a table of the current schema, whatever schema version it was written with.

    Raises:
        LedgerError: the file is damaged, is no ledger file, or was written by a newer perfkit.
    """
    with _opened(file) as parquet:
        table = parquet.read()
    return _upgrade(table, file)


def _without(table: pa.Table, ends: Collection[str]) -> pa.Table:
    """Return a table without the rows of runs whose ids end so."""
    if not ends:
        return table
    runs = table["run_id"].to_pylist()
    return table.filter(pa.array([short_run_id(run) not in ends for run in runs]))


def _read_where(file: Path, column: str, wanted: Callable[[str], bool]) -> pa.Table | None:
    """Return the rows of a ledger file whose text in a column is wanted, None where there is none.

    The file is read whole only where there is one; what is no ledger file is not passed over.
    """
    # Whoever only writes a ledger need not wait for this import.
    import pyarrow.compute as pc

    with _opened(file) as parquet:
        if column not in parquet.schema_arrow.names:
            return _upgrade(parquet.read(), file)
        texts = parquet.read(columns=[column])[column]
        kept = [text for text in texts.unique().to_pylist() if wanted(text)]
        if not kept:
            return None
        table = parquet.read().filter(pc.is_in(texts, value_set=pa.array(kept, pa.string())))
    return _upgrade(table, file)


@contextmanager
def _opened(file: Path) -> Iterator[pq.ParquetFile]:
    try:
        # Not read_table(): that goes through pyarrow.dataset, which imports pandas.
        with pq.ParquetFile(file) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        raise LedgerError(
            f"{file} is not a readable ledger file (cut short or damaged); the other files are untouched: "
            f"bring it back with `git checkout -- {file}` or move it out of the ledger"
        ) from error


def _upgrade(table: pa.Table, file: Path) -> pa.Table:
    """Bring a table to the current schema: columns that its version did not have yet are null."""
    if "schema_version" not in table.column_names or table.num_rows == 0:
        raise LedgerError(f"{file} is a parquet file but no ledger file; move it out of the ledger")
    newest = max(table["schema_version"].to_pylist())
    if newest > SCHEMA_VERSION:
        raise LedgerError(
            f"{file} has ledger schema {newest}, this perfkit reads up to {SCHEMA_VERSION}; upgrade perfkit"
        )
    missing = [field for field in SCHEMA if field.name not in table.column_names]
    for field in missing:
        table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return table.select(SCHEMA.names).cast(SCHEMA)
