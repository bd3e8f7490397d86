"""What perfkit keeps from one command to the next: among others, which files it wrote as reports."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

# The list begins anew beyond this size; a report that is forgotten counts as a change again.
_LARGEST = 1 << 20


def caches() -> Path:
    """Return the folder of what perfkit keeps from one command to the next, which anybody may remove."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "perfkit"


def digest_of(content: bytes) -> str:
    """Return what a report is known by."""
    return hashlib.sha256(content).hexdigest()


def keep_reports(digests: Iterable[str]) -> None:
    """Remember the contents of reports; where nothing can be kept, they count as changes."""
    # There may be no home folder.
    with contextlib.suppress(OSError, RuntimeError):
        place = caches() / "reports"
        place.parent.mkdir(parents=True, exist_ok=True)
        is_full = place.is_file() and place.stat().st_size > _LARGEST
        with place.open("w" if is_full else "a", encoding="ascii") as stream:
            stream.write("".join(f"{digest}\n" for digest in digests))


def is_report(content: bytes) -> bool:
    """Return whether perfkit wrote exactly this."""
    try:
        return digest_of(content) in (caches() / "reports").read_text(encoding="ascii").split()
    except (OSError, RuntimeError, UnicodeDecodeError):
        return False
