"""Read a ledger by questions in SQL on all of its files, which read only the columns they name.

DuckDB answers them: on 1,000 files it took a third of the time of pyarrow, which goes from file to file.
Opening a file takes it a quarter of a millisecond, which for years of runs adds up to seconds a question. So
an index in a hidden folder holds the often needed columns of many small files. It may be removed at any time.
The first question only makes the folder, so that a fresh clone, which is asked once, does not pay for an
index; later ones add files when many are missing.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from perfkit.bounded import DATA_BYTES, read_bytes
from perfkit.errors import LedgerError, UsageError
from perfkit.invocation import signals_put_off
from perfkit.ledger.files import (
    TEMPORARY,
    UNREADABLE,
    begin_hidden_folder,
    is_compacted,
    is_intact,
    is_locked,
    only_one,
    read_consistently,
    reason_of,
)
from perfkit.ledger.schema import SCHEMA, SCHEMA_VERSION, upgraded

if TYPE_CHECKING:
    import duckdb

INDEX_FOLDER = ".index"
_kept: ContextVar[duckdb.DuckDBPyConnection | None] = ContextVar("kept", default=None)
# A file of its own takes a quarter of a millisecond, and the index some ten.
_FEW_FILES = 40
# With fewer files that it lacks, making it longer is not worth the time.
FEWEST_FILES = 200
# Nobody should wait much longer for one question than for another.
_MOST_AT_ONCE = 2500
# More parts than these are put into one.
_MOST_PARTS = 8
# Another set of columns has another version, and so has another form of the names of parts.
_VERSION = 3
_BYTES_AT_ONCE = 1 << 20
_COVERED = b"perfkit_indexed"
_LEFT_OUT = ("values", "params", "machine", "env", "policy", "causes")
# The last two follow from columns that are left out.
_INDEXED = ", ".join(
    f'"{name}"' for name in (*(one for one in SCHEMA.names if one not in _LEFT_OUT), "counted", "lowest")
)
_ASKS_FOR_MORE = re.compile(rf"\b({'|'.join(_LEFT_OUT)})\b|SELECT \*")


@dataclass(frozen=True, kw_only=True)
class Index:
    """The parts of an index, each with the names and sizes in bytes of the files that it covers."""

    folder: Path
    parts: Mapping[Path, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, ledger: Path) -> Index:
        """Return the index of a ledger as it is; what is damaged, or repeats another part, is none of it."""
        folder = ledger / INDEX_FOLDER
        parts: dict[Path, Mapping[str, int]] = {}
        known: set[str] = set()
        for file in sorted(folder.glob(f"{_prefix()}*.parquet")):
            covered = _covered(file)
            if covered and known.isdisjoint(covered):
                parts[file] = covered
                known.update(covered)
        return cls(folder=folder, parts=parts)

    def held(self, files: Iterable[Path]) -> frozenset[str]:
        """Return the names of those files that it covers as they are now."""
        known = {name: size for covered in self.parts.values() for name, size in covered.items()}
        return frozenset(
            file.name for file in files if file.name in known and _size(file) == known[file.name]
        )

    def outdated(self, held: Collection[str]) -> tuple[str, ...]:
        """Return the names that it covers and that are not to be read from it."""
        return tuple(name for covered in self.parts.values() for name in covered if name not in held)


def _is_begun(ledger: Path) -> bool:
    folder = ledger / INDEX_FOLDER
    if folder.is_dir():
        return True
    begin_hidden_folder(folder)
    return False


def _to_index(files: Iterable[Path], held: Collection[str]) -> tuple[Path, ...]:
    missing = tuple(file for file in files if file.name not in held and not is_compacted(file.name))
    return missing[:_MOST_AT_ONCE] if len(missing) >= FEWEST_FILES else ()


def damaged_parts(ledger: Path) -> tuple[Path, ...]:
    """Return the parts whose bytes are not those that were written; questions pass over them."""
    parts = sorted((ledger / INDEX_FOLDER).glob(f"{_prefix()}*.parquet"))
    return tuple(part for part in parts if part.is_file() and not _is_intact(part))


def abandoned_parts(ledger: Path) -> tuple[Path, ...]:
    """Return the parts that killed processes left half written."""
    folder = ledger / INDEX_FOLDER
    left = tuple(sorted(folder.glob(f".*{TEMPORARY}")))
    return left if left and not is_locked(folder) else ()


def _prefix() -> str:
    return f"{_VERSION}-{SCHEMA_VERSION}-"


def _covered(file: Path) -> Mapping[str, int]:
    with contextlib.suppress(OSError):
        found = file.stat()
        return _covered_in(file, found.st_size, found.st_mtime_ns)
    return {}


@functools.lru_cache(maxsize=64)
def _covered_in(file: Path, _size: int, _changed_ns: int) -> Mapping[str, int]:
    if not _is_intact(file):
        return {}
    with contextlib.suppress(*UNREADABLE), pq.ParquetFile(file) as parquet:
        found = json.loads((parquet.metadata.metadata or {}).get(_COVERED, b"{}"))
        if isinstance(found, dict):
            return found
    return {}


def _is_intact(part: Path) -> bool:
    try:
        return part.stem.rpartition("-")[2] == _checksum(part)
    except OSError:
        return False


def _checksum(file: Path) -> str:
    found = 0
    with file.open("rb") as stream:
        while piece := stream.read(_BYTES_AT_ONCE):
            found = zlib.crc32(piece, found)
    return f"{found:08x}"


def _size(file: Path) -> int:
    with contextlib.suppress(OSError):
        return file.stat().st_size
    return -1


Answer = TypeVar("Answer")
Present = Mapping[Path, Collection[str]]
# DuckDB's answer to a signal whose handler raised.
_INTERRUPTED = "Query interrupted"
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "temp_directory": tempfile.gettempdir(),
    # The library has all that is needed, so that nothing is to be fetched.
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    # Names in a question are not looked up among Python's variables, which would import pandas.
    "python_enable_replacements": "false",
}
_COLUMNS = ", ".join(f'"{name}"' for name in SCHEMA.names)
_SQL_TYPES = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
}
_GLOB = re.compile(r"[*?\[]")
# Version 1 kept the causes of a count among the entries of its policy.
_COUNTED_ONCE = "causes IS NOT NULL OR (schema_version < 2 AND map_extract(policy, 'causes')[1] IS NOT NULL)"


def _sql_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"MAP({_sql_type(kind.key_type)}, {_sql_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return "STRUCT(" + ", ".join(f'"{field.name}" {_sql_type(field.type)}' for field in kind) + ")"
    return "TIMESTAMPTZ" if pa.types.is_timestamp(kind) else _SQL_TYPES[kind]


_PLACES = (pa.field("filename", pa.string()), pa.field("file_row_number", pa.int64()))
# All columns and no row, so that a question about a ledger without a file, or with old ones only, has them.
_NO_ROWS = (
    "SELECT "
    + ", ".join(f'NULL::{_sql_type(field.type)} AS "{field.name}"' for field in (*SCHEMA, *_PLACES))
    + " WHERE false"
)


@dataclass(frozen=True)
class Meant:
    """Which benchmarks are meant: node ids, or ends of some; all where none is named."""

    benchmarks: Sequence[str] = ()

    @property
    def condition(self) -> str:
        """The condition in SQL on the column ``benchmark``."""
        ends = [f"ends_with(benchmark, '{sign}' || ${{name}})" for sign in ("/", "::")]
        either = " OR ".join(["benchmark = ${name}", *ends])
        conditions = (either.format(name=name) for name in self.parameters)
        return f"({' OR '.join(conditions)})" if self.benchmarks else "true"

    def matches(self, name: str) -> bool:
        """Evaluate the condition for one name."""
        return not self.benchmarks or any(
            name == end or name.endswith((f"/{end}", f"::{end}")) for end in self.benchmarks
        )

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the condition."""
        return {f"benchmark_{number}": name for number, name in enumerate(self.benchmarks)}


