"""What people let pass of a gate: by ``perfkit accept``, and in the messages of head's commits."""

from __future__ import annotations

from pathlib import Path

from perfkit.ledger.acceptances import acceptances_for
from perfkit.records import Commit
from perfkit.repo.commits import open_repository
from perfkit.repo.trailers import accepted_in, commits_in
from perfkit.verdict.acceptance import Acceptance


def find_acceptances(
    start: Path, *, base: Commit, head: Commit, ledger: Path
) -> tuple[tuple[Acceptance, ...], tuple[str, ...]]:
    """Return what was accepted for base..head, kept words first, and a warning for each unreadable trailer.

    Raises:
        RepositoryError: ``start`` is in no repository, or git does not know one of the two commits.
        LedgerError: a kept acceptance is damaged.
    """
    repository = open_repository(start)
    shas = commits_in(repository, base.sha, head.sha)
    said, warnings = accepted_in(repository, base.sha, head.sha)
    return (*acceptances_for(ledger, shas, head.diff_hash), *said), warnings
