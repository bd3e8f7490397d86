"""Findings of gates that people let pass: one small immutable file each, beside the measurements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from perfkit.ledger.statements import Statements
from perfkit.model.comparisons import Acceptance, Verdict


@dataclass(frozen=True, kw_only=True)
class KeptAcceptance(Acceptance):
    """An acceptance of what one gate found: ``commit`` was its head, with the uncommitted ``diff_hash``.

    It covers the ``counts`` that it names and no others. Of uncommitted changes ``code`` is the hash of all
    code with them, where they were still there as they had been measured: a commit of that code is covered.
    Of commits ``change`` is the content of base..head as a whole and ``parts`` that of each commit, so that
    the same change is covered after a rebase or a squash.
    """

    verdict: Verdict
    counts: Mapping[str, float] = field(default_factory=dict)
    run_id: str
    recorded_at: datetime
    diff_hash: str | None = None
    code: str | None = None
    change: str | None = None
    parts: tuple[str, ...] = ()


ACCEPTANCES = Statements(kind=KeptAcceptance, noun="acceptance", folder="acceptances")


def keep_acceptance(ledger: Path, acceptance: KeptAcceptance) -> Path:
    """Keep an acceptance and return its file.

    Raises:
        LedgerError: the folder cannot be written.
    """
    return ACCEPTANCES.keep(ledger, acceptance)


def _never_here(_: KeptAcceptance) -> bool:
    """Know of no other commit with the content that was accepted."""
    return False


def acceptances_for(
    ledger: Path,
    shas_in_range: Collection[str],
    diff_hash: str | None,
    is_here: Callable[[KeptAcceptance], bool] = _never_here,
) -> tuple[KeptAcceptance, ...]:
    """Return the acceptances that apply to a gate, newest first.

    ``shas_in_range`` are the commits of base..head, and head. What was accepted of uncommitted changes
    applies to the very same ones, told by the ``diff_hash`` of the gate's head. Any acceptance applies where
    the content that was accepted ``is_here``, in the range.

    Raises:
        LedgerError: an acceptance's file is damaged.
    """
    applying = (
        kept
        for kept in ACCEPTANCES.read(ledger)
        if (kept.commit in shas_in_range and kept.diff_hash in (None, diff_hash)) or is_here(kept)
    )
    return tuple(sorted(applying, key=lambda kept: kept.recorded_at, reverse=True))
