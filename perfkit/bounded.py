"""Read files that somebody named, up to a limit: a device, a pipe or a huge file would take all memory."""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path

# Far more than any configuration, source file, log or result that people keep.
TEXT_BYTES = 64 << 20
DATA_BYTES = 1 << 30


def is_special(file: Path) -> bool:
    """Return whether a file is a device, a pipe or a socket."""
    try:
        mode = file.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def read_bytes(file: Path, *, most: int = TEXT_BYTES) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes."""
    # A pipe that nobody writes to would keep the opening waiting.
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as stream:  # noqa: PTH123 (of a descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "it is a device or a pipe, expected a regular file", str(file))
        content = b"" if found.st_size > most else stream.read(most + 1)
        if found.st_size > most or len(content) > most:
            raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB", str(file))
        return content


def read_text(
    file: Path, *, errors: str = "strict", newline: str | None = None, most: int = TEXT_BYTES
) -> str:
    """Return the UTF-8 text of a regular file of at most ``most`` bytes, opened with ``newline``."""
    content = io.BytesIO(read_bytes(file, most=most))
    return io.TextIOWrapper(content, encoding="utf-8", errors=errors, newline=newline).read()
