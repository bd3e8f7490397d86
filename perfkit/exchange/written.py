"""What the writers of all formats share."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfkit.records import Row
from perfkit.records.policies import OtherPolicy


@dataclass(frozen=True, kw_only=True)
class Written:
    """The texts of files by relative paths, and how many rows have no place in them, by what they are."""

    files: Mapping[str, str]
    left_out: Counter[str] = field(default_factory=Counter)


def grouped(rows: Iterable[Row], key: Callable[[Row], Hashable]) -> list[Sequence[Row]]:
    """Return the rows that have the same key together, in the order of their first ones."""
    groups: dict[Hashable, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def entries_of(row: Row) -> Mapping[str, str]:
    """Return what another tool said of a row besides its outcome."""
    return row.policy.entries if isinstance(row.policy, OtherPolicy) else {}


def number_of(entries: Mapping[str, str], name: str) -> float | None:
    """Return a number that another tool said of a row, None where it said none."""
    with contextlib.suppress(ValueError, OverflowError, RecursionError):
        found = json.loads(entries.get(name, ""))
        if type(found) in (int, float) and math.isfinite(found):
            return found  # type: ignore[no-any-return]
    return None
