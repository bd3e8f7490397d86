"""Record what is measured: staged at once, published as one file at the end.

A run's rows are appended to a file in ``.staged`` as they come: a header, then a line for each batch of rows
with a checksum before it. The process that measures holds a lock on it. A file without that lock is of
a run that was cut off: ``recover`` publishes what is in it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import math
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import msgspec
import pyarrow as pa

from perfkit.agent.clock import ColdStart, DeviceTimes
from perfkit.bounded import DATA_BYTES, read_bytes
from perfkit.errors import LedgerError, RecordingError
from perfkit.invocation import signals_put_off
from perfkit.ledger.files import (
    STAGED_FOLDER,
    OnStep,
    begin_hidden_folder,
    end_hidden_folder,
    files_in,
    ignore_log,
    list_files,
    listed_if_readable,
    names_in_turn,
    reason_of,
    remove_temporary,
    run_stem,
    sync_folder,
    write_table,
)
from perfkit.ledger.queries import read_table
from perfkit.ledger.remote import Put, put_pending, put_published, shown_place
from perfkit.ledger.schema import NO_ROW, SCHEMA, SCHEMA_VERSION, from_cells, from_table, to_cells, to_table
from perfkit.model import (
    COLD_AUTOTUNING,
    COLD_COMPILING,
    COLD_START,
    DEVICE_TIME,
    HOST_TIME,
    Commit,
    Environment,
    Machine,
    Metric,
    Outcome,
    Placement,
    Row,
    RowPolicy,
)
from perfkit.temporary import hold_lock
from perfkit.units import counted

# The version of the lines; what they hold of a row has that of the ledger's schema.
_FORMAT = 1
_CHECKSUM_DIGITS = 16
# Whole numbers of each column are below this.
_LIMITS = {one.name: 1 << (one.type.bit_width - 1) for one in SCHEMA if pa.types.is_integer(one.type)}


@dataclass(frozen=True, kw_only=True)
class Header:
    """The first line of a staged file; that of a newer version may lack what this one has."""

    perfkit_staged: int
    schema: int
    perfkit: str = "?"
    source: str | None = None
    run_id: str | None = None
    recorded_at: datetime | None = None
    # Of all the rest; older perfkits wrote none.
    checksum: str = ""


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a staged file holds: ``size`` bytes of it stand, ``damaged`` whole lines among them do not."""

    header: Header | None = None
    rows: tuple[Row, ...] = ()
    size: int = 0
    damaged: int = 0
    problem: str = ""


def header_line(*, source: str, run_id: str, recorded_at: datetime) -> bytes:
    """Return the first line of a run that this perfkit begins."""
    header = Header(
        perfkit_staged=_FORMAT,
        schema=SCHEMA_VERSION,
        perfkit=_version(),
        source=source,
        run_id=run_id,
        recorded_at=recorded_at,
    )
    return msgspec.json.encode(replace(header, checksum=_header_checksum(header))) + b"\n"


def _header_checksum(header: Header) -> str:
    return _checksum(msgspec.json.encode(replace(header, checksum=""))).decode()


def rows_line(rows: Sequence[Row]) -> bytes:
    """Return the line of a batch of rows."""
    cells = [to_cells(row) for row in rows]
    for one in cells:
        for name, limit in _LIMITS.items():
            number = one.get(name)
            if number is not None and not -limit <= number < limit:
                raise LedgerError(f"{name} is {number}, and must be from {-limit} to {limit - 1}")
    are_finite = all(math.isfinite(value) for row in rows for value in row.outcome.values)
    try:
        # A tenth of the time of Python's JSON, but it writes null for NaN and refuses text that is not UTF-8.
        text = msgspec.json.encode(cells) if are_finite else _to_any_json(cells)
    except UnicodeEncodeError:
        text = _to_any_json(cells)
    return _checksum(text) + b" " + text + b"\n"


