"""What killed perfkits left behind: temporary folders, worktrees in them, and processes that use them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfkit.errors import RepositoryError
from perfkit.repo.commands import run_git, try_git
from perfkit.temporary import PREFIX, Leftover, leftovers, remove_folder
from perfkit.units import counted

_PROC = Path("/proc")
_LINKS = ("cwd", "fd/1", "fd/2")
_TEXTS = ("cmdline", "environ")
_FAREWELL_S = 1.0
_KILL_S = 5.0
_POLL_S = 0.01
_TERMINAL_FIELD, _PARENT_FIELD, _STATE_FIELD = 4, 1, 0


def sweep(say: Callable[[str], None], *, place: Path | None = None, prefix: str = PREFIX) -> None:
    """Remove what perfkits that were killed left among temporary files, and say in one line each what it was.

    Whatever belongs to a running perfkit, or was not made by perfkit, is left alone. A line also tells what
    cannot be removed.
    """
    for leftover in leftovers(place, prefix=prefix):
        if leftover.owner is not None:
            say(_swept(leftover))
        elif leftover.folder.exists():
            say(f"cannot tell whose {leftover.folder} is: its owner's file is damaged; remove both by hand")


def end_residents(folder: Path) -> int:
    """End the processes that live in a folder of perfkit's, stopped ones too; return how many there were."""
    return _end(list(_residents(folder)))


def forget_lost(repository: Path, *, inside: Path | None = None) -> int:
    """Strike worktrees off git's list that lay in a temporary folder which is gone, and return how many.

    ``inside`` names that folder; otherwise it is any of perfkit's. ``git worktree prune`` would strike off
    the user's own on a disk that is not mounted now.

    Raises:
        RepositoryError: the repository cannot be read.
    """
    struck = 0
    for line in run_git(repository, "worktree", "list", "--porcelain").splitlines():
        path = Path(line.removeprefix("worktree "))
        mine = path.parent.name.startswith(PREFIX) if inside is None else path.parent == inside
        if line.startswith("worktree ") and mine and not path.parent.exists():
            struck += try_git(repository, "worktree", "remove", "--force", "--force", str(path)) is not None
    return struck


def _swept(leftover: Leftover) -> str:
    folder, owner = leftover.folder, leftover.owner
    assert owner is not None  # noqa: S101 (the caller has seen it)
    of = owner.invocation
    whose = f"{of.short} (process {of.pid}, begun {of.since_text} UTC), which was killed"
    ended = end_residents(folder)
    try:
        remove_folder(folder)
    except OSError as error:
        return (
            f"cannot remove {folder}, left by {whose} ({error.strerror or error}: {error.filename});"
            f" remove it by hand, and {folder}.owner after it"
        )
    parts = [f"removed {folder}"]
    for repository in owner.repositories:
        with contextlib.suppress(RepositoryError):
            if struck := forget_lost(Path(repository), inside=folder):
                parts.append(f"{counted(struck, 'worktree')} of {repository}")
    if ended:
        parts.append(f"ended {counted(ended, 'process')}" if ended == 1 else f"ended {ended} processes")
    return f"swept up after {whose}: {', '.join(parts)}"


@dataclass(frozen=True, kw_only=True)
class _Status:
    """What the kernel says of a process: its parent, whether it is over, and whether it has a terminal."""

    parent: int
    over: bool
    in_terminal: bool


def _residents(folder: Path) -> Iterator[int]:
    """Yield the processes that work in a folder, write to it, or were given its name.

    Nothing that perfkit starts has a terminal: a process with one belongs to a person who looks around there.
    """
    spared = set(_ancestors())
    for entry in _PROC.glob("[0-9]*"):
        pid = int(entry.name)
        if pid in spared or not _lives_in(entry, str(folder)):
            continue
        status = _status(pid)
        if status is not None and not status.over and not status.in_terminal:
            yield pid


def _lives_in(entry: Path, folder: str) -> bool:
    for link in _LINKS:
        with contextlib.suppress(OSError):
            target = str((entry / link).readlink())
            if target == folder or target.startswith(f"{folder}/"):
                return True
    for text in _TEXTS:
        with contextlib.suppress(OSError):
            said = os.fsdecode((entry / text).read_bytes())
            if f"{folder}/" in said or any(word.endswith(folder) for word in said.split("\0")):
                return True
    return False


def _ancestors() -> Iterator[int]:
    pid = os.getpid()
    while pid:
        yield pid
        status = _status(pid)
        pid = status.parent if status is not None else 0


def _status(pid: int) -> _Status | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return _Status(
        parent=int(fields[_PARENT_FIELD]),
        over=fields[_STATE_FIELD] in "ZX",
        in_terminal=fields[_TERMINAL_FIELD] != "0",
    )


def _end(pids: list[int]) -> int:
    """End processes, stopped ones too, and return how many there were.

    They get SIGTERM first, so that git can tidy up after itself.
    """
    _signal(pids, signal.SIGTERM)
    _signal(pids, signal.SIGCONT)
    left = _wait(pids, _FAREWELL_S)
    _signal(left, signal.SIGKILL)
    _wait(left, _KILL_S)
    return len(pids)


def _wait(pids: list[int], limit_s: float) -> list[int]:
    """Wait until all have ended or the time is over, and return those that still live."""
    deadline = time.monotonic() + limit_s
    while (left := [pid for pid in pids if _lives(pid)]) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return left


def _lives(pid: int) -> bool:
    status = _status(pid)
    return status is not None and not status.over


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
