"""Temporary folders with an owner, so that nothing of a killed perfkit stays for ever."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.errors import UsageError
from perfkit.invocation import Invocation, signals_put_off

PREFIX = "perfkit-"
# Each command that a perfkit starts carries that perfkit's secret, after those of the perfkits around it.
STARTED_BY = "PERFKIT_STARTED_BY"
_SUFFIX = ".owner"
_NAME_BYTES = 4
_SHORT, _LINK, _LONGEST_NAME = Path("/tmp"), "t", 75  # noqa: S108 (only a folder with a random name is made in it)
_MOST_BYTES = 1 << 20
_NO_LOCKS = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EBADF})
_LITTLE = 1 << 20
_SECRET = secrets.token_hex(16)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The perfkit that made a temporary folder, and the git repositories that have worktrees in it."""

    invocation: Invocation
    repositories: tuple[str, ...] = ()
    secret: str = ""


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A temporary folder whose owner is dead; ``owner`` is None where it died before it had made one."""

    folder: Path
    owner: Owner | None


def with_mark(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for a command, by which a sweep recognises what this perfkit started."""
    before = environment.get(STARTED_BY, "")
    if _SECRET in before.split():
        return dict(environment)
    return {**environment, STARTED_BY: f"{before} {_SECRET}".strip()}


def this_owner(repositories: Sequence[Path] = ()) -> Owner:
    """Return this process as the owner of a folder."""
    return Owner(invocation=Invocation.this(), repositories=tuple(map(str, repositories)), secret=_SECRET)


@contextlib.contextmanager
def temporary_folder(
    *, repositories: Sequence[Path] = (), place: Path | None = None, prefix: str = PREFIX
) -> Iterator[Path]:
    """Yield the real path of a fresh folder, which goes away with the block, or with the next sweep."""
    place = (place or Path(tempfile.gettempdir())).resolve()
    with _full_disk_reported(place):
        descriptor, file = _make_owner_file(place, prefix, this_owner(repositories))
    folder = file.with_suffix("")
    try:
        with _full_disk_reported(place):
            folder.mkdir(mode=0o700)
            yield folder
    finally:
        with signals_put_off():
            with contextlib.suppress(OSError):
                remove_folder(folder)
                file.unlink()
            os.close(descriptor)


@contextlib.contextmanager
def _full_disk_reported(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # What failed may lie elsewhere.
        if error.errno == errno.ENOSPC and shutil.disk_usage(place).free < _LITTLE:
            raise UsageError(f"{place} is full: make room, or name another folder by TMPDIR") from error
        raise


@contextlib.contextmanager
def short_name(folder: Path, *, below: int = 0) -> Iterator[Path]:
    """Yield a name of a folder below which loader workers can have their sockets: its own, or that of a link.

    The path of a socket has 107 bytes at most, and theirs 32 more than their temporary folder. A longer one
    raises in a thread of a worker, and the loader waits for ever. ``below`` is how much longer the paths of
    temporary folders are than this one.
    """
    with contextlib.ExitStack() as stack:
        name = folder
        if len(os.fsencode(folder)) + below > _LONGEST_NAME:
            with contextlib.suppress(OSError):
                name = stack.enter_context(temporary_folder(place=_SHORT)) / _LINK
                name.symlink_to(folder)
        yield name


def too_long_in_words(folder: Path) -> str:
    """Return that loader workers hang with a temporary folder of so long a path, "" where they do not."""
    if len(os.fsencode(folder)) <= _LONGEST_NAME:
        return ""
    return f"loader workers hang in a TMPDIR of more than {_LONGEST_NAME} bytes: set a shorter one ({folder})"


@contextlib.contextmanager
def short_temporary() -> Iterator[None]:
    """Let processes that are started meanwhile find the temporary folder by a short name."""
    folder, before = Path(tempfile.gettempdir()), os.environ.get("TMPDIR")
    with short_name(folder) as name:
        if name == folder:
            yield
            return
        os.environ["TMPDIR"] = str(name)
        try:
            yield
        finally:
            if before is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before


def hold_lock(descriptor: int) -> None:
    """Lock an open file until it is closed, waiting until it is free; some file systems have no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def leftovers(place: Path | None = None, *, prefix: str = PREFIX) -> Iterator[Leftover]:
    """Yield what owners left behind that have died; each is held until the next one is asked for."""
    for file in sorted((place or Path(tempfile.gettempdir())).glob(f"{prefix}*{_SUFFIX}")):
        with contextlib.suppress(OSError):
            descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if not _is_own(os.fstat(descriptor), file.with_suffix("")):
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield Leftover(folder=file.with_suffix(""), owner=_read_owner(descriptor))
                if not file.with_suffix("").exists():
                    file.unlink()
            finally:
                os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, what has forbidden it included."""
    for place, folders, _ in os.walk(folder):
        for one in (Path(place), *(Path(place, name) for name in folders)):
            if not one.is_symlink():
                with contextlib.suppress(OSError):
                    one.chmod(0o700)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _make_owner_file(place: Path, prefix: str, owner: Owner) -> tuple[int, Path]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        file = place / f"{prefix}{secrets.token_hex(_NAME_BYTES)}{_SUFFIX}"
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(file, flags, 0o600)
            try:
                hold_lock(descriptor)
                os.write(descriptor, msgspec.json.encode(owner))
                # A sweep that came by before the lock has taken it for one of a dead owner.
                if os.fstat(descriptor).st_nlink:
                    return descriptor, file
            except BaseException:
                file.unlink(missing_ok=True)
                os.close(descriptor)
                raise
            os.close(descriptor)


def _is_own(file: os.stat_result, folder: Path) -> bool:
    if not stat.S_ISREG(file.st_mode) or file.st_nlink > 1 or file.st_uid != os.geteuid():
        return False
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return True
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _read_owner(descriptor: int) -> Owner | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, _MOST_BYTES, 0), type=Owner)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
