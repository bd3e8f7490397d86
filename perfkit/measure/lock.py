"""One measuring perfkit a machine: two at once would measure each other."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "perfkit-measuring.lock"
_EVERYONE = 0o666


@contextmanager
def machine_lock(*, on_wait: Callable[[], None], folder: Path | None = None) -> Iterator[None]:
    """Hold the machine for measuring; wait for another perfkit to let it go, saying so first.

    The kernel lets go of the lock of a process that ends, however it ends.
    """
    descriptor = _open((folder or Path(tempfile.gettempdir())) / _NAME)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def is_held(*, folder: Path | None = None) -> bool:
    """Tell whether a perfkit measures on this machine right now."""
    descriptor = _open((folder or Path(tempfile.gettempdir())) / _NAME)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    """Open the lock's file, which belongs to whoever measured first and serves everyone."""
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT, _EVERYONE)
        os.fchmod(descriptor, _EVERYONE)
        return descriptor
