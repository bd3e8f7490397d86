"""Tasks that an engine does: their JSON, the run of each, and the engine of this machine."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import msgspec

from perfkit.commands.measuring import measuring
from perfkit.errors import LedgerError, NotMeasuredError, RecordingError
from perfkit.identity import utc_now
from perfkit.ledger.files import copy_bytes, only_one, recorded_ends, run_end, run_stem, write_table
from perfkit.ledger.remote import put_once
from perfkit.ledger.rows import RunFacts
from perfkit.ledger.schema import to_table
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Commit, Outcome, Row
from perfkit.model.tasks import MachineClass, Task
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.temporary import temporary_folder

_ID_BITS = 128
_GROUP = "perfkit.tasks"
# What a kind records is filed under this source.
SOURCES = {"commit": "backfill", "rehearsal": "calibrate", "pair": "bisect"}


class Work(Protocol):
    """Gives an engine tasks, and takes their results; see ``TaskQueue``."""

    def next(self, machine: MachineClass) -> Task | None:
        """Return a task for a free machine of a class, None where none is left for it now."""

    def left(self) -> int:
        """Return how many tasks have not been given out, on all classes."""

    def done(self, task: Task, content: bytes, *, seconds: float) -> None:
        """Take the file of a task that was done."""

    def failed(self, task: Task, reason: str) -> None:
        """Note why a task could not be done; nothing is filed of it."""

    def give_back(self, task: Task) -> None:
        """Take a task back whose worker was lost, to be given out again."""


class TaskQueue:
    """Tasks that are given out in their order; what they end in is filed in a ledger."""

    def __init__(self, tasks: Sequence[Task], ledger: Path) -> None:
        self._waiting, self._ledger = list(tasks), ledger

    def next(self, machine: MachineClass) -> Task | None:
        """Return the next task, if it is for machines of a class."""
        return self._waiting.pop(0) if self._waiting and self._waiting[0].machine == machine else None

    def left(self) -> int:
        """Return how many tasks have not been given out."""
        return len(self._waiting)

    def done(self, task: Task, content: bytes, *, seconds: float) -> None:
        """File a task."""
        rows = unpack(task, content)
        file_once(self._ledger, task, content)
        self.filed(task, rows, seconds)

    def filed(self, task: Task, rows: list[Row], seconds: float) -> None:
        """Note the rows of a task that was filed."""

    def give_back(self, task: Task) -> None:
        """Take a task back whose worker was lost, to be the next."""
        self._waiting.insert(0, task)


class Engine(Protocol):
    """Does tasks, one at a time on each machine."""

    def classes(self) -> tuple[MachineClass, ...]:
        """Return the classes of machines that it has."""

    def perform(self, work: Work) -> None:
        """Do tasks until none is left."""


@dataclass(frozen=True, kw_only=True)
class Doing:
    """A task that is being done: the code's ``project`` folder, and the ``ledger`` that takes its rows."""

    task: Task
    project: Path
    ledger: Path
    log: Callable[[str], None]


# A kind of task is one function: it measures what a task names and records it in the ledger of ``Doing``.
Kind = Callable[[Doing], None]


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """Does tasks by a function that returns the bytes of a task's file; ``machine`` is this one's class."""

    machine: MachineClass
    perform_task: Callable[[Task], bytes]

    def classes(self) -> tuple[MachineClass, ...]:
        """Return the class of this machine."""
        return (self.machine,)

    def perform(self, work: Work) -> None:
        """Do tasks until none is left; one that cannot be done does not keep the others from it."""
        while (task := work.next(self.machine)) is not None:
            begun = time.monotonic()
            try:
                content = self.perform_task(task)
            except NotMeasuredError as error:
                work.failed(task, str(error))
                continue
            work.done(task, content, seconds=time.monotonic() - begun)


def own_class() -> MachineClass:
    """Return the class that this machine belongs to with this Python and torch."""
    facts = read_environment(torch_settings={}).facts
    return MachineClass(machine_id=read_machine().machine_id, python=facts["python"], torch=facts["torch"])


def perform_here(
    task: Task,
    project: Path,
    log: Callable[[str], None],
    *,
    others: Mapping[str, Kind] = MappingProxyType({}),
) -> bytes:
    """Do a task of a core kind or of ``others`` here, and return the bytes of its ledger file."""
    with temporary_folder() as ledger:
        kind = {**KINDS, **others}.get(task.kind) or _installed_kind(task.kind)
        kind(Doing(task=task, project=project, ledger=ledger, log=log))
        return pack(task, ledger)


