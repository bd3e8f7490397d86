"""Tasks that engines do, as plain values that JSON can carry, the run of each, and the engines."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.metadata
import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from perfkit.config import Project
from perfkit.errors import LedgerError, NotMeasuredError, RecordingError, UsageError
from perfkit.extensions import features
from perfkit.gating.pairs import PairMeter, Wanted
from perfkit.identity import utc_now
from perfkit.ledger.files import copy_bytes, only_one, recorded_ends, run_end, run_stem, write_table
from perfkit.ledger.recording import RunFacts
from perfkit.ledger.remote import put_once
from perfkit.ledger.schema import to_table
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Commit, Outcome, Row
from perfkit.repo.commits import open_repository
from perfkit.runner.lock import measuring
from perfkit.runner.machine.facts import read_environment, read_machine
from perfkit.temporary import temporary_folder


@dataclass(frozen=True, kw_only=True)
class MachineClass:
    """Machines whose times may be compared: one machine's identity, with the same Python and torch."""

    machine_id: str
    python: str
    torch: str

    @property
    def text(self) -> str:
        """What people call it."""
        return f"{self.machine_id} ({self.python}, torch {self.torch})"


@dataclass(frozen=True, kw_only=True)
class Code:
    """Where a task finds its code: in the project's ``folder`` of a repository, configured as at ``head``.

    ``overlay`` is a commit of benchmark files laid over each checkout. A worker needs the git ``bundle`` on
    top of its clone of ``address``; both are empty where the repository is at hand.
    """

    head: str
    folder: str = ""
    overlay: str | None = None
    bundle: str = ""
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of measuring on a class of machines; only its ``kind`` understands ``settings``.

    ``beside`` are known commits near by, each with its benchmarks by name: the version, and whether enough
    commits that run the same code are measured.
    """

    kind: str
    commits: tuple[str, ...]
    machine: MachineClass
    code: Code
    stamp: datetime
    benchmarks: str = ""
    select: str | None = None
    launches: int = 1
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    beside: Mapping[str, Mapping[str, tuple[str, bool]]] = field(default_factory=dict)


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


LOCAL = "local"


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """Where to measure: a URL, ids of its machines (empty for all), and what workers clone."""

    url: str = LOCAL
    machines: tuple[str, ...] = ()
    address: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether everything is measured in this process."""
        return self.url == LOCAL

    def check(self) -> None:
        """Refuse a choice that means nothing."""
        if not self.is_local:
            _remote(self.url).check_url(self.url)
        elif self.machines or self.address:
            raise UsageError(
                f"--machine and --clone need an engine of other machines: --engine {_url_forms()}"
            )


HERE = EngineChoice()


@dataclass(frozen=True, kw_only=True)
class PairPlan:
    """What a bisection measures along its range: a benchmark's metric; ``all_parents`` made that range."""

    wanted: Wanted
    metric: str
    all_parents: bool = False


def needed_code(
    choice: EngineChoice, *, project: Project, head: str, overlay: str | None, commits: Sequence[str]
) -> Code:
    """Return where tasks of these commits find their code."""
    choice.check()
    top = open_repository(project.root)
    folder = "" if project.root == top else project.root.relative_to(top).as_posix()
    code = Code(head=head, folder=folder, overlay=overlay)
    if choice.is_local:
        return code
    if project.config.copy or project.config.link:
        raise UsageError(
            "[tool.perfkit] copy and link name generated files that a clone on a worker lacks; make them by a"
            " `prepare` command, or measure with --engine local"
        )
    sent: Code = _remote(choice.url).sent_code(choice, code, commits)
    return sent


@contextmanager
def open_engine(
    choice: EngineChoice,
    *,
    project: Project,
    code: Code,
    commits: Sequence[str],
    wait_s: float | None,
    log: Callable[[str], None],
) -> Iterator[Engine]:
    """Open the engine that was chosen; the local one holds this machine meanwhile."""
    if choice.is_local:
        with measuring(log, wait_s=wait_s):
            perform = partial(perform_here, project=project.root, log=log)
            yield LocalEngine(machine=own_class(), perform_task=perform)
        return
    top = open_repository(project.root)
    with _remote(choice.url).open_remote(choice, top, code, commits, log) as engine:
        yield engine


@contextmanager
def open_pairs(
    choice: EngineChoice, plan: PairPlan, ledger: Ledger, *, log: Callable[[str], None]
) -> Iterator[PairMeter]:
    """Open what measures pairs: this machine, or those of one class of an engine."""
    if choice.is_local:
        with PairMeter(plan.wanted, ledger, log=log) as meter:
            yield meter
        return
    with _remote(choice.url).open_remote_pairs(choice, plan, ledger, log=log) as remote:
        yield remote


def class_names(machines: Sequence[MachineClass]) -> str:
    """Return classes of machines as the end of a message."""
    return ", ".join(one.text for one in machines)


def _remote(url: str) -> Any:  # noqa: ANN401 (a module of a feature)
    """Return the module that measures on the machines of a URL."""
    scheme = url.partition("://")[0]
    for feature in features():
        if scheme in feature.engines and "://" in url:
            return importlib.import_module(feature.engines[scheme])
    raise UsageError(f"an engine must read local or {_url_forms()}, found {url}")


def _url_forms() -> str:
    return " or ".join(f"{scheme}://HOST:PORT" for feature in features() for scheme in feature.engines)
