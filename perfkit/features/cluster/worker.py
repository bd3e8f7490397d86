"""Facts about the workers of a cluster."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit import model as records
from perfkit.commands.measuring import measuring
from perfkit.commands.tasks import Doing, Kind, decode, file_name, own_class, perform_here
from perfkit.errors import NotMeasuredError, PerfkitError, UsageError
from perfkit.features.cluster.code import clone_of, clones_folder, make_clone
from perfkit.model.tasks import MachineClass
from perfkit.repo.git import outside_repository, try_git
from perfkit.runner.commands import SAFE_PATH, run_command
from perfkit.runner.machine.conditions import read_conditions
from perfkit.temporary import temporary_folder


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """What a worker is: software, machine, free bytes on the disk of its clones, and remarks on its quiet.

    ``version`` is perfkit's, with a hash of its source; ``conditions`` are what a doctor would remark on.
    """

    version: str
    machine: MachineClass
    node: str
    git: str
    free_bytes: int
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckedWorker:
    """What a check found of one worker; it is fit where ``problems`` is empty."""

    address: str
    facts: WorkerFacts | None = None
    problems: tuple[str, ...] = ()
    task_s: float | None = None

    @property
    def fit(self) -> bool:
        """Whether it may measure."""
        return not self.problems


DONE, LACKS_CODE, FAILED = "done", "lacks code", "failed"
_DIGITS = 8


def describe(*, thoroughly: bool) -> str:
    """Return the facts of this worker as JSON; ``thoroughly`` also looks for some seconds how quiet it is."""
    place = clones_folder()
    place.mkdir(parents=True, exist_ok=True)
    facts = WorkerFacts(
        version=own_version(),
        machine=own_class(),
        node=platform.node(),
        git=try_git(Path("/"), "--version") or "absent",
        free_bytes=shutil.disk_usage(place).free,
        conditions=tuple(_remarks()) if thoroughly else (),
    )
    return msgspec.json.encode(facts).decode()


@functools.cache
def own_version() -> str:
    """Return perfkit's version with a hash of its source: two that differ in it may measure differently."""
    digest = hashlib.sha256()
    root = Path(records.__path__[0]).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return f"{importlib.metadata.version('perfkit')}+{digest.hexdigest()[:_DIGITS]}"


def take_code(order: str, bundle: bytes) -> str:
    """Make the clone of a task's code on this machine; return an empty text, or why that cannot be done."""
    try:
        make_clone(decode(order).code, bundle)
    except PerfkitError as error:
        return str(error)
    return ""


def perform(order: str) -> tuple[str, bytes]:
    """Do a task in a process of its own; return what came of it as JSON, and the bytes of its file."""
    task = decode(order)
    clone: Path | None = Path("/")
    if task.code.bundle:
        clone = clone_of(task.code)
        if clone is None:
            return json.dumps({"state": LACKS_CODE}), b""
    with temporary_folder() as folder:
        (folder / "task.json").write_text(order)
        ending = run_command(
            [
                sys.executable,
                *SAFE_PATH,
                "-m",
                "perfkit",
                "work",
                str(folder / "task.json"),
                "--into",
                str(folder),
            ],
            output=folder / "output.log",
            limit_s=None,
            environment=outside_repository(os.environ),
            folder=clone,
        )
        if ending.status:
            reason = (ending.tail or (ending.words,))[-1].removeprefix("perfkit: ")
            return json.dumps({"state": FAILED, "reason": reason}), b""
        return json.dumps({"state": DONE}), (folder / file_name(task)).read_bytes()


def _remarks() -> list[str]:
    """Return what a doctor would remark on, without what is good or cannot be seen."""
    return [f"{one.name}: {one.found}" for one in read_conditions() if one.state in ("notable", "bad")]


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
    target.write_bytes(perform_here(task, folder / task.code.folder, log, others=KINDS))
    return target


def _pair(doing: Doing) -> None:
    # What pairs import takes as long as all else.
    from perfkit.features.cluster.remote_pairs import measure_pair

    with measuring(doing.log, wait_s=None):
        measure_pair(doing)


KINDS: dict[str, Kind] = {"pair": _pair}
