"""What runs inside a worker, and how code reaches it: as a git bundle, or from an address to clone.

The functions that Dask calls take and return texts and bytes. A task runs in a process of its own under a
guard, which ends it with all its processes when the worker dies.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit import model as records
from perfkit.commands.tasks import Code, Doing, Kind, MachineClass, decode, file_name, own_class, perform_here
from perfkit.errors import NotMeasuredError, PerfkitError, RepositoryError, UsageError
from perfkit.identity import fingerprint
from perfkit.ledger.files import only_one
from perfkit.repo.git import outside_repository, run_git, run_git_checkout, try_git
from perfkit.runner.commands import SAFE_PATH, run_command
from perfkit.runner.lock import measuring
from perfkit.runner.machine.conditions import read_conditions
from perfkit.temporary import temporary_folder

DONE, LACKS_CODE, FAILED = "done", "lacks code", "failed"
_DIGITS = 8
_REFS = "refs/perfkit"
# Clones that nobody has used for so long make room.
_MOST_KEPT = 8


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


def describe(*, thoroughly: bool) -> str:
    """Return the facts of this worker as JSON; ``thoroughly`` also looks for some seconds how quiet it is."""
    place = clones_folder()
    place.mkdir(parents=True, exist_ok=True)
    conditions = read_conditions() if thoroughly else ()
    facts = WorkerFacts(
        version=own_version(),
        machine=own_class(),
        node=platform.node(),
        git=try_git(Path("/"), "--version") or "absent",
        free_bytes=shutil.disk_usage(place).free,
        conditions=tuple(f"{one.name}: {one.found}" for one in conditions if one.state in ("notable", "bad")),
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
                *(sys.executable, *SAFE_PATH, "-m", "perfkit", "work"),
                *(str(folder / "task.json"), "--into", str(folder)),
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


def run_work(file: Path, *, folder: Path, into: Path, log: Callable[[str], None]) -> Path:
    """Do the task that a file holds, with the code in ``folder``, and return its ledger file in ``into``."""
    try:
        task = decode(file.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the task {file}: {error.strerror or error}") from error
    here = own_class()
    if task.machine != here:
        raise NotMeasuredError(f"the task is for the machines {task.machine.text}, and this is {here.text}")
    target = into / file_name(task)
    target.write_bytes(perform_here(task, folder / task.code.folder, log, others=KINDS))
    return target


def _pair(doing: Doing) -> None:
    # What pairs import takes as long as all else.
    from perfkit.features.cluster.engines import measure_pair

    with measuring(doing.log, wait_s=None):
        measure_pair(doing)


KINDS: dict[str, Kind] = {"pair": _pair}


def bundle_name(commits: Collection[str], address: str) -> str:
    """Return the name of a bundle: it follows from what is in it, and from what it is laid upon."""
    return fingerprint({"commits": "\n".join(sorted(commits)), "address": address})


def make_bundle(top: Path, commits: Sequence[str]) -> bytes:
    """Return a bundle of commits and their ancestors, made outside the repository; empty without commits."""
    if not commits:
        return b""
    objects = run_git(top, "rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "refs.git"
        run_git(top, "init", "--quiet", "--bare", str(bare))
        # Its own refs name objects that stay where they are.
        (bare / "objects/info/alternates").write_text(f"{objects}\n")
        (bare / "packed-refs").write_text(
            "".join(f"{sha} {_REFS}/{number}\n" for number, sha in enumerate(sorted(set(commits))))
        )
        file = Path(folder) / "code.bundle"
        run_git(bare, "bundle", "create", "--quiet", str(file), "--all")
        return file.read_bytes()


def clones_folder() -> Path:
    """Return the folder of this machine's clones for tasks."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perfkit" / "clones"


def clone_of(code: Code) -> Path | None:
    """Return the clone that holds a task's code, None where this machine has none yet."""
    clone = clones_folder() / code.bundle
    if not (clone / ".git").is_dir():
        return None
    os.utime(clone)
    return clone


def make_clone(code: Code, bundle: bytes) -> Path:
    """Make the clone of a task's code, from its address where it has one and from a bundle."""
    place = clones_folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with only_one(place):
            known = clone_of(code)
            if known is None:
                known = _cloned(code, bundle, place)
                _make_room(place)
            return known
    except OSError as error:
        raise NotMeasuredError(f"cannot keep a clone in {place}: {error.strerror or error}") from error


def _cloned(code: Code, bundle: bytes, place: Path) -> Path:
    folder = Path(tempfile.mkdtemp(dir=place, prefix=".new-"))
    try:
        run_git(folder, "init", "--quiet")
        if code.address:
            run_git(folder, "fetch", "--quiet", "--tags", code.address, "+refs/heads/*:refs/remotes/origin/*")
        if bundle:
            file = folder / ".git" / "code.bundle"
            file.write_bytes(bundle)
            run_git(folder, "fetch", "--quiet", str(file), f"+{_REFS}/*:{_REFS}/*")
            file.unlink()
        if try_git(folder, "cat-file", "-e", f"{code.head}^{{commit}}") is None:
            raise RepositoryError(f"{code.address} has no commit {code.head[:10]}; push it there first")
        run_git_checkout(folder, "checkout", "--quiet", "--detach", code.head)
        clone = place / code.bundle
        folder.rename(clone)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return clone


def _make_room(place: Path) -> None:
    """Remove the clones that were used least lately; a task that uses one has just touched it."""
    clones = [entry for entry in place.iterdir() if not entry.name.startswith(".")]
    for old in sorted(clones, key=lambda entry: entry.stat().st_mtime, reverse=True)[_MOST_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
