"""Which findings of a gate people accepted: by ``perfkit accept``, or in the messages of head's commits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from perfkit.ledger.acceptances import KeptAcceptance, acceptances_for
from perfkit.records import Commit
from perfkit.records.comparisons import Comparison, ExactComparison
from perfkit.repo.commits import open_repository, resolve
from perfkit.repo.sides import SidePair
from perfkit.repo.trailers import accepted_in, commits_in
from perfkit.repo.working_tree import code_of
from perfkit.verdict.acceptance import Acceptance, apply, apply_to_counts, unused_notes

# Uncommitted changes are accepted before they are committed, by clocks that may differ by so much.
_CLOCKS_DIFFER = timedelta(days=1)
# The changes of more commits are looked at in vain: a gate against an old release has thousands of them.
_MOST_COMMITS = 200


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The findings of a gate, where those that people accepted are marked."""

    comparisons: tuple[Comparison, ...]
    exact: tuple[ExactComparison, ...]
    notes: tuple[str, ...] = ()


def check_acceptances(pair: SidePair, *, ledger: Path, outputs: Sequence[Path]) -> None:
    """Check, before anything is measured, that all acceptances can be read.

    Raises:
        RepositoryError: git does not know one of the two commits.
        LedgerError: a kept acceptance is damaged.
    """
    accept((), (), pair, ledger=ledger, outputs=outputs)


def accept(
    comparisons: Sequence[Comparison],
    exact: Sequence[ExactComparison],
    pair: SidePair,
    *,
    ledger: Path,
    outputs: Sequence[Path],
) -> Accepted:
    """Mark the findings that people accepted; there are none where a side is a directory, without a commit.

    ``outputs`` are the places that perfkit writes to, which are no part of anyone's code.

    Raises:
        RepositoryError: git does not know one of the two commits.
        LedgerError: a kept acceptance is damaged.
    """
    base, head = pair.base, pair.head
    if "directory" in (base.kind, head.kind):
        return Accepted(comparisons=tuple(comparisons), exact=tuple(exact))
    acceptances, warnings = find_acceptances(
        head.source, base=base.commit, head=head.commit, ledger=ledger, outputs=outputs
    )
    return Accepted(
        comparisons=apply(comparisons, acceptances),
        exact=apply_to_counts(exact, acceptances),
        notes=(*warnings, *unused_notes(comparisons, acceptances, exact)),
    )


def find_acceptances(
    start: Path, *, base: Commit, head: Commit, ledger: Path, outputs: Sequence[Path]
) -> tuple[tuple[Acceptance, ...], tuple[str, ...]]:
    """Return acceptances for base..head, those in the ledger first, and a warning for each bad trailer.

    Raises:
        RepositoryError: ``start`` is in no repository, or git does not know one of the two commits.
        LedgerError: a kept acceptance is damaged.
    """
    repository = open_repository(start)
    shas = commits_in(repository, base.sha, head.sha)
    said, warnings = accepted_in(repository, base.sha, head.sha)
    top = Path(str(repository.working_tree_dir))
    is_committed = functools.partial(
        _is_committed,
        shas=shas[:_MOST_COMMITS],
        code=functools.cache(lambda sha: code_of(top, ignored=(*outputs, ledger), sha=sha)),
        time=functools.cache(lambda sha: resolve(repository, sha).time),
    )
    return (*acceptances_for(ledger, shas, head.diff_hash, is_committed), *said), warnings


def _is_committed(
    kept: KeptAcceptance,
    *,
    shas: Sequence[str],
    code: Callable[[str], str | None],
    time: Callable[[str], datetime | None],
) -> bool:
    """Tell whether one of some commits, newest first, has the code that was accepted."""
    since = kept.recorded_at - _CLOCKS_DIFFER
    return any((made := time(sha)) is not None and made >= since and code(sha) == kept.code for sha in shas)
