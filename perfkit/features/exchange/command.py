"""``perfkit ledger import`` and ``export``: other tools' files into the ledger, and rows out of it."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import math
import os
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from perfkit.bounded import read_bytes
from perfkit.commands.text_files import replace_texts
from perfkit.errors import LedgerError, NotMeasuredError, RepositoryError, RunInterruptedError, UsageError
from perfkit.extras import need
from perfkit.features.exchange import asv, pytest_benchmark
from perfkit.features.exchange.asv import AsvContext
from perfkit.features.exchange.formats import Format, format_of, read
from perfkit.features.exchange.records import (
    MOST_BYTES,
    ToolRun,
    Written,
    commit_of,
    decode,
    grouped,
    plain_name,
    rows_of,
    run_id_of,
)
from perfkit.identity import short_run_id, utc_now
from perfkit.ledger.files import recorded_ends
from perfkit.ledger.history.trends import Order
from perfkit.ledger.schema import SCHEMA, to_record
from perfkit.ledger.store import Ledger
from perfkit.model import IMPORT_PREFIX, OF_CHANGED_CODE, STEP_TIME, WALL_TIME, Commit, Row
from perfkit.model.history import CommitFacts
from perfkit.model.results import meant_by
from perfkit.repo.commits import commit_facts, describe_commits, open_repository, resolve
from perfkit.repo.git import reading_only
from perfkit.units import counted


def csv_text(records: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return a heading and a line a record; lists and maps are JSON, and what is not known is empty."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for record in records:
        writer.writerow([_cell(record[name]) for name in columns])
    return stream.getvalue()


def json_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return a list of objects, a line each; a value that is no number is null."""
    import msgspec

    # Python's own JSON would write NaN, which most readers refuse.
    lines = (msgspec.json.encode(record).decode() for record in records)
    return "[\n" + ",\n".join(lines) + "\n]\n"


def _cell(value: object) -> object:
    return json.dumps(value) if isinstance(value, (list, dict)) else value


ExportFormat = Literal["csv", "json", "asv", "pytest-benchmark", "tensorboard", "wandb", "mlflow"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)
# These are a folder of files each.
_FOLDERS: Mapping[ExportFormat, Callable[[Sequence[Row]], Written]] = {
    "asv": asv.write,
    "pytest-benchmark": pytest_benchmark.write,
}
_ENDINGS = (".json", ".json.gz", "data.js")
# Of a whole project or of an asv project, these folders hold no results.
_PASSED_OVER = frozenset({".git", "env", "html", "node_modules"})
# A run of asv may have thousands of results, and those of this many runs are held in memory.
_AT_ONCE = 20
_ANY_IMPORT = IMPORT_PREFIX.rstrip(":")
_DIGITS = re.compile(r"[0-9a-f]{4,40}")
_SHA_DIGITS = 40


@dataclass(frozen=True, kw_only=True)
class ImportRequest:
    """What to import; ``commit`` is for what names none, and commits are looked up around ``start``."""

    places: tuple[Path, ...]
    ledger: Path
    start: Path
    format: Format | None = None
    commit: str | None = None


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """What became of a run: ``file`` is None where the ledger had all of it already.

    ``present`` counts the rows that were left out, since the ledger had them of an earlier import.
    """

    run_id: str
    format: str
    origin: str
    commit: str
    recorded_at: datetime
    benchmarks: int
    rows: int
    present: int
    failed: int
    file: str | None


@dataclass(frozen=True, kw_only=True)
class ImportReport:
    """What an import did; ``doubts`` are of numbers, ``problems`` name what could not be imported."""

    ledger: str
    files: int
    runs: tuple[ImportedRun, ...]
    doubts: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def added(self) -> tuple[ImportedRun, ...]:
        """The runs that have a new file."""
        return tuple(run for run in self.runs if run.file is not None)


# A run and the file that it was found in.
_Found = tuple[Path, ToolRun]


