"""Which findings of a gate people accepted: by ``perfkit accept``, or in the messages of head's commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfkit.ledger.acceptances import acceptances_for
from perfkit.records import Commit
from perfkit.records.comparisons import Comparison, ExactComparison
from perfkit.repo.commits import open_repository
from perfkit.repo.sides import SidePair
from perfkit.repo.trailers import accepted_in, commits_in
from perfkit.verdict.acceptance import Acceptance, apply, apply_to_counts, unused_notes


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The findings of a gate, where those that people accepted are marked."""

    comparisons: tuple[Comparison, ...]
    exact: tuple[ExactComparison, ...]
    notes: tuple[str, ...] = ()


def check_acceptances(pair: SidePair, *, ledger: Path) -> None:
    """Check, before anything is measured, that all acceptances can be read.

    Raises:
        RepositoryError: git does not know one of the two commits.
        LedgerError: a kept acceptance is damaged.
    """
    accept((), (), pair, ledger=ledger)


def accept(
    comparisons: Sequence[Comparison], exact: Sequence[ExactComparison], pair: SidePair, *, ledger: Path
) -> Accepted:
    """Mark the findings that people accepted; there are none where a side is a directory, without a commit.

    Raises:
        RepositoryError: git does not know one of the two commits.
        LedgerError: a kept acceptance is damaged.
    """
    base, head = pair.base, pair.head
    if "directory" in (base.kind, head.kind):
        return Accepted(comparisons=tuple(comparisons), exact=tuple(exact))
    acceptances, warnings = find_acceptances(head.source, base=base.commit, head=head.commit, ledger=ledger)
    return Accepted(
        comparisons=apply(comparisons, acceptances),
        exact=apply_to_counts(exact, acceptances),
        notes=(*warnings, *unused_notes(comparisons, acceptances, exact)),
    )


def find_acceptances(
    start: Path, *, base: Commit, head: Commit, ledger: Path
) -> tuple[tuple[Acceptance, ...], tuple[str, ...]]:
    """Return acceptances for base..head, those in the ledger first, and a warning for each bad trailer.

    Raises:
        RepositoryError: ``start`` is in no repository, or git does not know one of the two commits.
        LedgerError: a kept acceptance is damaged.
    """
    repository = open_repository(start)
    shas = commits_in(repository, base.sha, head.sha)
    said, warnings = accepted_in(repository, base.sha, head.sha)
    return (*acceptances_for(ledger, shas, head.diff_hash), *said), warnings