class Questions:
    """Questions about the rows of a ledger, each answered from the files that are there when it is asked."""

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger

    def ask(
        self, question: str, *, within: Collection[str] | None = None, **parameters: object
    ) -> list[tuple[Any, ...]]:
        """Return the rows of an answer to a question in SQL, which selects from ``ledger``."""
        # The index has many files sooner than these files have themselves.
        index = self._ledger if within is None or len(within) > _FEW_FILES else None
        return self._answer(
            lambda files: _ask(
                files, question, parameters, lambda found: found.fetchall(), index=index, within=within
            )
        )

    def columns(self, question: str, **parameters: object) -> pa.Table:
        """Return an answer by columns."""
        return self._answer(lambda files: _ask(files, question, parameters, _to_arrow, index=self._ledger))

    def answer(self, question: str) -> pa.Table:
        """Return the answer to a person's question by columns."""
        if not question.strip():
            raise UsageError("the question is empty; it may read: SELECT count(*) FROM ledger")
        inner = f"SELECT * FROM ({question.strip().rstrip(';')})"
        return self._answer(lambda files: _ask(files, inner, {}, _to_arrow), asked=question)

    def rows(self, condition: str = "", **parameters: object) -> pa.Table:
        """Return whole rows in the order of recording, all of them or those that meet a condition in SQL."""
        found = self._answer(lambda files: _whole_rows(self._ledger, files, condition, parameters))
        return found.select(SCHEMA.names).cast(SCHEMA)

    def _answer(self, answer: Callable[[Present], Answer], *, asked: str = "") -> Answer:
        # A signal in the midst of its first import would abort the process.
        with signals_put_off():
            import duckdb

        def answer_or_explain(files: Present) -> Answer:
            try:
                return answer(files)
            except UnicodeDecodeError as error:
                what = "a text in the ledger is none; `perfkit ledger check` names its file"
                raise LedgerError(what) from error
            except RuntimeError as error:
                if str(error) != _INTERRUPTED:
                    raise
                raise KeyboardInterrupt from error
            except duckdb.Error as error:
                raise self._explained(error, files, asked) from error

        return read_consistently(self._ledger, answer_or_explain)

    def _explained(self, error: duckdb.Error, files: Present, asked: str) -> Exception:
        """Translate an error of DuckDB."""
        import duckdb

        mistakes = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
        if not (asked and isinstance(error, mistakes)):
            # Reading a file alone raises what is wrong with it.
            for file in files:
                read_table(file)
            for file in files:
                if is_intact(read_bytes(file, most=DATA_BYTES)) is False:
                    raise _damaged(file)
        reason = str(error).partition("\n")[0]
        if asked:
            return UsageError(f'the question "{asked}" is not understood: {reason}')
        if isinstance(error, mistakes):
            return error
        if isinstance(error, duckdb.IOException):
            # Each file can be read by now: what kept this one from it has passed.
            return LedgerError(f"cannot read the ledger {self._ledger} ({reason_of(error)})")
        return LedgerError(f"a file of {self._ledger} cannot be read ({reason}); see `perfkit ledger check`")


