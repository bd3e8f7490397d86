"""The lines behind counts, read while the code that was counted is at hand."""

from __future__ import annotations

import linecache
from dataclasses import replace
from pathlib import Path

from .model import Cause, Counts


def with_texts(counts: Counts, root: Path) -> Counts:
    """Return counts whose causes have the text of their lines."""
    return replace(
        counts,
        counts=tuple(
            replace(count, causes=tuple(_with_text(cause, root) for cause in count.causes))
            for count in counts.counts
        ),
    )


def _with_text(cause: Cause, root: Path) -> Cause:
    file, _, line = cause.place.rpartition(":")
    if not file or not line.isdigit():
        return cause
    return replace(cause, text=linecache.getline(str(root / file), int(line)).strip())