@reading_only()
def import_files(
    request: ImportRequest, *, progress: Callable[[float], None] = lambda _: None
) -> ImportReport:
    """File other tools' measurements, a file for each run; ``progress`` is called with the share done.

    A run is filed whole or not at all. What the ledger has already is left out, and a file that cannot be
    imported is named and keeps none of the others from it.
    """
    given = None if request.commit is None else _given_commit(request.commit, request.start)
    files = [file for place in request.places for file in _files_of(place)]
    ledger = Ledger(request.ledger)
    ledger.check_writable()
    importing = _Importing(ledger, request, given)
    try:
        found = importing.found_in(files, progress)
        while batch := list(itertools.islice(found, _AT_ONCE)):
            importing.file(batch)
    except KeyboardInterrupt:
        raise RunInterruptedError(
            f"interrupted after {counted(len(importing.runs), 'run')} had been filed in {request.ledger}; "
            "the same command goes on with the others"
        ) from None
    return importing.report(len(files))


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """Which rows to write, and where: ``out`` is a file or a folder, None for standard output."""

    ledger: Path
    start: Path
    format: ExportFormat
    out: Path | None = None
    benchmarks: tuple[str, ...] = ()
    commit: str | None = None
    run: str | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """What was written: ``text`` is for standard output, None where files, or ``runs`` of a tracker, were."""

    rows: int
    files: tuple[str, ...]
    left_out: Mapping[str, int]
    text: str | None = None
    runs: tuple[str, ...] | None = None


@reading_only()
def export_rows(request: ExportRequest) -> ExportReport:
    """Write rows of a ledger for another tool; what it has no place for is counted."""
    rows = _selected(request)
    if not rows:
        raise UsageError(f"no row of {request.ledger} is meant by these filters; see `perfkit ledger list`")
    if request.format in TRACKERS:
        tracked, reasons = track(rows, request.format, request.out, start=request.start)
        return ExportReport(
            rows=sum(run.rows for run in tracked),
            files=(),
            left_out=+reasons,
            runs=tuple(run.name for run in tracked),
        )
    writer = _FOLDERS.get(request.format)
    if writer is None:
        records = map(to_record, rows)
        text = csv_text(records, SCHEMA.names) if request.format == "csv" else json_text(records)
        written = Written(files={"": text})
    else:
        written = writer(rows)
    left_out = {what: count for what, count in written.left_out.items() if count}
    if not written.files:
        why = " and ".join(left_out)
        raise NotMeasuredError(f"{request.format} has no place for any of these {len(rows)} rows: {why}")
    kept = len(rows) - sum(left_out.values())
    if request.out is None:
        if len(written.files) > 1:
            raise UsageError(f"{request.format} needs {len(written.files)} files; name a folder with --out")
        [text] = written.files.values()
        return ExportReport(rows=kept, files=(), left_out=left_out, text=text)
    texts = _placed(written, request.out)
    replace_texts(texts, option="--out", makes_folder=True)
    return ExportReport(rows=kept, files=tuple(map(str, texts)), left_out=left_out)


def _placed(written: Written, out: Path) -> dict[Path, str]:
    """Return texts by the files that they are to be in."""
    first, *others = written.files.items()
    if not others and (not first[0] or out.suffix == ".json"):
        return {out: first[1]}
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out {out} is no empty folder; name one that is empty, or that is to be made")
    return {out / name: text for name, text in written.files.items()}


def _selected(request: ExportRequest) -> list[Row]:
    ledger = Ledger(request.ledger)
    commit = None if request.commit is None else _meant_commit(request.commit, request.start)
    if request.run is not None:
        rows = ledger.rows_of(request.run)
    elif commit is not None and len(commit) == _SHA_DIGITS:
        rows = ledger.rows_on([commit])
    elif request.source is not None and request.source != _ANY_IMPORT:
        rows = ledger.rows_from(request.source)
    else:
        rows = ledger.rows()
    names = {row.outcome.benchmark.name for row in rows}
    wanted = {name for text in request.benchmarks for name in meant_by(text, names)}
    return [
        row
        for row in rows
        if (commit is None or row.commit.sha.startswith(commit))
        and (request.source is None or request.source in (row.source, row.source.partition(":")[0]))
        and (not request.benchmarks or row.outcome.benchmark.name in wanted)
    ]


def _meant_commit(ref: str, start: Path) -> str:
    """Return the hash of a ref, or the digits themselves where git does not know them."""
    try:
        return resolve(open_repository(start), ref).sha
    except RepositoryError:
        if not _DIGITS.fullmatch(ref):
            raise
        return ref


