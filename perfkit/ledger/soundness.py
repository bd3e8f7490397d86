"""Whether a ledger is sound: each file to the last bit, and all files together."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perfkit.bounded import DATA_BYTES, read_bytes
from perfkit.errors import LedgerError
from perfkit.identity import short_run_id
from perfkit.ledger.annotations import ACCEPTANCES, NOTES, STATES
from perfkit.ledger.files import (
    QUARANTINE_FOLDER,
    STAGED_FOLDER,
    TEMPORARY,
    Listing,
    files_in,
    ignore_log,
    is_abandoned,
    is_compacted,
    is_intact,
    list_files,
    listed_if_readable,
    reason_of,
    run_end,
)
from perfkit.ledger.queries import abandoned_parts, damaged_parts
from perfkit.ledger.recording import claimed, read_staged
from perfkit.ledger.schema import SCHEMA_VERSION, upgraded
from perfkit.model import IMPORT_PREFIX, Status
from perfkit.model.upkeep import Problem, ProblemKind, Verification
from perfkit.units import counted

# This many rows are in memory at a time, and in a row group of a compacted file.
ROWS_AT_ONCE = 100_000
ANNOTATIONS = (NOTES, ACCEPTANCES, STATES)

_NEEDED = (
    "schema_version",
    "run_id",
    "recorded_at",
    "source",
    "commit",
    "benchmark",
    "metric",
    "values",
    "n",
    "status",
)
_STATUSES = get_args(Status)
_RUN_FILE = re.compile(r"\d{8}T\d{6}Z-.+-[^-]+\.parquet")
_MEAN_TOLERANCE = 1e-9
_BRING_BACK = (
    "`perfkit ledger check --fix` moves it into quarantine; bring it back with `git checkout -- {file}`"
)


_SEE_TO_THE_DISK = "see to its permissions, or to the disk or the network that it is on"


def _problem(kind: ProblemKind, file: str, what: str, advice: str) -> Problem:
    return Problem(kind=kind, file=file, what=what, advice=advice)


class UnsoundError(LedgerError):
    """A file is not as perfkit wrote it, or not perfkit's."""

    def __init__(self, file: Path, kind: ProblemKind, what: str, advice: str) -> None:
        super().__init__(f"{file} is not a readable ledger file: {what}; {advice}")
        self.problem = _problem(kind, file.name, what, advice)


def sound_tables(file: Path) -> Iterator[pa.Table]:
    """Yield the rows of a file in the current schema, some at a time, once its checksum was found right."""
    yield from decoded(sound_content(file), file)


def is_sound(file: Path) -> bool:
    """Return whether a file's checksum is right; one that has none is decoded."""
    try:
        content = sound_content(file)
        if is_intact(content) is None:
            for _ in decoded(content, file):
                pass
    except (UnsoundError, FileNotFoundError):
        return False
    return True


def decoded(content: bytes, file: Path) -> Iterator[pa.Table]:
    """Yield the rows that the bytes of a file hold, some at a time."""
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as parquet:
            _check_kind(parquet, file)
            for batch in parquet.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False):
                table = pa.Table.from_batches([batch])
                _check_version(table, file)
                # Reading does not check that texts are UTF-8.
                table.validate(full=True)
                yield upgraded(table, file)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].strip() or type(error).__name__
        raise _damaged(file, f"it is cut short or damaged ({reason})") from error


