"""``perfkit work``: do one task of an engine, in the clone that holds its code.

``KINDS`` says how each kind of task is done: a function that measures, and records in a scratch ledger. A
distribution adds one by an entry point in the group ``perfkit.tasks``.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from pathlib import Path

from perfkit.commands.measuring import measuring
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.cluster.commits import measure_commit
from perfkit.features.cluster.records import Task
from perfkit.features.cluster.tasks import Doing, Kind, decode, file_name, pack
from perfkit.features.cluster.worker import own_class
from perfkit.ledger.store import Ledger
from perfkit.model import Benchmark, Commit, Outcome, Row
from perfkit.runner.clock import utc_now
from perfkit.runner.machine.environment import read_environment
from perfkit.runner.machine.facts import read_machine
from perfkit.temporary import temporary_folder

_GROUP = "perfkit.tasks"


def run_work(file: Path, *, folder: Path, into: Path, log: Callable[[str], None]) -> Path:
    """Do the task that a file holds, with the code in ``folder``, and return its ledger file in ``into``.

    Raises:
        UsageError: the file cannot be read.
        NotMeasuredError: the task cannot be done here, or ended without a row.
    """
    try:
        task = decode(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the task {file}: {error.strerror or error}") from error
    here = own_class()
    if task.machine != here:
        raise NotMeasuredError(f"the task is for the machines {task.machine.told}, and this is {here.told}")
    target = into / file_name(task)
    target.write_bytes(perform_here(task, folder / task.code.folder, log))
    return target


def perform_here(task: Task, project: Path, log: Callable[[str], None]) -> bytes:
    """Do a task in this process, and return the bytes of the one ledger file that it ends in.

    Raises:
        NotMeasuredError: the kind is not known here, or the task ended without a row.
    """
    with temporary_folder() as ledger:
        _kind(task.kind)(Doing(task=task, project=project, ledger=ledger, log=log))
        return pack(task, ledger)


def _kind(name: str) -> Kind:
    known = KINDS.get(name)
    if known is not None:
        return known
    for entry in importlib.metadata.entry_points(group=_GROUP, name=name):
        found: Kind = entry.load()
        return found
    raise NotMeasuredError(f'there is no kind of task "{name}" here; known kinds: {", ".join(sorted(KINDS))}')


def _commit(doing: Doing) -> None:
    with measuring(doing.log, wait_s=None):
        measure_commit(doing)


def _rehearsal(doing: Doing) -> None:
    # What gates import takes as long as all else.
    from perfkit.commands.calibrate import run_calibration_task

    run_calibration_task(doing)


def _pair(doing: Doing) -> None:
    # What pairs import takes as long as all else.
    from perfkit.features.cluster.remote_pairs import measure_pair

    with measuring(doing.log, wait_s=None):
        measure_pair(doing)


def _check(doing: Doing) -> None:
    """Record a row of nothing: a check sends it there and back, and files it nowhere."""
    row = Row(
        run_id=doing.task.kind,
        recorded_at=utc_now(),
        source=doing.task.kind,
        commit=Commit(sha=doing.task.commits[0]),
        machine=read_machine(),
        environment=read_environment(),
        outcome=Outcome(benchmark=Benchmark(name="check", version=""), values=(0.0,)),
    )
    Ledger(doing.ledger).append([row])


KINDS: dict[str, Kind] = {"check": _check, "commit": _commit, "pair": _pair, "rehearsal": _rehearsal}
