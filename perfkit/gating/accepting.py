"""Which findings of a gate people accepted: by ``perfkit accept``, or in the messages of head's commits."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from perfkit.gating.acceptance import apply, apply_to_counts, unused_notes
from perfkit.ledger.acceptances import ACCEPTANCES, KeptAcceptance, acceptances_for
from perfkit.model import Commit
from perfkit.model.acceptances import Acceptance
from perfkit.model.comparisons import Comparison, ExactComparison, blocks
from perfkit.repo.commits import is_ancestor, open_repository, resolve
from perfkit.repo.patches import patches_of, whole_patch
from perfkit.repo.sides import SidePair
from perfkit.repo.trailers import accepted_in, commits_in
from perfkit.repo.working_tree import code_of

# Uncommitted changes are accepted before they are committed, by clocks that may differ by so much.
_CLOCKS_DIFFER = timedelta(days=1)
# The changes of more commits are looked at in vain: a gate against an old release has thousands of them.
MOST_COMMITS = 200


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
        notes=(
            *warnings,
            *unused_notes(comparisons, acceptances, exact),
            *_notes_on_others(comparisons, exact, acceptances, pair, ledger),
        ),
    )


def _notes_on_others(
    comparisons: Sequence[Comparison],
    exact: Sequence[ExactComparison],
    acceptances: Sequence[Acceptance],
    pair: SidePair,
    ledger: Path,
) -> Iterator[str]:
    """Yield a sentence for each finding that was accepted in a change that this one does not hold.

    What was accepted in the history of base is past, and is left out.
    """
    found: list[Comparison | ExactComparison] = [
        *apply(comparisons, acceptances),
        *apply_to_counts(exact, acceptances),
    ]
    blocking = {one.benchmark.name for one in found if blocks(one) and one.accepted is None}
    if not blocking:
        return
    others = [one for one in ACCEPTANCES.read(ledger) if one not in acceptances and one.benchmark in blocking]
    newest = {one.benchmark: one for one in sorted(others, key=lambda one: one.recorded_at)}
    for kept in newest.values():
        if not is_ancestor(pair.head.source, kept.commit, pair.base.commit.sha):
            yield (
                f"{kept.benchmark} was accepted in another change: {kept.told}. Neither that commit nor the"
                f" same edits are part of this one; where the reason still holds:"
                f" perfkit accept {shlex.quote(kept.benchmark)} --reason {shlex.quote(kept.reason)}"
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
    ignored = (*outputs, ledger)
    is_committed = functools.partial(
        _is_committed,
        shas=shas[:MOST_COMMITS],
        code=functools.cache(lambda sha: code_of(top, ignored=ignored, sha=sha)),
        time=functools.cache(lambda sha: resolve(repository, sha).time),
    )

    @functools.cache
    def patches() -> frozenset[str | None]:
        whole = whole_patch(top, base.sha, head.sha, ignored=ignored)
        return frozenset({whole, *patches_of(top, shas[:MOST_COMMITS], ignored=ignored)})

    def is_here(kept: KeptAcceptance) -> bool:
        if kept.diff_hash is not None:
            return kept.code is not None and is_committed(kept)
        same = kept.change is not None and kept.change in patches()
        return same or (bool(kept.parts) and patches().issuperset(kept.parts))

    return (*acceptances_for(ledger, shas, head.diff_hash, is_here), *said), warnings


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