def sound_content(file: Path) -> bytes:
    """Return the bytes of a file, whose checksum is right where it has one."""
    if os.path.lexists(file) and not file.is_file():
        raise _damaged(file, "it is no file, or a link that leads nowhere")
    try:
        content = read_bytes(file, most=DATA_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = f"it cannot be read ({reason_of(error)})"
        raise UnsoundError(file, "unreadable", what, _SEE_TO_THE_DISK) from error
    if is_intact(content) is False:
        raise _damaged(file, "its bytes are not those that were written, as its checksum shows")
    return content


def _damaged(file: Path, what: str) -> UnsoundError:
    return UnsoundError(file, "damaged", what, _BRING_BACK.format(file=file))


def _check_kind(parquet: pq.ParquetFile, file: Path) -> None:
    if "schema_version" not in parquet.schema_arrow.names or not parquet.metadata.num_rows:
        raise UnsoundError(
            file,
            "foreign",
            "it is a parquet file, and no row of it is one of a ledger",
            "`perfkit ledger check --fix` moves it out of the way",
        )


def _check_version(table: pa.Table, file: Path) -> None:
    versions = table["schema_version"].to_pylist()
    newest = max((version for version in versions if isinstance(version, int)), default=0)
    if newest > SCHEMA_VERSION:
        what = f"it has ledger schema {newest}, and this perfkit reads up to {SCHEMA_VERSION}"
        raise UnsoundError(file, "newer", what, "upgrade perfkit")


@dataclass(frozen=True, kw_only=True)
class FileCheck:
    """What a file holds: how many rows of each run, and what is wrong; ``sealed`` if it has a checksum."""

    file: Path
    sealed: bool
    runs: Mapping[str, int]
    problems: tuple[Problem, ...]

    @property
    def is_readable(self) -> bool:
        """Whether its rows could be read."""
        return bool(self.runs)


def check_file(file: Path, *, replaces: Collection[str] = ()) -> FileCheck:
    """Return what is in a file and what is wrong with it; every byte of it is read and every row decoded."""
    try:
        return check_content(file, sound_content(file), replaces=replaces)
    except UnsoundError as error:
        return FileCheck(file=file, sealed=True, runs={}, problems=(error.problem,))


def check_content(file: Path, content: bytes, *, replaces: Collection[str] = ()) -> FileCheck:
    """Return what is in the bytes of a file, whose checksum is right, and what is wrong with them."""
    runs: dict[str, int] = defaultdict(int)
    wrong: dict[str, int] = defaultdict(int)
    sealed = is_intact(content) is not None
    try:
        for table in decoded(content, file):
            for what, rows in _impossible(table).items():
                wrong[what] += rows
            for one in table["run_id"].drop_null().value_counts().to_pylist():
                runs[one["values"]] += one["counts"]
    except UnsoundError as error:
        return FileCheck(file=file, sealed=sealed, runs={}, problems=(error.problem,))
    problems = [
        _problem(
            "impossible",
            file.name,
            f"it has {what} in {counted(rows, 'row')}",
            "see who wrote it; perfkit does not write such rows",
        )
        for what, rows in wrong.items()
    ]
    return FileCheck(
        file=file, sealed=sealed, runs=runs, problems=(*problems, *_misnamed(file, runs, replaces))
    )


def _misnamed(file: Path, runs: Collection[str], replaces: Collection[str]) -> Iterator[Problem]:
    if is_compacted(file.name) and replaces:
        if not all(is_compacted(name) or _RUN_FILE.fullmatch(name) for name in replaces):
            return
        named = {run_end(name) for name in replaces}
    else:
        named = {run_end(file.name)}
    others = sorted(run for run in runs if run_end(short_run_id(run)) not in named)
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        yield _problem(
            "misnamed",
            file.name,
            f"it holds the run {others[0]}{more}, which its name does not have",
            f"name it TIME-SOURCE-{short_run_id(others[0])}.parquet as its neighbours are named",
        )


def _impossible(table: pa.Table) -> dict[str, int]:
    """Return what is wrong with rows of a table, and with how many of them."""
    import pyarrow.compute as pc

    found = {f"no {name}": table[name].null_count for name in _NEEDED if table[name].null_count}
    lengths = pc.fill_null(pc.list_value_length(table["values"]), 0)
    # Of what other tools measured there may be a summary in place of values.
    imported = pc.fill_null(pc.starts_with(table["source"], IMPORT_PREFIX), False)  # noqa: FBT003 (Arrow's own)
    summarised = pc.and_(pc.equal(lengths, 0), imported)
    unlike = pc.and_(pc.not_equal(table["n"], lengths), pc.invert(summarised))
    found["another n than values"] = _count(unlike)
    found["a mean that is not that of the values"] = _wrong_means(table, lengths, summarised)
    is_time = pc.equal(table["metric"], "time")
    with np.errstate(all="ignore"):
        lowest = _by_row(np.minimum, table, lengths.to_numpy())
    found["a negative time"] = _count(pc.and_(is_time, pa.array(lowest < 0)))
    known = pc.is_in(table["status"], value_set=pa.array(_STATUSES, pa.string()))
    found["an unknown status"] = _count(pc.and_(pc.invert(known), pc.is_valid(table["status"])))
    return {what: rows for what, rows in found.items() if rows}


def _count(truths: Any) -> int:  # noqa: ANN401 (Arrow's arrays have no types)
    import pyarrow.compute as pc

    return pc.sum(truths).as_py() or 0


def _wrong_means(table: pa.Table, lengths: Any, summarised: Any) -> int:  # noqa: ANN401
    stored = table["mean"].to_numpy()
    sizes = lengths.to_numpy()
    with np.errstate(all="ignore"):
        means = _by_row(np.add, table, sizes) / sizes
        expected = np.where((sizes > 0) & np.isfinite(means), means, np.nan)
        # Values of both signs leave of their sum hardly more than what was rounded off of each.
        allowed = _MEAN_TOLERANCE * _by_row(np.add, table, sizes, of=np.abs) / sizes
        same = (np.abs(stored - expected) <= allowed) | (np.isnan(stored) & np.isnan(expected))
    return int((~same & ~summarised.to_numpy(zero_copy_only=False)).sum())


def _by_row(how: np.ufunc, table: pa.Table, sizes: Any, *, of: np.ufunc = np.positive) -> Any:  # noqa: ANN401
    values = np.concatenate(
        [np.zeros(0), *(chunk.flatten().to_numpy(zero_copy_only=False) for chunk in table["values"].chunks)]
    )
    found = np.zeros(len(sizes))
    filled = sizes > 0
    if filled.any():
        begins = np.cumsum(sizes)[filled] - sizes[filled]
        found[filled] = how.reduceat(of(values), begins)
    return found


def verify(
    ledger: Path,
    *,
    log: Callable[[str], None] = ignore_log,
    progress: Callable[[float], None] = lambda _: None,
) -> tuple[Verification, Sequence[FileCheck]]:
    """Check every file of a ledger without changes; return all problems and what each file holds."""
    log(f"reading every file of {ledger}")
    listing = list_files(ledger)
    checks = list(_checks(listing, progress))
    annotations = list(_annotation_problems(ledger))
    problems = (
        *(problem for check in checks for problem in check.problems),
        *_replaced_problems(listing, {check.file.name for check in checks if check.is_readable}),
        *_runs_twice(checks, listing),
        *_temporary_problems(ledger),
        *_index_problems(ledger),
        *_staged_problems(ledger),
        *annotations,
    )
    present = [check for check in checks if check.file in listing.present]
    kept_twice = {check.file: listing.present[check.file] for check in present}
    rows = [
        (run, number)
        for check in present
        for run, number in check.runs.items()
        if short_run_id(run) not in kept_twice[check.file]
    ]
    found = Verification(
        ledger=str(ledger),
        files=len(checks),
        rows=sum(number for _, number in rows),
        runs=len({run for run, _ in rows}),
        unsealed=sum(check.is_readable and not check.sealed for check in checks),
        statements=sum(len(listed_if_readable(ledger / kind.folder, "*.json")) for kind in ANNOTATIONS),
        quarantined=sum(
            file.is_file() and file.name != ".gitignore" for file in (ledger / QUARANTINE_FOLDER).rglob("*")
        ),
        problems=problems,
    )
    return found, checks


def _checks(listing: Listing, progress: Callable[[float], None]) -> Iterator[FileCheck]:
    for number, name in enumerate(sorted(listing.names)):
        if number % (len(listing.names) // 100 + 1) == 0:
            progress(number / len(listing.names))
        try:
            yield check_file(listing.folder / name, replaces=listing.replaces.get(name, ()))
        except FileNotFoundError:
            # A compacting has just taken its place.
            continue


def _replaced_problems(listing: Listing, readable: Collection[str]) -> Iterator[Problem]:
    for name in listing.leftovers:
        holders = listing.holders(name)
        if not listing.is_held(name, holders):
            by = next(one for one, names in sorted(listing.replaces.items()) if name in names)
            what = f"{by} lists it as replaced, and no file that is read has its rows"
            advice = "`perfkit ledger check --fix` moves that one away, and this one is read again"
            yield _problem("hidden", name, what, advice)
        elif any(file.name not in readable for file in holders):
            damaged = next(file.name for file in holders if file.name not in readable)
            what = f"{damaged}, which has taken its place, cannot be read"
            advice = "`perfkit ledger check --fix` moves that one away, and this one is read again"
            yield _problem("hidden", name, what, advice)
        else:
            what = f"{holders[0].name} has taken its place, and it is still there"
            advice = "`perfkit ledger check --fix` or the next compacting removes it"
            yield _problem("replaced", name, what, advice)


def _runs_twice(checks: Sequence[FileCheck], listing: Listing) -> Iterator[Problem]:
    together: dict[tuple[Path, Path, bool], list[str]] = defaultdict(list)
    for one in runs_in_several(checks, listing):
        together[one.file, one.keeper, one.is_same].append(one.run)
    for (file, keeper, is_same), runs in together.items():
        which = "the same" if is_same else "other"
        kind: ProblemKind = "twice" if is_same else "differs"
        stays = "`perfkit ledger check --fix` leaves one of them"
        of = f"the run {runs[0]}" if len(runs) == 1 else f"{len(runs)} runs"
        yield _problem(
            kind,
            file.name,
            f"{keeper.name} has rows of {of} too, and {which} ones",
            stays if is_same else "see which are right, and move the others out of the ledger",
        )


@dataclass(frozen=True, kw_only=True)
class RunTwice:
    """A run that readers see in ``file`` and in the ``keeper``, with the same rows or with others."""

    run: str
    keeper: Path
    file: Path
    is_same: bool


def runs_in_several(checks: Sequence[FileCheck], listing: Listing) -> Sequence[RunTwice]:
    """Return the runs that readers see in several files; of those the keeper is named after the run."""
    found: dict[str, list[Path]] = defaultdict(list)
    for check in checks:
        held = listing.present.get(check.file)
        for run in check.runs if held is not None else ():
            if short_run_id(run) not in (held or ()):
                found[run].append(check.file)
    several = {run: files for run, files in found.items() if len(files) > 1}
    asked: dict[Path, set[str]] = defaultdict(set)
    for run, files in several.items():
        for file in files:
            asked[file].add(run)
    digests = {file: run_digests(file, runs) for file, runs in asked.items()}
    twice = []
    for run, files in several.items():
        keeper, *others = sorted(files, key=lambda file: _rank(file, run))
        for file in others:
            is_same = digests[file][run] == digests[keeper][run]
            twice.append(RunTwice(run=run, keeper=keeper, file=file, is_same=is_same))
    return twice


def _rank(file: Path, run: str) -> tuple[bool, bool, str]:
    named = run_end(file.name) == run_end(short_run_id(run)) and bool(_RUN_FILE.fullmatch(file.name))
    return not named, not is_compacted(file.name), file.name


def run_digests(file: Path, runs: Collection[str]) -> Mapping[str, str]:
    """Return a hash of the rows of each of some runs, the same for each schema version."""
    import pyarrow.compute as pc

    digests = {run: hashlib.sha256() for run in runs}
    for table in sound_tables(file):
        wanted = pc.is_in(table["run_id"], value_set=pa.array(digests, pa.string()))
        for row in table.filter(wanted).to_pylist():
            digests[row["run_id"]].update(repr(sorted(row.items())).encode(errors="surrogatepass"))
    return {run: digest.hexdigest() for run, digest in digests.items()}


def _temporary_problems(ledger: Path) -> Iterator[Problem]:
    for file in abandoned_files(ledger):
        yield _problem(
            "temporary",
            str(file.relative_to(ledger)),
            "a process that was killed left it half written",
            "`perfkit ledger check --fix` removes it",
        )


def _index_problems(ledger: Path) -> Iterator[Problem]:
    for file in damaged_parts(ledger):
        yield _problem(
            "damaged",
            str(file.relative_to(ledger)),
            "its bytes are not those that were written, as its checksum shows; no question reads it",
            "`perfkit ledger check --fix` moves it into quarantine; an index is made anew by itself",
        )


def abandoned_files(ledger: Path) -> Sequence[Path]:
    """Return the temporary files whose writers are dead."""
    places = ((ledger, f".*{TEMPORARY}"), (ledger, ".probe-*"))
    annotations = ((ledger / kind.folder, f"*{TEMPORARY}") for kind in ANNOTATIONS)
    found = (file for place in (*places, *annotations) for file in listed_if_readable(*place))
    return [*(file for file in found if file.is_file() and is_abandoned(file)), *abandoned_parts(ledger)]


def _staged_problems(ledger: Path) -> Iterator[Problem]:
    folder = ledger / STAGED_FOLDER
    try:
        damaged, staged = files_in(folder, "*.damaged"), files_in(folder, "*.jsonl")
    except OSError as error:
        yield _unreadable_now(STAGED_FOLDER, error)
        return
    for file in damaged:
        yield _problem(
            "staged damage",
            f"{STAGED_FOLDER}/{file.name}",
            "lines of what a killed run had staged are damaged; the others were recovered",
            "`perfkit ledger check --fix` moves it into quarantine",
        )
    for file in staged:
        yield from _staged_problem(file)


def _staged_problem(file: Path) -> Iterator[Problem]:
    name = f"{STAGED_FOLDER}/{file.name}"
    try:
        with claimed(file):
            content = read_staged(file)
    except FileNotFoundError:
        return
    except LedgerError:
        # Its owner lives.
        return
    except OSError as error:
        what = f"it cannot be read ({error.strerror or error})"
        yield _problem("staged", name, what, "see to its permissions")
        return
    if content.problem:
        what, _, advice = content.problem.rpartition("; ")
        kind: ProblemKind = "newer" if content.header else "staged damage"
        yield _problem(kind, name, f"it {what}", advice)
    else:
        damaged = f", and {counted(content.damaged, 'damaged line')}" if content.damaged else ""
        yield _problem(
            "staged",
            name,
            f"a run was cut off; it has {counted(len(content.rows), 'row')} of it{damaged}",
            "`perfkit ledger check --fix` or the next perfkit command recovers them",
        )


def _unreadable_now(name: str, error: OSError) -> Problem:
    what = f"it cannot be read ({reason_of(error)})"
    return _problem("unreadable", name, what, _SEE_TO_THE_DISK)


def _annotation_problems(ledger: Path) -> Iterator[Problem]:
    for kind in ANNOTATIONS:
        try:
            files = files_in(ledger / kind.folder, "*.json")
        except OSError as error:
            yield _unreadable_now(kind.folder, error)
            continue
        for file in files:
            try:
                kind.read_one(file)
            except LedgerError as error:
                name, cause = f"{kind.folder}/{file.name}", error.__cause__
                if isinstance(cause, OSError):
                    yield _unreadable_now(name, cause)
                    continue
                reason = str(cause or error).partition("\n")[0]
                yield _problem(
                    "statement",
                    name,
                    f"it is not a readable {kind.noun} ({reason})",
                    _BRING_BACK.format(file=file),
                )
