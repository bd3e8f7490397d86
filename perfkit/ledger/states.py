"""What people say of change points and silent benchmarks: one small immutable file each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from perfkit.ledger.statements import Statements
from perfkit.model.history import State


@dataclass(frozen=True, kw_only=True)
class KeptState:
    """What a person said of a change point, named by its id, or of a benchmark that went silent, and why."""

    subject: str
    state: State
    reason: str
    author: str | None
    recorded_at: datetime


STATES = Statements(kind=KeptState, noun="state of a change point", folder="states")


def keep_state(ledger: Path, state: KeptState) -> Path:
    """Keep what is said and return its file; a later statement on the same subject takes precedence.

    Raises:
        LedgerError: the folder cannot be written.
    """
    return STATES.keep(ledger, state)


def read_states(ledger: Path) -> Mapping[str, KeptState]:
    """Return the newest statement on each subject.

    Raises:
        LedgerError: a statement's file is damaged.
    """
    return {kept.subject: kept for kept in sorted(STATES.read(ledger), key=lambda kept: kept.recorded_at)}