def read_table(file: Path) -> pa.Table:
    """Return a file of any schema version as a table of the current schema."""
    with _opened(file) as parquet:
        table = parquet.read()
    return upgraded(table, file)


def _ask(
    files: Present,
    question: str,
    parameters: Mapping[str, object],
    take: Callable[[duckdb.DuckDBPyRelation], Answer],
    *,
    index: Path | None = None,
    within: Collection[str] | None = None,
) -> Answer:
    """Answer a question quickly where all files are of this version, else with care."""
    import duckdb

    with _connected() as connection:
        if index is not None and len(files) >= FEWEST_FILES and not _ASKS_FOR_MORE.search(question):
            # It only makes things quicker: others may change it meanwhile, or it cannot be written.
            with contextlib.suppress(duckdb.Error, OSError):
                # More questions follow over a connection that is kept.
                if _is_begun(index) or _kept.get():
                    known = _by_index(connection, index, files)
                    return take(connection.sql(_about(known, question), params=parameters))
        files = _only(files, within)
        if files:
            # An older file lacks columns; another cause shows again below.
            with contextlib.suppress(duckdb.Error):
                return take(connection.sql(_about(_alike(files), question), params=parameters))
            _refuse_unreadable(connection, files)
        return take(connection.sql(_about(_of_any_version(files), question), params=parameters))