class _Importing:
    """One import: the runs that were filed, and doubts and problems."""

    def __init__(self, ledger: Ledger, request: ImportRequest, given: Commit | None) -> None:
        self.runs: list[ImportedRun] = []
        self._ledger, self._request, self._given = ledger, request, given
        self._recorded = set(recorded_ends(ledger.path))
        self._known_commits = ledger.imported_commits()
        self._used_given = False
        # What asv keeps beside its result files, each read once.
        self._beside: dict[Path, object] = {}
        self._doubts: list[str] = []
        self._problems: list[str] = []

    def found_in(self, files: Sequence[Path], progress: Callable[[float], None]) -> Iterator[_Found]:
        """Yield the runs of files; one that cannot be read is noted."""
        for number, file in enumerate(files, start=1):
            try:
                value = decode(_read_bytes(file))
                name = self._request.format or format_of(value)
                # All of a file is read before any of it is filed.
                runs = list(read(value, name, self._context(file.parent) if name == asv.TOOL else None))
                _check_runs(runs)
                yield from ((file, run) for run in runs)
            except UsageError as error:
                self._problems.append(f"{file} {error}")
            progress(number / len(files))

    def _context(self, folder: Path) -> AsvContext:
        """Return the machine and the benchmarks of a folder of asv's results; a damaged file is noted."""
        files = (folder / asv.MACHINE_FILE, folder.parent / asv.BENCHMARKS_FILE)
        for file in files:
            if file not in self._beside:
                self._beside[file] = None
                try:
                    self._beside[file] = decode(_read_bytes(file)) if file.is_file() else None
                except UsageError as error:
                    self._problems.append(f"{file} {error}")
        return asv.context_of(*(self._beside[file] for file in files))

    def file(self, batch: Sequence[_Found]) -> None:
        """File runs, with what git knows of their commits."""
        new: list[tuple[_Found, list[Row]]] = []
        described = describe_commits(
            self._request.start, {run.commit.sha for _, run in batch if run.commit is not None}
        )
        for found in batch:
            origin, run = found
            commit = self._commit_of(origin, run, described)
            if commit is not None:
                recorded_at = run.recorded_at or commit.time or utc_now()
                run_id = run_id_of(run, commit.sha, recorded_at)
                rows = rows_of(run, commit, run_id=run_id, recorded_at=recorded_at)
                if short_run_id(run_id) in self._recorded:
                    self._note(found, rows, present=len(rows), file=None)
                else:
                    new.append((found, rows))
        shared = self._known_commits & {rows[0].commit.sha for _, rows in new}
        # asv adds to its files, which are then imported again.
        known = {
            _key(row)
            for row in (self._ledger.rows_on(shared) if shared else [])
            if row.source.startswith(IMPORT_PREFIX)
        }
        for found, rows in new:
            lacking = [row for row in rows if _key(row) not in known] if known else rows
            self._file_one(found, rows, lacking)

    def report(self, files: int) -> ImportReport:
        """Return what was done."""
        if self._problems and not self.runs:
            error = UsageError(self._problems[0])
            for other in self._problems[1:]:
                error.add_note(other)
            raise error
        if self._given is not None and not self._used_given:
            self._doubts.append("--commit was not needed: every run names its own commit")
        return ImportReport(
            ledger=str(self._ledger.path),
            files=files,
            runs=tuple(self.runs),
            doubts=tuple(self._doubts),
            problems=tuple(self._problems),
        )

    def _commit_of(self, origin: Path, run: ToolRun, described: Mapping[str, Commit]) -> Commit | None:
        """Return the commit of a run, None where that is not known and noted so."""
        named = run.commit
        if named is None:
            if self._given is None:
                self._problems.append(
                    f"{origin} names no commit; name it with --commit "
                    f"(a ref of this repository, or {_SHA_DIGITS} hex digits)"
                )
            self._used_given = self._used_given or self._given is not None
            return self._given
        known = described.get(named.sha)
        if known is not None:
            return replace(known, branch=named.branch, dirty=named.dirty)
        if len(named.sha) == _SHA_DIGITS:
            return named
        self._problems.append(
            f'{origin} names the commit "{named.sha}", which is cut short and not known in '
            f"{self._request.start}; run this in its clone, or name that with --repo"
        )
        return None

    def _file_one(self, found: _Found, rows: Sequence[Row], new: Sequence[Row]) -> None:
        end = short_run_id(rows[0].run_id)
        file = None
        if new and end not in self._recorded:
            try:
                file = self._ledger.append(new)
            except LedgerError as error:
                # Another import may have just done so.
                if not isinstance(error.__cause__, FileExistsError):
                    raise
        if file is None:
            self._note(found, rows, present=len(rows), file=None)
            return
        self._recorded.add(end)
        origin, run = found
        self._doubts += [f"{origin.name}: {doubt}" for doubt in run.doubts]
        self._note(found, rows, present=len(rows) - len(new), file=file)

    def _note(self, found: _Found, rows: Sequence[Row], *, present: int, file: Path | None) -> None:
        (origin, run), first = found, rows[0]
        self.runs.append(
            ImportedRun(
                run_id=first.run_id,
                format=run.tool,
                origin=str(origin),
                commit=first.commit.sha,
                recorded_at=first.recorded_at,
                benchmarks=len({row.outcome.benchmark.name for row in rows}),
                rows=len(rows),
                present=present,
                failed=sum(row.outcome.status != "ok" for row in rows),
                file=None if file is None else str(file),
            )
        )


