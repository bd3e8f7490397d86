"""The wall clock, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the present time in UTC."""
    return datetime.now(tz=UTC)
