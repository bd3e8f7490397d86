"""What killed perfkits left behind: temporary folders, worktrees in them, and processes that use them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perfkit.agent.processes import Process, is_still, read_process
from perfkit.errors import RepositoryError
from perfkit.repo.git import run_git, try_git
from perfkit.temporary import PREFIX, STARTED_BY, Owner, leftovers, remove_folder, this_owner
from perfkit.units import counted

_PROC = Path("/proc")
_LINKS = ("cwd", "fd/1", "fd/2")
_TEXTS = ("cmdline", "environ")
_FAREWELL_S = 1.0
_KILL_S = 5.0
_POLL_S = 0.01


def sweep(log: Callable[[str], None], *, place: Path | None = None, prefix: str = PREFIX) -> None:
    """Remove what killed perfkits left among temporary files, and log a line for each."""
    swept: dict[str, _Swept] = {}
    for leftover in leftovers(place, prefix=prefix):
        owner = leftover.owner
        if owner is not None:
            problem = swept.setdefault(_name(owner), _Swept()).add(leftover.folder, owner)
        elif leftover.folder.exists():
            problem = f"the owner's file of {leftover.folder} is damaged; remove both by hand"
        else:
            problem = ""
        if problem:
            log(problem)
    for name, what in swept.items():
        if what.folders:
            log(f"swept up after {name}, which was killed: {what.sentence}")


def end_residents(folder: Path, owner: Owner | None = None) -> int:
    """End the processes that live in a folder and that its owner started; return how many there were."""
    secret = (owner or this_owner()).secret
    return _end(list(_residents(folder, secret))) if secret else 0


def forget_lost(repository: Path, *, inside: Path | None = None) -> int:
    """Strike worktrees off git's list that lay in a temporary folder which is gone, and return how many.

    ``inside`` names that folder; otherwise it is any of perfkit's. ``git worktree prune`` would strike off
    the user's own on a disk that is not mounted now.
    """
    struck = 0
    for line in run_git(repository, "worktree", "list", "--porcelain").splitlines():
        path = Path(line.removeprefix("worktree "))
        mine = path.parent.name.startswith(PREFIX) if inside is None else path.parent == inside
        if line.startswith("worktree ") and mine and not path.parent.exists():
            struck += try_git(repository, "worktree", "remove", "--force", "--force", str(path)) is not None
    return struck


def _name(owner: Owner) -> str:
    of = owner.invocation
    where = "" if of.is_of_this_host else f" on {of.host}"
    return f"{of.short} (process {of.pid}{where})"


@dataclass
class _Swept:
    """What was removed of one killed perfkit's."""

    folders: list[Path] = field(default_factory=list)
    worktrees: Counter[str] = field(default_factory=Counter)
    processes: int = 0

    def add(self, folder: Path, owner: Owner) -> str:
        self.processes += end_residents(folder, owner)
        try:
            remove_folder(folder)
        except OSError as error:
            why = f"{error.strerror or error}: {error.filename}"
            return (
                f"cannot remove {folder}, left by {_name(owner)}, which was killed ({why});"
                f" remove it by hand, and {folder}.owner after it"
            )
        self.folders.append(folder)
        for repository in owner.repositories:
            with contextlib.suppress(RepositoryError):
                self.worktrees[repository] += forget_lost(Path(repository), inside=folder)
        return ""

    @property
    def sentence(self) -> str:
        processes = "1 process" if self.processes == 1 else f"{self.processes} processes"
        parts = [
            f"removed {', '.join(map(str, self.folders))}",
            *(f"{counted(found, 'worktree')} of {place}" for place, found in self.worktrees.items() if found),
            *([f"ended {processes}"] if self.processes else []),
        ]
        return ", ".join(parts)


def _residents(folder: Path, secret: str) -> Iterator[Process]:
    """Yield the processes with a secret that work in a folder, write to it, or were given its name.

    Another process there belongs to a person, as does one with a terminal, which perfkit gives to none.
    """
    spared = set(_ancestors())
    for entry in _PROC.glob("[0-9]*"):
        process = read_process(int(entry.name))
        if process is None or process.is_over or process.in_terminal or process.pid in spared:
            continue
        # Looked at last, so that what was read is of the process whose start is known.
        if _has_secret(entry, secret) and _lives_in(entry, str(folder)) and is_still(process):
            yield process


def _has_secret(entry: Path, secret: str) -> bool:
    with contextlib.suppress(OSError):
        for variable in (entry / "environ").read_bytes().split(b"\0"):
            name, _, value = variable.partition(b"=")
            if name == STARTED_BY.encode():
                return secret.encode() in value.split()
    return False


def _lives_in(entry: Path, folder: str) -> bool:
    for link in _LINKS:
        with contextlib.suppress(OSError):
            target = str((entry / link).readlink())
            if target == folder or target.startswith(f"{folder}/"):
                return True
    for name in _TEXTS:
        with contextlib.suppress(OSError):
            text = os.fsdecode((entry / name).read_bytes())
            if f"{folder}/" in text or any(word.endswith(folder) for word in text.split("\0")):
                return True
    return False


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid:
        yield pid
        process = read_process(pid)
        pid = process.parent if process is not None else 0


def _end(processes: list[Process]) -> int:
    """End processes, stopped ones too, and return how many there were.

    They get SIGTERM first, so that git can tidy up after itself.
    """
    _signal(processes, signal.SIGTERM)
    _signal(processes, signal.SIGCONT)
    left = _wait(processes, _FAREWELL_S)
    _signal(left, signal.SIGKILL)
    _wait(left, _KILL_S)
    return len(processes)


def _wait(processes: list[Process], limit_s: float) -> list[Process]:
    deadline = time.monotonic() + limit_s
    while (left := [one for one in processes if is_still(one)]) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left


def _signal(processes: list[Process], number: signal.Signals) -> None:
    for process in processes:
        if is_still(process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, number)