def _key(row: Row) -> str:
    parts = (row.source, row.commit.sha, row.machine.machine_id, row.environment.env_id)
    # Outcomes and policies have maps in them, which cannot be hashed; the order of maps is lost in files.
    benchmark = replace(row.outcome.benchmark, params={})
    return repr((*parts, replace(row.outcome, benchmark=benchmark), row.placement.launch))


def _check_runs(runs: Sequence[ToolRun]) -> None:
    """Refuse a file without any result, and one whose runs ``--commit`` cannot stand for."""
    if not runs:
        raise UsageError("holds no result")
    unnamed = sum(run.commit is None for run in runs)
    if unnamed > 1:
        raise UsageError(
            f"names no commit for {unnamed} of its {len(runs)} runs, which cannot all be of one; "
            "give each its commit in the file"
        )


def _given_commit(ref: str, start: Path) -> Commit:
    """Return the commit that ``--commit`` names; all its digits name one that git does not have, too."""
    named = commit_of(ref)
    try:
        return resolve(open_repository(start), ref)
    except RepositoryError:
        if named is None or len(named.sha) != _SHA_DIGITS:
            raise
        return named


def _files_of(place: Path) -> list[Path]:
    """Return the files that a place stands for: itself, or those in a folder that may hold results."""
    if not place.is_dir():
        if not place.exists():
            raise UsageError(f"there is no file or folder {place}")
        return [place]
    # The folder of an asv project has its environments beside its results.
    results = place / "results"
    top = results if (results / asv.BENCHMARKS_FILE).is_file() else place
    found = sorted(_walk(top))
    if not found:
        raise UsageError(f"{place} holds no results: no file in it ends in {', '.join(_ENDINGS)}")
    return found


