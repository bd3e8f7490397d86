"""Only one perfkit measures on a machine at a time: two at once would disturb each other's times."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import msgspec

from perfkit.agent.processes import read_process
from perfkit.errors import NotMeasuredError, UsageError
from perfkit.invocation import Invocation
from perfkit.repo.leftovers import sweep
from perfkit.runner.machine.facts import check_proc
from perfkit.units import human_seconds

FOLDER_VARIABLE = "PERFKIT_LOCK_FOLDER"
_NAME = "perfkit-measuring.lock"
_EVERYONE = 0o666
_MOST_BYTES = 1 << 16
_POLL_S = 0.25
_LOG_EVERY_S = 60.0
# The lock lies in the first of these that every user may write to, so that all users find the same one.
_PLACES = (Path("/run/lock"), Path("/var/lock"), Path("/tmp"))  # noqa: S108 (a lock that all users share)


def lock_folder() -> Path:
    """Return the folder of the machine's lock: the same for all its users and any TMPDIR."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        if not Path(named).is_dir():
            raise UsageError(
                f"{FOLDER_VARIABLE} is {named}, which is no folder; make it or unset the variable"
            )
        return Path(named)
    return next((place for place in _PLACES if _is_for_everyone(place)), Path(tempfile.gettempdir()))


@contextmanager
def machine_lock(
    *,
    log: Callable[[str], None],
    wait_s: float | None = None,
    folder: Path | None = None,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[float]:
    """Hold the machine for measuring, and yield the seconds that another perfkit kept this one waiting.

    ``log`` receives at once, and every minute, who holds it. After ``wait_s`` seconds this perfkit gives up,
    with None never. The kernel releases the lock of a process that ends, however it ends.
    """
    if wait_s is not None and not wait_s >= 0:
        raise UsageError(f"--wait must be zero seconds or more, found {wait_s:g}")
    path = (folder or lock_folder()) / _NAME
    begun = clock()
    logged_s: float | None = None
    while (descriptor := _taken(path)) is None:
        waited_s = clock() - begun
        holder = _holder_text(path)
        if wait_s is not None and waited_s >= wait_s:
            raise NotMeasuredError(
                f"{holder} held this machine for longer than --wait {wait_s:g}; nothing was measured:"
                " run this again when it is done"
            )
        if logged_s is None or waited_s - logged_s >= _LOG_EVERY_S:
            again = "" if logged_s is None else f" ({human_seconds(waited_s)} so far)"
            log(f"waiting{again} for {holder}: it measures on this machine")
            logged_s = waited_s
        pause(_POLL_S if wait_s is None else min(_POLL_S, max(wait_s - waited_s, 0.0)))
    try:
        _write(descriptor, msgspec.json.encode(Invocation.this()))
        yield 0.0 if logged_s is None else clock() - begun
    finally:
        _write(descriptor, b"")
        os.close(descriptor)


def who_measures(*, folder: Path | None = None) -> str | None:
    """Return which perfkit measures on this machine right now, None where none does."""
    path = (folder or lock_folder()) / _NAME
    descriptor = _taken(path)
    if descriptor is None:
        return _holder_text(path)
    os.close(descriptor)
    return None


def _is_for_everyone(place: Path) -> bool:
    try:
        mode = place.stat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_IWOTH) and not _is_read_only(place)


def _is_read_only(place: Path) -> bool:
    try:
        return bool(os.statvfs(place).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def _taken(path: Path) -> int | None:
    while True:
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        # A cleaner of old temporary files may have removed it by now: locking that would keep nobody out.
        if os.fstat(descriptor).st_nlink:
            return descriptor
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open the lock's file, which belongs to the first user who measured and serves everyone."""
    try:
        descriptor = _open_or_create(path)
    except OSError as error:
        raise UsageError(
            f"cannot open the machine's lock {path} ({error.strerror or error}); "
            f"remove it, or name another folder in {FOLDER_VARIABLE}"
        ) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise UsageError(f"{path} is no lock of perfkit's; remove it")
    return descriptor


def _open_or_create(path: Path) -> int:
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        # The kernel refuses to open another user's file there with O_CREAT, so that comes second.
        with contextlib.suppress(FileNotFoundError):
            try:
                return os.open(path, os.O_RDWR | flags)
            except PermissionError:
                return os.open(path, os.O_RDONLY | flags)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, _EVERYONE)
            os.fchmod(descriptor, _EVERYONE)
            return descriptor


def _write(descriptor: int, content: bytes) -> None:
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, content, 0)


def _holder_text(path: Path) -> str:
    """Return who holds the lock: "perfkit gate (process 1234, since 16:03 UTC, stopped)"."""
    try:
        descriptor = _open(path)
        try:
            holder = msgspec.json.decode(os.pread(descriptor, _MOST_BYTES, 0), type=Invocation)
        finally:
            os.close(descriptor)
    except (OSError, UsageError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "another perfkit"
    facts = [f"process {holder.pid}", f"since {holder.since_text} UTC"]
    if holder.user != Invocation.this().user:
        facts.append(f"of {holder.user}")
    process = read_process(holder.pid) if holder.is_of_this_host else None
    if not holder.is_of_this_host:
        facts.append(f"on {holder.host}")
    elif process is not None and process.is_stopped:
        facts.append(f"stopped: `kill -CONT {holder.pid}` lets it go on")
    return f"{holder.short} ({', '.join(facts)})"


_holds_machine = ContextVar("holds_machine", default=False)


@contextmanager
def measuring(log: Callable[[str], None], *, wait_s: float | None) -> Iterator[float]:
    """Hold the machine for this and inner commands, and yield the seconds of waiting for another perfkit."""
    if _holds_machine.get():
        yield 0.0
        return
    check_proc()
    with machine_lock(log=log, wait_s=wait_s) as waited_s:
        sweep(log)
        held = _holds_machine.set(True)
        try:
            yield waited_s
        finally:
            _holds_machine.reset(held)