def _to_any_json(cells: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps(cells, separators=(",", ":")).encode()


def _version() -> str:
    try:
        return metadata.version("perfkit")
    except metadata.PackageNotFoundError:
        return "?"


def _checksum(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:_CHECKSUM_DIGITS].encode()


def read_staged(staged: Path) -> Content:
    """Return what a staged file holds; one without a whole first line holds nothing."""
    first, newline, rest = read_bytes(staged, most=DATA_BYTES).partition(b"\n")
    if not newline:
        return Content()
    header = _header_of(first)
    if header and (header.perfkit_staged > _FORMAT or header.schema > SCHEMA_VERSION):
        problem = f"was written by a newer perfkit ({header.perfkit}); upgrade perfkit to recover it"
        return Content(header=header, problem=problem)
    if header and _is_as_written(header, first):
        return _read_batches(header, rest, size=len(first) + 1)
    content = _read_batches(None, rest, size=len(first) + 1)
    if not content.rows:
        return Content(problem="is no staged run of perfkit; move it away")
    # Each line of rows has its own checksum and run id.
    return replace(content, damaged=content.damaged + 1)


def _is_as_written(header: Header, line: bytes) -> bool:
    if header.checksum:
        return header.checksum == _header_checksum(header)
    return set(json.loads(line)) <= {one.name for one in fields(Header)} - {"checksum"}


def _header_of(line: bytes) -> Header | None:
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _read_batches(header: Header | None, text: bytes, *, size: int) -> Content:
    # An unfinished last line was never acknowledged.
    *lines, _ = text.split(b"\n")
    batches = [_read_batch(line) for line in lines]
    return Content(
        header=header,
        rows=tuple(row for batch in batches if batch is not None for row in batch),
        size=size + sum(len(line) + 1 for line in lines),
        damaged=batches.count(None),
    )


def _read_batch(line: bytes) -> tuple[Row, ...] | None:
    checksum, _, text = line.partition(b" ")
    if checksum != _checksum(text):
        return None
    unknown = dict.fromkeys(SCHEMA.names)
    try:
        cells = msgspec.convert(json.loads(text), type=list[dict[str, Any]])
        rows = [from_cells({**unknown, **one}) for one in cells]
        # Anybody can write a checksum: these are rows if a table can be made of them.
        return tuple(from_table(to_table(rows)))
    except (*NO_ROW, pa.ArrowException, msgspec.ValidationError, LedgerError):
        return None


@contextmanager
def claimed(staged: Path) -> Iterator[int]:
    """Hold the lock of a staged file whose owner is dead."""
    descriptor = _open_to_lock(staged)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LedgerError(
                f"another perfkit is measuring what is in {staged}; wait for it to end"
            ) from None
        if not os.fstat(descriptor).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(staged))
        yield descriptor
    finally:
        os.close(descriptor)