@contextmanager
def one_connection() -> Iterator[None]:
    """Ask all questions within over one connection: to open and close one takes longer than some answers."""
    with _connected() as connection:
        token = _kept.set(connection)
        try:
            yield
        finally:
            _kept.reset(token)


@contextmanager
def _connected() -> Iterator[duckdb.DuckDBPyConnection]:
    if connection := _kept.get():
        yield connection
        return
    # A signal in the midst of its first import would abort the process.
    with signals_put_off():
        import duckdb
    with closing(duckdb.connect(config=_SETTINGS)) as connection:
        yield connection


def _only(files: Present, names: Collection[str] | None) -> Present:
    found = {file: ends for file, ends in files.items() if str(file) in (names or ())}
    return files if names is None or len(found) < len(set(names)) else found


def _by_index(connection: duckdb.DuckDBPyConnection, ledger: Path, files: Present) -> str:
    """Return the rows of files as the index has them, and of those that it lacks; it is extended by many."""
    index = Index.of(ledger)
    held = index.held(files)
    if _to_index(files, held):
        with only_one(index.folder):
            index = Index.of(ledger)
            held = index.held(files)
            if new := _to_index(files, held):
                _extend(connection, index, held, {file: files[file] for file in new})
                index = Index.of(ledger)
                held = index.held(files)
    rest = {file: ends for file, ends in files.items() if file.name not in held}
    outdated = index.outdated(held)
    known = ", ".join(_quoted(str(part)) for part in index.parts)
    current = f" WHERE filename NOT IN ({', '.join(map(_quoted, outdated))})" if outdated else ""
    # As the files' own names begin: those of a ledger called "." do so with nothing.
    begin = str(ledger / "_")[:-1]
    found = (
        f"SELECT {_INDEXED}, {_quoted(begin)} || filename AS filename, file_row_number"
        f" FROM read_parquet([{known}], hive_partitioning=false){current}"
    )
    others = f"SELECT {_INDEXED}, filename, file_row_number FROM ({_alike(rest)})"
    return f"{found} UNION ALL BY NAME {others}" if rest else found


def _extend(connection: duckdb.DuckDBPyConnection, index: Index, held: Collection[str], new: Present) -> None:
    """Add a part for new files to an index; too many parts become one."""
    import duckdb

    for leftover in index.folder.glob(f".*{TEMPORARY}"):
        # Only the holder of the lock writes here.
        leftover.unlink(missing_ok=True)
    covered = {file.name: _size(file) for file in new}
    others = ""
    is_long = len(index.parts) >= _MOST_PARTS or len(index.outdated(held)) > len(held)
    merged = index.parts if is_long else {}
    for part, sizes in merged.items():
        kept = {name: size for name, size in sizes.items() if name in held}
        covered |= kept
        others += (
            f" UNION ALL BY NAME SELECT * FROM read_parquet([{_quoted(str(part))}])"
            f" WHERE filename IN ({', '.join(map(_quoted, kept)) or 'NULL'})"
        )
    stem = _prefix() + hashlib.sha256(json.dumps(sorted(covered)).encode()).hexdigest()[:16]
    temporary = index.folder / f".{stem}.{os.getpid()}{TEMPORARY}"

    def write(rows: str) -> None:
        places = "parse_filename(filename) AS filename, file_row_number"
        connection.execute(
            f"COPY (SELECT {_INDEXED}, {places} FROM ({rows}){others}) TO {_quoted(str(temporary))}"
            f" (FORMAT parquet, COMPRESSION zstd,"
            f" KV_METADATA {{{_COVERED.decode()}: {_quoted(json.dumps(covered))}}})"
        )

    try:
        try:
            write(_alike(new))
        except duckdb.Error:
            # An older file lacks columns; another cause shows again.
            _refuse_unreadable(connection, new)
            write(_of_any_version(new))
        target = index.folder / f"{stem}-{_checksum(temporary)}.parquet"
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    for part in merged:
        if part != target:
            part.unlink(missing_ok=True)


