"""Names of runs: UUIDs that sort by time."""

from __future__ import annotations

import os
import time
import uuid

_RANDOM_BYTES = 10


def new_run_id() -> str:
    """Return a time-ordered UUID (version 7; RFC 9562, section 5.7)."""
    milliseconds = time.time_ns() // 1_000_000
    number = int.from_bytes(milliseconds.to_bytes(6, "big") + os.urandom(_RANDOM_BYTES), "big")
    number = number & ~(0xF << 76) | (0x7 << 76)
    number = number & ~(0x3 << 62) | (0x2 << 62)
    return str(uuid.UUID(int=number))