def _open_to_lock(staged: Path) -> int:
    try:
        return os.open(staged, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        # In a ledger that cannot be written a lock is still to be had.
        if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise
        return os.open(staged, os.O_RDONLY | os.O_CLOEXEC)


_RECOVERS = "the next perfkit command on that ledger recovers them"
_NOUNS = {
    "pytest": "a pytest session",
    "experiment": "an experiment",
    "tricks": "a trial of tricks",
    "bisect": "a bisection",
    "calibrate": "a gate of a calibration",
}


class Run:
    """The rows of one run, safe as soon as they are added, and one file of the ledger at the end.

    Left by an exception, ``with`` publishes what was added, marked partial. Where that fails too, and where
    the process is killed, the rows stay staged and the next perfkit command on the ledger recovers them.
    """

    def __init__(
        self,
        staged: Path,
        target: Path,
        *,
        header: bytes,
        run_id: str,
        put: Callable[[Path], None] = put_published,
        on_step: OnStep = ignore_log,
    ) -> None:
        self._put = put
        self.run_id = run_id
        self._header = header
        self.staged = staged
        self.file: Path | None = None
        self._target = target
        self._on_step = on_step
        self._rows: list[Row] = []
        self._size = 0
        self._descriptor: int | None = None

    @classmethod
    def begin(
        cls,
        ledger: Path,
        *,
        source: str,
        run_id: str,
        recorded_at: datetime,
        folder: Path | None = None,
        put: Callable[[Path], None] = put_published,
        on_step: OnStep = ignore_log,
    ) -> Run:
        """Begin a run of a ledger; its rows are staged in ``folder``, by default where ``recover`` looks."""
        stem = run_stem(recorded_at, source, run_id)
        target = ledger / f"{stem}.parquet"
        if _is_published(target):
            raise LedgerError(f"the run {run_id} is in the ledger already: {target}")
        try:
            header = header_line(source=source, run_id=run_id, recorded_at=recorded_at)
            staged = (folder or ledger / STAGED_FOLDER) / f"{stem}.jsonl"
            run = cls(staged, target, header=header, run_id=run_id, put=put, on_step=on_step)
            run._create(header)
        except OSError as error:
            raise LedgerError(
                f"cannot write to the ledger {ledger} ({error.strerror or error}); "
                "choose another place with --ledger PATH"
            ) from error
        return run

    @classmethod
    def resume(cls, ledger: Path, *, folder: Path, on_step: OnStep = ignore_log) -> Run | None:
        """Go on with the run that is staged in ``folder``; None where there is none.

        Its ``file`` is set where it was published already and only the staged file is left.
        """
        try:
            for staged in files_in(folder, "*.jsonl"):
                with claimed(staged) as descriptor:
                    content = read_staged(staged)
                    if content.problem:
                        raise LedgerError(f"{staged} {content.problem}")
                    if content.damaged:
                        raise LedgerError(
                            f"{staged} has {counted(content.damaged, 'damaged line')} beside "
                            f"{counted(len(content.rows), 'row')} that can be read; "
                            "move it away to measure anew"
                        )
                    if content.header is None or content.header.run_id is None:
                        staged.unlink()
                        continue
                    run_id, target = content.header.run_id, ledger / f"{staged.stem}.parquet"
                    header = staged.read_bytes().partition(b"\n")[0] + b"\n"
                    run = cls(staged, target, header=header, run_id=run_id, on_step=on_step)
                    run._take_over(os.dup(descriptor), content)
                    return run
        except OSError as error:
            raise LedgerError(
                f"cannot go on with the run that is staged in {folder} ({reason_of(error)}); "
                "its rows stay there"
            ) from error
        return None

    @property
    def rows(self) -> tuple[Row, ...]:
        """What was added so far."""
        return tuple(self._rows)

    @property
    def kept(self) -> str:
        """Where the rows are, as the end of a sentence on what was cut off."""
        if self.file is not None:
            return f"its rows so far are in {shown_place(self.file)}"
        if not self._rows:
            return "no row was complete"
        return f"its {len(self._rows)} rows so far are in {self.staged}: {self._goes_on}"

    @property
    def _goes_on(self) -> str:
        return _RECOVERS if self.staged.parent.name == STAGED_FOLDER else "the same command goes on with them"

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows; once it returns, they outlive this process.

        Signals that end a command are put off meanwhile: rows that were measured are not given up while they
        are written.
        """
        descriptor = self._open_descriptor()
        if not rows:
            return
        with signals_put_off():
            try:
                self._stage(descriptor, rows)
            except (OSError, LedgerError) as error:
                reason = (error.strerror if isinstance(error, OSError) else None) or error
                raise RecordingError(
                    f"cannot write to {self.staged} ({reason}), so {len(rows)} rows are lost; "
                    f"the {len(self._rows)} rows before them are kept there: {self._goes_on}"
                ) from error
            self._rows += rows
        self._on_step("rows staged")

    def publish(
        self, complete: Callable[[Row], Row] = lambda row: row, *, instead: Sequence[Row] | None = None
    ) -> Path | None:
        """Write all rows as one file of the ledger and return it, None without a row; the run is over."""
        self._open_descriptor()
        return self._publish([complete(row) for row in (self._rows if instead is None else instead)])

    def discard(self) -> None:
        """Forget what was added, as where it is found that another code was measured; the run is over."""
        self._open_descriptor()
        self._rows.clear()
        self._remove_staged()

    def leave(self) -> None:
        """Let go of the run and leave its rows staged; the run is over for this process."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Publish what was added, marked partial where an exception ended it; that one is never hidden."""
        if self._descriptor is None:
            return
        try:
            if error is None:
                self.publish()
            elif not isinstance(error, RecordingError):
                with contextlib.suppress(Exception):
                    self._publish(_partial(self._rows))
        finally:
            self.leave()

    def _stage(self, descriptor: int, rows: Sequence[Row]) -> None:
        """Write rows into the staged file, or all rows into another one where it was removed meanwhile.

        Locks of some network file systems hold on one host only: another one takes the run for cut off.
        """
        try:
            self._write(descriptor, rows_line(rows))
            is_taken = _is_removed(descriptor)
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            is_taken = True
        if is_taken:
            self._stage_anew([*self._rows, *rows])

    def _stage_anew(self, rows: Sequence[Row]) -> None:
        before = self.staged, self._target, self._size
        old, self._target = self._open_descriptor(), _free_target(self._target)
        self.staged = self.staged.with_name(f"{self._target.stem}.jsonl")
        try:
            self._create(self._header + rows_line(rows))
        except BaseException:
            (self.staged, self._target, self._size), self._descriptor = before, old
            raise
        os.close(old)

    def _create(self, header: bytes) -> None:
        """Create the staged file with its header, locked."""
        descriptor = self._open_new()
        while True:
            hold_lock(descriptor)
            # Another perfkit may have seen it before it was locked, and removed it as an empty one.
            if os.fstat(descriptor).st_nlink:
                break
            os.close(descriptor)
            descriptor = self._open_new()
        self._descriptor, self._size = descriptor, 0
        _OPEN.add(self)
        try:
            self._write(descriptor, header)
            sync_folder(self.staged.parent)
        except BaseException:
            self._remove_staged()
            raise
        self._on_step("run begun")

    def _open_new(self) -> int:
        while True:
            begin_hidden_folder(self.staged.parent)
            # The end of another run may remove the folder in between.
            with contextlib.suppress(FileNotFoundError):
                return os.open(self.staged, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def _take_over(self, descriptor: int, content: Content) -> None:
        self._descriptor, self._rows, self._size = descriptor, list(content.rows), content.size
        _OPEN.add(self)
        try:
            # A line that was cut off would make one with the next.
            os.ftruncate(descriptor, content.size)
        except OSError:
            self.leave()
            raise
        if _is_published(self._target):
            self.file = self._target

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise RuntimeError("this run is over: it was published, discarded or left")
        return self._descriptor

    def _write(self, descriptor: int, line: bytes) -> None:
        try:
            done = 0
            while done < len(line):
                done += os.pwrite(descriptor, line[done:], self._size + done)
            os.fsync(descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, self._size)
            raise
        self._size += len(line)

    def _publish(self, rows: Sequence[Row]) -> Path | None:
        try:
            if rows and self.file is None:
                self.file = self._written(rows)
            self._remove_staged()
        except (OSError, pa.ArrowException, LedgerError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            raise RecordingError(
                f"cannot write the ledger file {self._target} ({reason}); "
                f"its {len(self._rows)} rows are kept in {self.staged}: {self._goes_on}"
            ) from error
        if self.file is not None:
            self._put(self.file)
        return self.file

    def _written(self, rows: Sequence[Row]) -> Path:
        if _is_removed(self._open_descriptor()):
            self._target = _free_target(self._target)
        while True:
            try:
                _write_run(rows, self._target, self._on_step)
            except FileExistsError:
                if not self._target.is_file():
                    raise
                if not _is_whole(self._target, rows):
                    self._target = _free_target(self._target)
                    continue
            return self._target

    def _remove_staged(self) -> None:
        self.staged.unlink(missing_ok=True)
        end_hidden_folder(self.staged.parent)
        self._on_step("staged file removed")
        self.leave()


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """A run that was cut off: its rows are in ``file`` now, or still ``staged`` because of a ``problem``."""

    staged: Path
    source: str | None = None
    run_id: str | None = None
    recorded_at: datetime | None = None
    rows: int = 0
    launches: int = 0
    file: Path | None = None
    problem: str = ""

    @property
    def text(self) -> str:
        """One line for a person."""
        what = _NOUNS.get(self.source or "", f"a {self.source or 'run'}")
        when = f" of {self.recorded_at:%d %b %H:%M} UTC" if self.recorded_at else ""
        if self.file is None:
            return f"{what}{when} was cut off; {self.staged} {self.problem}"
        rows = "1 row is" if self.rows == 1 else f"{self.rows} rows are"
        rest = f"; {self.problem}" if self.problem else ""
        return f"{what}{when} was cut off; its {rows} recovered in {self.file}, marked partial{rest}"


def recover(ledger: Path, *, on_step: OnStep = ignore_log) -> tuple[Recovered, ...]:
    """Publish what runs staged that were cut off, marked partial, and return what was found of each.

    A run that still goes on is left alone. What cannot be published stays where it is, and is reported.
    """
    found = [
        _recover_one(staged, ledger, on_step)
        for staged in listed_if_readable(ledger / STAGED_FOLDER, "*.jsonl")
    ]
    end_hidden_folder(ledger / STAGED_FOLDER)
    return tuple(one for one in found if one is not None)


def _recover_one(staged: Path, ledger: Path, on_step: OnStep) -> Recovered | None:
    found = Recovered(staged=staged)
    try:
        with claimed(staged):
            content = read_staged(staged)
            target = ledger / f"{staged.stem}.parquet"
            header = content.header
            found = Recovered(
                staged=staged,
                source=header.source if header else None,
                run_id=header.run_id if header else None,
                recorded_at=header.recorded_at if header else None,
                rows=len(content.rows),
                launches=len({(row.commit.sha, row.placement.launch) for row in content.rows}),
                problem=content.problem,
            )
            if content.problem:
                return found
            if _is_published(target) or not (content.rows or content.damaged):
                staged.unlink()
                return None
            return _put_into_ledger(found, content, target, on_step)
    except (LedgerError, FileNotFoundError):
        # Its owner lives, or another perfkit has just recovered it.
        return None
    except (OSError, pa.ArrowException) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        return dataclasses.replace(found, problem=f"cannot be recovered ({reason}); its rows stay there")


def _put_into_ledger(found: Recovered, content: Content, target: Path, on_step: OnStep) -> Recovered:
    staged, file = found.staged, None
    if content.rows:
        remove_temporary(target.parent, target.name)
        # A file that is there is the run's own, written before it was cut off.
        with contextlib.suppress(FileExistsError):
            _write_run(_partial(content.rows), target, on_step)
        if not target.is_file():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
        file = target
    if not content.damaged:
        staged.unlink()
        on_step("staged file removed")
        return dataclasses.replace(found, file=file)
    aside = staged.with_suffix(".damaged")
    staged.rename(aside)
    lines = "1 damaged line" if content.damaged == 1 else f"{content.damaged} damaged lines"
    problem = f"{aside} has {lines} with more" if file else f"has {lines} and nothing else"
    return dataclasses.replace(found, file=file, staged=aside, problem=problem)


def _is_removed(descriptor: int) -> bool:
    try:
        return not os.fstat(descriptor).st_nlink
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return True


def _write_run(rows: Sequence[Row], target: Path, on_step: OnStep) -> None:
    replaces = dict(names_in_turn(target.name)).get(target.name, ())
    write_table(to_table(rows), target, replaces=replaces, on_step=on_step)
    for name in replaces:
        # Readers pass over one that stays, and the next compacting removes it.
        with contextlib.suppress(OSError):
            (target.parent / name).unlink()


def _free_target(target: Path) -> Path:
    listing = list_files(target.parent)
    for name, _ in names_in_turn(target.name):
        if name not in listing.names and name not in listing.replaced:
            return target.with_name(name)
    raise LedgerError("other hosts take the run for one that was cut off again and again")


def _is_whole(file: Path, rows: Sequence[Row]) -> bool:
    """Return whether a file has what is to be written: only a run itself writes all of its rows.

    What it held when it was taken for cut off is marked partial, and is the beginning of its rows.
    """
    try:
        marks = read_table(file)["partial"].to_pylist()
    except LedgerError:
        return False
    return not any(marks) or (all(row.partial for row in rows) and len(marks) >= len(rows))


def _is_published(target: Path) -> bool:
    return target.exists() or target.name in list_files(target.parent).replaced


def _partial(rows: Sequence[Row]) -> list[Row]:
    return [dataclasses.replace(row, partial=True) for row in rows]


_OPEN: weakref.WeakSet[Run] = weakref.WeakSet()


def _let_go_in_child() -> None:
    for run in list(_OPEN):
        run.leave()


os.register_at_fork(after_in_child=_let_go_in_child)


def recover_leftovers(ledger: Path) -> Iterator[Recovered | Put]:
    """Recover runs that were cut off, put what is pending into the store, and yield what came of it."""
    yield from recover(ledger)
    pending = put_pending(ledger)
    if pending is not None and pending.text:
        yield pending


_ANYWHERE, _NO_RULES = Placement(), RowPolicy()


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the rows of a run share."""

    run_id: str
    recorded_at: datetime
    source: str
    commit: Commit
    machine: Machine
    environment: Environment

    def row(
        self, outcome: Outcome, *, placement: Placement = _ANYWHERE, policy: RowPolicy = _NO_RULES
    ) -> Row:
        """Return the row of an outcome."""
        return Row(
            run_id=self.run_id,
            recorded_at=self.recorded_at,
            source=self.source,
            commit=self.commit,
            machine=self.machine,
            environment=self.environment,
            outcome=outcome,
            placement=placement,
            policy=policy,
        )


def device_values(device: DeviceTimes | None) -> Iterator[tuple[Metric, tuple[float, ...]]]:
    """Yield the metrics of an accelerator that are known, with their values."""
    if device is not None and device.device_s:
        yield DEVICE_TIME, device.device_s
    if device is not None and device.host_s:
        yield HOST_TIME, device.host_s


def cold_start_values(cold: ColdStart | None) -> Iterator[tuple[Metric, tuple[float, ...]]]:
    """Yield the metrics of a first call with its seconds; its parts if torch reported them."""
    if cold is None:
        return
    yield COLD_START, (cold.total_s,)
    if cold.compiling_s or cold.autotuning_s:
        yield COLD_COMPILING, (cold.compiling_s or 0.0,)
        yield COLD_AUTOTUNING, (cold.autotuning_s or 0.0,)


def outcomes_of(
    whole: Outcome, device: DeviceTimes | None, cold: ColdStart | None
) -> Iterator[tuple[Outcome, tuple[str, ...]]]:
    """Yield the times of an outcome, those of the device and of the first call, with marks of the latter."""
    yield whole, ()
    for metric, values in device_values(device):
        yield replace(whole, metric=metric, values=values), ()
    for metric, values in cold_start_values(cold):
        yield replace(whole, metric=metric, warmup=0, loops=1, values=values), cold.marks if cold else ()