def _refuse_unreadable(connection: duckdb.DuckDBPyConnection, files: Present) -> None:
    odd = f"SELECT DISTINCT filename FROM ledger WHERE coalesce(schema_version > {SCHEMA_VERSION}, true)"
    for (name,) in connection.execute(_about(_of_any_version(files), odd)).fetchall():
        read_table(Path(name))


def _whole_rows(ledger: Path, files: Present, condition: str, parameters: Mapping[str, object]) -> pa.Table:
    chosen, of_runs = files, ""
    if condition:
        where = f"SELECT DISTINCT filename, run_id FROM ledger WHERE {condition}"
        places = _ask(files, where, parameters, lambda found: found.fetchall(), index=ledger)
        names = {name for name, _ in places}
        chosen = {file: ends for file, ends in files.items() if str(file) in names}
        runs = ", ".join(sorted({_quoted(run) for _, run in places}))
        of_runs = (
            f" WHERE run_id IN ({runs}) AND ({condition}) ORDER BY filename, file_row_number" if runs else ""
        )
    return _ask(chosen, f"SELECT {_COLUMNS} FROM ledger{of_runs}", parameters if of_runs else {}, _to_arrow)


def _about(ledger: str, question: str) -> str:
    return f"WITH ledger AS ({ledger}) {question}"


def _alike(files: Present) -> str:
    guard = f"CASE WHEN schema_version <= {SCHEMA_VERSION} THEN true ELSE error('a newer schema') END"
    return (
        f'SELECT *, causes IS NOT NULL AS counted, list_min("values") AS lowest FROM'
        f" {_parquet(files, 'false')}"
        f" WHERE {guard}{_held_once(files)}"
    )


def _of_any_version(files: Present) -> str:
    found = f"SELECT * FROM {_parquet(files, 'true')} UNION ALL BY NAME " if files else ""
    return (
        f'SELECT *, {_COUNTED_ONCE} AS counted, list_min("values") AS lowest'
        f" FROM ({found}{_NO_ROWS}) WHERE true{_held_once(files)}"
    )


def _parquet(files: Iterable[Path], by_name: str) -> str:
    # A folder such as "a=b" must not become a column, and "[" not a pattern.
    names = ", ".join(_quoted(_GLOB.sub(r"[\g<0>]", str(file))) for file in files)
    return (
        f"read_parquet([{names}], union_by_name={by_name}, filename=true, file_row_number=true,"
        " hive_partitioning=false)"
    )


def _held_once(files: Present) -> str:
    return "".join(
        f" AND NOT (filename = {_quoted(str(file))}"
        f" AND right(run_id, {len(next(iter(ends)))}) IN ({', '.join(map(_quoted, sorted(ends)))}))"
        for file, ends in files.items()
        if ends
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _to_arrow(found: duckdb.DuckDBPyRelation) -> pa.Table:
    return found.to_arrow_table()


def _damaged(file: Path) -> LedgerError:
    return LedgerError(
        f"{file} is not a readable ledger file (cut short or damaged); the other files are untouched: "
        f"bring it back with `git checkout -- {file}` or move it out of the ledger"
    )


@contextmanager
def _opened(file: Path) -> Iterator[pq.ParquetFile]:
    try:
        # Not read_table(): that goes through pyarrow.dataset, which imports pandas.
        with pq.ParquetFile(file) as parquet:
            yield parquet
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None):
            raise LedgerError(
                f"cannot read {file} ({reason_of(error)}); "
                "see to its permissions, or to the disk or the network that it is on"
            ) from error
        raise _damaged(file) from error