def _walk(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        folders[:] = [name for name in folders if name not in _PASSED_OVER]
        for name in files:
            if name.endswith(_ENDINGS) and name not in (asv.MACHINE_FILE, asv.BENCHMARKS_FILE):
                yield Path(folder, name)


def _read_bytes(file: Path) -> bytes:
    try:
        return read_bytes(file, most=MOST_BYTES)
    except OSError as error:
        raise UsageError(f"cannot be read ({error.strerror or error})") from error


# The project or experiment of the runs, where the tracker's own setting names no other.
_PROJECT = "perfkit"
_TRAINING, _BENCHMARKS = "training", "benchmarks"
_SHORT_SHA = 7
# What MLflow takes at once, of a name, and of a text.
_BATCH, _LONGEST_NAME, _LONGEST_TEXT = 1000, 250, 5000


@dataclass(frozen=True)
class _Point:
    tag: str
    step: int
    value: float
    time: datetime


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """What a tracker is given as one run; ``points`` are in the order of their steps."""

    run_id: str
    name: str
    begun: datetime
    facts: Mapping[str, str]
    points: Sequence[_Point]
    rows: int


def track(
    rows: Sequence[Row], tool: str, out: Path | None, *, start: Path
) -> tuple[Sequence[TrackedRun], Counter[str]]:
    """Write rows as runs of a tracker, and return these with what was left out.

    A run that the tracker has already is left out; in TensorBoard it is replaced. Commits are looked up
    around ``start``.

    Raises:
        UsageError: the tracker's library is missing, or refuses a run.
    """
    libraries, write = TRACKERS[tool]
    need(*libraries, by=f"--format {tool}")
    left_out = Counter(filter(None, map(_reason_against, rows)))
    kept = [row for row in _in_order(rows, start) if not _reason_against(row)]
    in_tensorboard = write is _to_tensorboard
    runs = list(_runs_of(kept, merges=in_tensorboard))
    folder = out or Path("runs" if in_tensorboard else ".")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.chdir(folder):
            written = write(runs, out)
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UsageError(f"{tool} cannot take these runs in {folder}: {reason}") from error
    sent = sum(run.rows for run in runs)
    left_out["rows of earlier versions of their benchmarks"] = len(kept) - sent
    left_out["rows of runs that are there already"] = sent - sum(run.rows for run in written)
    return written, left_out


def _in_order(rows: Sequence[Row], start: Path) -> list[Row]:
    """Return rows by the places of their commits in history, and each commit's as they were recorded."""
    commits = {row.commit.sha: CommitFacts(sha=row.commit.sha, time=row.commit.time) for row in rows}
    order = Order.of((commits | commit_facts(start, commits)).values())
    return sorted(rows, key=lambda row: (order.place(row.commit.sha), row.recorded_at))


def _reason_against(row: Row) -> str:
    outcome = row.outcome
    if outcome.status != "ok" or not outcome.is_measured or not all(map(math.isfinite, outcome.values)):
        return "rows without a result"
    if row.source in OF_CHANGED_CODE:
        return "rows of code that was changed to measure it"
    return "rows of uncommitted changes" if row.commit.dirty and row.source != _TRAINING else ""


def _runs_of(rows: Sequence[Row], *, merges: bool) -> Iterator[TrackedRun]:
    """Yield the runs of rows; with ``merges`` all benchmarks of a machine are one."""

    def key(row: Row) -> tuple[str, str]:
        if row.source == _TRAINING:
            return row.run_id, row.outcome.benchmark.name
        return (row.machine.machine_id, _BENCHMARKS) if merges else (row.run_id, row.source)

    for of_run in grouped(rows, key):
        first = of_run[0]
        run_id, group = key(first)
        is_training, begun = first.source == _TRAINING, first.recorded_at
        place = f"{begun:%Y%m%dT%H%M%SZ}-{first.commit.sha[:_SHORT_SHA]}-{short_run_id(run_id)}"
        shown = of_run if is_training else _of_newest_versions(of_run)
        points = [point for row in shown for point in _steps(row)] if is_training else _means(shown)
        yield TrackedRun(
            run_id=run_id,
            name=f"{plain_name(group)}/{plain_name(run_id) if group == _BENCHMARKS else place}",
            begun=begun,
            facts=_facts(shown),
            points=sorted(points, key=lambda one: one.step),
            rows=len(shown),
        )


def _facts(rows: Sequence[Row]) -> dict[str, str]:
    """Return what is true of all rows: commit, machine and software; and several commits in order."""
    first, *others = map(_facts_of, rows)
    shared = {
        name: text for name, text in first.items() if text and all(text == one.get(name) for one in others)
    }
    commits = " ".join(dict.fromkeys(row.commit.sha[:_SHORT_SHA] for row in rows))
    return shared if "commit" in shared else {**shared, "commits": commits}


def _facts_of(row: Row) -> dict[str, str | None]:
    commit = row.commit
    return {
        **row.environment.facts,
        **row.machine.facts,
        **(row.outcome.benchmark.params if row.source == _TRAINING else {}),
        "machine": row.machine.machine_id,
        "recorded_at": row.recorded_at.isoformat(),
        "source": row.source,
        "commit": commit.sha,
        "branch": commit.branch,
        "subject": commit.subject,
        "dirty": str(commit.dirty).lower(),
        "findings": row.outcome.message,
    }


def _steps(row: Row) -> Iterator[_Point]:
    """Yield the values of a training's row at the steps that they begin with."""
    outcome, time = row.outcome, row.recorded_at
    name = outcome.metric.name.replace("time in ", "phases/").replace(": ", "/")
    for place, value in enumerate(outcome.values):
        step = (outcome.warmup or 0) + place * (outcome.loops or 1)
        yield _Point(name if "/" in name else f"training/{name}", step, value, time)
        if outcome.metric == WALL_TIME and value:
            yield _Point("training/steps per second", step, 1 / value, time)
    if outcome.metric == STEP_TIME:
        # Tables of runs show the last value of a series.
        yield _Point("training/median step_time", step, statistics.median(outcome.values), time)


def _of_newest_versions(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of benchmarks as they are now: one that was changed begins anew."""
    newest = {row.outcome.benchmark.name: row.outcome.benchmark.version for row in rows}
    return [row for row in rows if newest[row.outcome.benchmark.name] == row.outcome.benchmark.version]


def _means(rows: Sequence[Row]) -> Iterator[_Point]:
    """Yield the mean of each benchmark and metric at each commit, whose step is its place among these."""
    places = {sha: place for place, sha in enumerate(dict.fromkeys(row.commit.sha for row in rows))}

    def key(row: Row) -> tuple[str, str]:
        return row.commit.sha, f"{row.outcome.benchmark.name}/{row.outcome.metric.name}"

    for alike in grouped(rows, key):
        (sha, tag), first = key(alike[0]), alike[0]
        outcomes = [row.outcome for row in alike]
        means = [one.summary.mean if one.summary else statistics.fmean(one.values) for one in outcomes]
        yield _Point(tag, places[sha], statistics.fmean(means), first.commit.time or first.recorded_at)


def _to_tensorboard(runs: Sequence[TrackedRun], _out: Path | None) -> Sequence[TrackedRun]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    for run in runs:
        folder, begun = Path(_PROJECT, run.name), run.begun.timestamp()
        before = list(folder.glob("*tfevents*"))
        writer = EventFileWriter(str(folder))
        facts = hparams_pb(run.facts, trial_id=run.run_id, start_time_secs=begun)
        writer.add_event(Event(wall_time=begun, summary=facts))
        for one in run.points:
            scalar = Summary(value=[Summary.Value(tag=one.tag, simple_value=one.value)])
            writer.add_event(Event(wall_time=one.time.timestamp(), step=one.step, summary=scalar))
        writer.close()
        for file in before:
            file.unlink()
    return runs


def _to_wandb(runs: Sequence[TrackedRun], _out: Path | None) -> Sequence[TrackedRun]:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    import wandb

    place = Path("wandb").absolute()
    new = [run for run in runs if not any(place.glob(f"*-{run.run_id}"))]
    place.mkdir(exist_ok=True)
    for run in new:
        # This process is not the one that was measured.
        hidden = dict.fromkeys(("disable_code", "disable_git", "x_disable_meta", "x_disable_stats"), True)
        settings = wandb.Settings(**hidden, silent=True, console="off", x_save_requirements=False)
        # Written elsewhere, so that a run that was cut off is not taken for one that is there.
        with tempfile.TemporaryDirectory(dir=place) as folder:
            with wandb.init(
                project=os.environ.get("WANDB_PROJECT", _PROJECT),
                id=run.run_id,
                name=run.name,
                group=run.name.partition("/")[0],
                config=dict(run.facts),
                mode="offline",
                dir=folder,
                settings=settings,
            ) as kept:
                for step, points in itertools.groupby(run.points, lambda one: one.step):
                    kept.log({one.tag: one.value for one in points}, step=step)
            for written in Path(folder, "wandb").glob("offline-run-*"):
                written.rename(place / written.name)
    return new


def _to_mlflow(runs: Sequence[TrackedRun], out: Path | None) -> Sequence[TrackedRun]:
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(None if out is None else f"sqlite:///{Path('mlflow.db').absolute()}")
    project = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
    found = client.get_experiment_by_name(project)
    experiment = client.create_experiment(project) if found is None else found.experiment_id

    def is_new(run: TrackedRun) -> bool:
        found = client.search_runs([experiment], f"tags.`perfkit.run` = '{run.run_id}'")
        for one in found:
            if one.info.status != "FINISHED":
                client.delete_run(one.info.run_id)
        return all(one.info.status != "FINISHED" for one in found)

    def milliseconds(time: datetime) -> int:
        return int(time.timestamp() * 1000)

    new = [run for run in runs if is_new(run)]
    for run in new:
        begun, sha = milliseconds(run.begun), run.facts.get("commit", "")
        tags = {**run.facts, "perfkit.run": run.run_id, "mlflow.source.git.commit": sha}
        made = client.create_run(
            experiment,
            start_time=begun,
            tags={_plain(name): text[:_LONGEST_TEXT] for name, text in tags.items()},
            run_name=run.name,
        )
        metrics = [Metric(_plain(one.tag), one.value, milliseconds(one.time), one.step) for one in run.points]
        for begin in range(0, len(metrics), _BATCH):
            client.log_batch(made.info.run_id, metrics=metrics[begin : begin + _BATCH])
        client.set_terminated(made.info.run_id, end_time=begun)
    return new


def _plain(name: str) -> str:
    """Return the end of a name, with "_" for the signs that MLflow refuses."""
    return re.sub(r"[^\w./ -]", "_", name)[-_LONGEST_NAME:]


_Write = Callable[[Sequence[TrackedRun], Path | None], Sequence[TrackedRun]]
# The libraries that each needs, and what writes the runs that it does not have into the present folder.
TRACKERS: Mapping[str, tuple[tuple[str, ...], _Write]] = {
    "tensorboard": (("tensorboard",), _to_tensorboard),
    "wandb": (("wandb",), _to_wandb),
    "mlflow": (("mlflow", "sqlalchemy", "alembic"), _to_mlflow),
}
