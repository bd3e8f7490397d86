"""Short stable identities of runs, sets of facts and source texts, and the time in UTC that runs begin."""

from __future__ import annotations

import hashlib
import json
import os
import textwrap
import time
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime

_FACTS_DIGITS = 12
_SOURCE_DIGITS = 16
_RANDOM_BYTES = 10
_RUN_DIGITS, _SHOWN_DIGITS = 12, 8


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(tz=UTC)


def new_run_id() -> str:
    """Return a time-ordered UUID (version 7; RFC 9562, section 5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    number = int.from_bytes(milliseconds.to_bytes(6, "big") + os.urandom(_RANDOM_BYTES), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=number))


def short_run_id(run_id: str) -> str:
    """Return the end of a run's id, by which file names call it; its beginning is the time."""
    return run_id[-_RUN_DIGITS:]


def shown_run_id(run_id: str) -> str:
    """Return the end of a run's id, by which people call it."""
    return run_id[-_SHOWN_DIGITS:]


def fingerprint(facts: Mapping[str, str]) -> str:
    """Return 12 hex digits that depend on the facts alone, not on their order."""
    return _digest(json.dumps(dict(facts), sort_keys=True))[:_FACTS_DIGITS]


def source_version(source: str) -> str:
    """Return 16 hex digits of the SHA-256 of a source text, indentation and ends of lines aside."""
    lines = (line.rstrip() for line in textwrap.dedent(source).splitlines())
    return _digest("\n".join(lines))[:_SOURCE_DIGITS]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
