"""What the writers of all formats share."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from perfkit.model import Row
from perfkit.model.policies import OtherPolicy

# asv itself writes a hash in place of the name of an environment that is longer.
LONGEST_NAME = 128
_DIGITS = 8


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


def plain_name(text: str) -> str:
    """Return a text that can be one part of a path: a ledger of anybody's may name whatever it likes."""
    name = re.sub(r"[^\w.+@=-]", "_", text).lstrip(".") or "_"
    if len(name.encode()) <= LONGEST_NAME:
        return name
    digits = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]
    return f"{name.encode()[: LONGEST_NAME - 1 - _DIGITS].decode(errors='ignore')}-{digits}"