def _installed_kind(name: str) -> Kind:
    """Return a kind of task that another package adds by an entry point of the group ``perfkit.tasks``."""
    for entry in importlib.metadata.entry_points(group=_GROUP, name=name):
        found: Kind = entry.load()
        return found
    raise NotMeasuredError(f'there is no kind of task "{name}" here; known kinds: {", ".join(sorted(KINDS))}')


def _commit(doing: Doing) -> None:
    from perfkit.commands.commit_launches import measure_commit

    with measuring(doing.log, wait_s=None):
        measure_commit(doing)


def _calibration_gate(doing: Doing) -> None:
    from perfkit.commands.calibrate import run_calibration_task

    run_calibration_task(doing)


def _check(doing: Doing) -> None:
    """Record a row of nothing: a check sends it there and back, and files it nowhere."""
    facts = RunFacts(
        run_id=doing.task.kind,
        recorded_at=utc_now(),
        source=doing.task.kind,
        commit=Commit(sha=doing.task.commits[0]),
        machine=read_machine(),
        environment=read_environment(),
    )
    nothing = Outcome(benchmark=Benchmark(name="check", version=""), values=(0.0,))
    Ledger(doing.ledger).append([facts.row(nothing)])


# How each kind of task is done: a function that measures, and records in the ledger of ``Doing``.
KINDS: dict[str, Kind] = {"check": _check, "commit": _commit, "rehearsal": _calibration_gate}


def encode(task: Task) -> str:
    """Return a task as JSON."""
    return msgspec.json.encode(task).decode()


def decode(text: str | bytes) -> Task:
    """Return the task that a text holds."""
    try:
        return msgspec.json.decode(text, type=Task)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotMeasuredError(f"the file holds no task of this version of perfkit: {error}") from error


def run_of(task: Task) -> str:
    """Return the id of a task's run (UUID 8, RFC 9562): the same whenever the task is made."""
    identity = {
        **msgspec.to_builtins(task),
        "code": {"overlay": task.code.overlay, "folder": task.code.folder},
    }
    for changing in ("stamp", "beside"):
        identity.pop(changing)
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).digest()
    number = int.from_bytes(digest[: _ID_BITS // 8], "big")
    number = number & ~(0xF << 76) | (0x8 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=number))


def file_name(task: Task) -> str:
    """Return the name of the one ledger file that a task ends in."""
    return f"{run_stem(task.stamp, source_of(task), run_of(task))}.parquet"


def source_of(task: Task) -> str:
    """Return the source of a task's rows; a kind that has none of its own is its source."""
    return SOURCES.get(task.kind, task.kind)


def pack(task: Task, ledger: Path) -> bytes:
    """Return a file with all rows of a scratch ledger, as rows of the task's run."""
    run_id = run_of(task)
    rows = [dataclasses.replace(row, run_id=run_id) for row in Ledger(ledger).rows()]
    if not rows:
        raise NotMeasuredError(f"a task of the kind {task.kind} ended without a row")
    with temporary_folder() as folder:
        file = folder / file_name(task)
        write_table(to_table(rows), file)
        return file.read_bytes()


def unpack(task: Task, content: bytes) -> list[Row]:
    """Return the rows that a task's file holds."""
    try:
        with temporary_folder() as folder:
            (folder / file_name(task)).write_bytes(content)
            rows = Ledger(folder).rows()
    except LedgerError as error:
        raise NotMeasuredError(f"a worker sent a damaged file: {error}") from error
    except OSError as error:
        raise RecordingError(
            f"cannot write what a worker sent to {tempfile.gettempdir()} ({error.strerror or error}); make"
            " room, or set TMPDIR to another place, and the same command goes on"
        ) from error
    if {row.run_id for row in rows} != {run_of(task)}:
        raise NotMeasuredError(f"a worker sent a file of another run than {run_of(task)}")
    return rows


def file_once(ledger: Path, task: Task, content: bytes) -> bool:
    """Put a task's file into a ledger; False where its run is there already, which stays as it is."""
    target = ledger / file_name(task)
    try:
        ledger.mkdir(parents=True, exist_ok=True)
        with only_one(ledger):
            if run_end(target.name) in recorded_ends(ledger):
                return False
            copy_bytes(content, target)
    except OSError as error:
        raise RecordingError(
            f"cannot write the ledger file {target} ({error.strerror or error}); make room, and the same"
            " command goes on"
        ) from error
    return put_once(target)
