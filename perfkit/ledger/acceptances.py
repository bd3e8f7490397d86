"""Findings of gates that people let pass: one small immutable file each, beside the measurements."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from perfkit.ledger.statements import Statements
from perfkit.records.comparisons import Verdict
from perfkit.verdict.acceptance import Acceptance


@dataclass(frozen=True, kw_only=True)
class KeptAcceptance(Acceptance):
    """An acceptance of what one gate found: ``commit`` was its head, with the uncommitted ``diff_hash``.

    It covers the ``counts`` that it names and no others.
    """

    verdict: Verdict
    counts: Mapping[str, float] = field(default_factory=dict)
    run_id: str
    recorded_at: datetime
    diff_hash: str | None = None


ACCEPTANCES = Statements(kind=KeptAcceptance, noun="acceptance", folder="acceptances")


def keep_acceptance(ledger: Path, acceptance: KeptAcceptance) -> Path:
    """Keep an acceptance and return its file.

    Raises:
        LedgerError: the folder cannot be written.
    """
    return ACCEPTANCES.keep(ledger, acceptance)


def acceptances_for(
    ledger: Path, shas_in_range: Collection[str], diff_hash: str | None
) -> tuple[KeptAcceptance, ...]:
    """Return the acceptances that apply to a gate, newest first.

    ``shas_in_range`` are the commits of base..head, and head. What was accepted of uncommitted changes
    applies only to the very same ones, told by the ``diff_hash`` of the gate's head.

    Raises:
        LedgerError: an acceptance's file is damaged.
    """
    applying = (
        kept
        for kept in ACCEPTANCES.read(ledger)
        if kept.commit in shas_in_range and kept.diff_hash in (None, diff_hash)
    )
    return tuple(sorted(applying, key=lambda kept: kept.recorded_at, reverse=True))
