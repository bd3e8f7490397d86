"""Temporary folders that say whose they are, so that nothing of a killed perfkit stays for ever.

Beside each folder lies a file that its owner holds a lock on for as long as it lives: ``NAME`` and
``NAME.owner``. The file is there before the folder and goes after it, so a folder is never without one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from perfkit.invocation import Invocation, signals_put_off

PREFIX = "perfkit-"
_SUFFIX = ".owner"
_NAME_BYTES = 4
_MOST_BYTES = 1 << 20
_NO_LOCKS = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EBADF})


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who made a temporary folder, and the git repositories that have worktrees in it."""

    invocation: Invocation
    repositories: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """A temporary folder whose owner is dead; ``owner`` is None where it died before it had made one."""

    folder: Path
    owner: Owner | None


@contextlib.contextmanager
def temporary_folder(
    *, repositories: Sequence[Path] = (), place: Path | None = None, prefix: str = PREFIX
) -> Iterator[Path]:
    """Yield the real path of a fresh folder, which goes away with the block, or with the next sweep.

    It lies in ``place``, by default among temporary files. What cannot be removed is left to that sweep; who
    interrupts the removal is heard after it.
    """
    owner = Owner(invocation=Invocation.this(), repositories=tuple(map(str, repositories)))
    descriptor, file = _make_owner_file((place or Path(tempfile.gettempdir())).resolve(), prefix, owner)
    folder = file.with_suffix("")
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        with signals_put_off():
            with contextlib.suppress(OSError):
                remove_folder(folder)
                file.unlink()
            os.close(descriptor)


def hold_lock(descriptor: int) -> None:
    """Lock an open file until it is closed, waiting for whoever holds it; some file systems have no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def leftovers(place: Path | None = None, *, prefix: str = PREFIX) -> Iterator[Leftover]:
    """Yield what owners left behind that have died; each is held until the next one is asked for.

    So no two sweep the same one. Where its folder is gone by then, the owner's file is removed as well.
    """
    for file in sorted((place or Path(tempfile.gettempdir())).glob(f"{prefix}*{_SUFFIX}")):
        with contextlib.suppress(OSError):
            descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                yield Leftover(folder=file.with_suffix(""), owner=_read_owner(descriptor))
                if not file.with_suffix("").exists():
                    file.unlink()
            finally:
                os.close(descriptor)


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, what has forbidden it included.

    Raises:
        OSError: something in it cannot be removed.
    """
    for place, folders, _ in os.walk(folder):
        for one in (Path(place), *(Path(place, name) for name in folders)):
            if not one.is_symlink():
                with contextlib.suppress(OSError):
                    one.chmod(0o700)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _make_owner_file(place: Path, prefix: str, owner: Owner) -> tuple[int, Path]:
    """Make an owner's file that is locked and complete."""
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


def _read_owner(descriptor: int) -> Owner | None:
    try:
        return msgspec.json.decode(os.pread(descriptor, _MOST_BYTES, 0), type=Owner)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
