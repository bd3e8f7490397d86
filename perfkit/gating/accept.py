"""Acceptances: which findings of a gate people let pass, by `perfkit accept` or in commits' messages."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

from perfkit.agent.counters.model import KEPT
from perfkit.ledger.annotations import ACCEPTANCES, KeptAcceptance, acceptances_for
from perfkit.model import COLD_START, Commit
from perfkit.model.comparisons import (
    BLOCKING,
    COUNTED,
    MEASURING,
    Acceptance,
    Comparison,
    ExactComparison,
    blocks,
)
from perfkit.model.counters import FLOORS
from perfkit.model.results import meant_by
from perfkit.repo.commits import is_ancestor, open_repository, resolve
from perfkit.repo.sides import SidePair
from perfkit.repo.trailers import accepted_in, commits_in, patches_of, whole_patch
from perfkit.repo.working_tree import code_of

# Uncommitted changes are accepted before they are committed, by clocks that may differ by so much.
_CLOCKS_DIFFER = timedelta(days=1)
# The changes of more commits are looked at in vain: a gate against an old release has thousands of them.
MOST_COMMITS = 200
# What was accepted of these is never measured again to the digit.
_NOT_TO_THE_DIGIT = frozenset({COLD_START.name, KEPT, *FLOORS})


_Finding = TypeVar("_Finding", Comparison, ExactComparison)


def mark(found: Sequence[_Finding], acceptances: Sequence[Acceptance]) -> tuple[_Finding, ...]:
    """Return the findings; those that block and are covered have the first acceptance that covers them."""
    names = _names(found)
    covering = (next((word for word in acceptances if _covers(word, one, names)), None) for one in found)
    return tuple(
        replace(one, accepted=word.text) if word else one for one, word in zip(found, covering, strict=True)
    )


def unused_notes(
    comparisons: Sequence[Comparison],
    acceptances: Sequence[Acceptance],
    exact: Sequence[ExactComparison] = (),
) -> tuple[str, ...]:
    """Return a sentence for each acceptance that covers no finding, with what was found instead."""
    names, counted = _names(comparisons), _names(exact)
    return tuple(
        f"accepted but not found: {acceptance.benchmark}"
        f" ({acceptance.verdict or 'any finding'}): {_instead(acceptance, comparisons, exact)};"
        f" the reason given was: {acceptance.text}"
        for acceptance in acceptances
        # A gate that is not strict needs none.
        if acceptance.benchmark in (*names, *counted) or acceptance.benchmark != MEASURING
        if not any(_covers(acceptance, one, names) for one in comparisons)
        and not any(_covers(acceptance, one, counted) for one in exact)
    )


def _names(found: Sequence[Comparison] | Sequence[ExactComparison]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.benchmark.name for one in found))


def _covers(acceptance: Acceptance, one: Comparison | ExactComparison, names: Sequence[str]) -> bool:
    if (one.benchmark.name,) != meant_by(acceptance.benchmark, names) or not one.gating:
        return False
    if isinstance(one, ExactComparison):
        return one.verdict in COUNTED and _allows_count(acceptance, one)
    return (
        one.verdict in BLOCKING
        and acceptance.verdict in (None, one.verdict)
        and acceptance.version in (None, one.benchmark.version)
        and not acceptance.of_counts_alone
        and not _clearly_worse(acceptance, one)
    )


def _allows_count(acceptance: Acceptance, one: ExactComparison) -> bool:
    if acceptance.counts is None:
        return acceptance.verdict in (None, one.verdict)
    if one.head is None:
        return one.metric.name in acceptance.uncounted
    most = acceptance.counts.get(one.metric.name, 0.0)
    return one.head <= (most * (1 + one.margin) if one.metric.name in _NOT_TO_THE_DIGIT else most)


def _clearly_worse(acceptance: Acceptance, comparison: Comparison) -> bool:
    return (
        comparison.verdict == "REGRESSED"
        and acceptance.ratio is not None
        and comparison.estimate is not None
        and comparison.estimate.low > acceptance.ratio
    )


def _instead(
    acceptance: Acceptance, comparisons: Sequence[Comparison], exact: Sequence[ExactComparison]
) -> str:
    """Return why an acceptance covers nothing."""
    found = {one.benchmark.name: one for one in comparisons}
    meant = meant_by(acceptance.benchmark, dict.fromkeys([*found, *_names(exact)]))
    if not meant:
        return "this gate has no such benchmark"
    name, *others = meant
    if others:
        return f"it could mean {' or '.join(meant)}"
    if acceptance.of_counts_alone or name not in found:
        return _instead_of_counts(acceptance, [one for one in exact if one.benchmark.name == name])
    comparison = found[name]
    if not comparison.gating:
        return "it does not gate"
    if acceptance.ratio is not None and _clearly_worse(acceptance, comparison):
        return f"it is clearly slower now than the ×{acceptance.ratio:.3f} that was accepted"
    edits = "" if acceptance.version in (None, comparison.benchmark.version) else ", by other edits"
    return f"it is {comparison.verdict} now{edits}"


def _instead_of_counts(acceptance: Acceptance, counts: Sequence[ExactComparison]) -> str:
    """Return how the counts stand that were accepted without a time."""
    text = "its counts alone were accepted"
    if not counts:
        return f"{text}, and this gate counted none of it"
    named = {*(acceptance.counts or ()), *acceptance.uncounted}
    beyond = ", ".join(
        f"{one.metric.name} ({'not counted' if one.head is None else f'{one.head:g}'})"
        for one in counts
        if one.metric.name in named and one.gating and one.verdict in COUNTED
    )
    return f"{text}, and they are beyond that now: {beyond}" if beyond else f"{text}, and these pass now"


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """The findings of a gate, where those that people accepted are marked."""

    comparisons: tuple[Comparison, ...]
    exact: tuple[ExactComparison, ...]
    notes: tuple[str, ...] = ()


def check_acceptances(pair: SidePair, *, ledger: Path, outputs: Sequence[Path]) -> None:
    """Check, before anything is measured, that all acceptances can be read."""
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
    """
    base, head = pair.base, pair.head
    if "directory" in (base.kind, head.kind):
        return Accepted(comparisons=tuple(comparisons), exact=tuple(exact))
    acceptances, warnings = find_acceptances(
        head.source, base=base.commit, head=head.commit, ledger=ledger, outputs=outputs
    )
    return Accepted(
        comparisons=mark(comparisons, acceptances),
        exact=mark(exact, acceptances),
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
        *mark(comparisons, acceptances),
        *mark(exact, acceptances),
    ]
    blocking = {one.benchmark.name for one in found if blocks(one) and one.accepted is None}
    if not blocking:
        return
    others = [one for one in ACCEPTANCES.read(ledger) if one not in acceptances and one.benchmark in blocking]
    newest = {one.benchmark: one for one in sorted(others, key=lambda one: one.recorded_at)}
    for kept in newest.values():
        if not is_ancestor(pair.head.source, kept.commit, pair.base.commit.sha):
            yield (
                f"{kept.benchmark} was accepted in another change: {kept.text}. Neither that commit nor the"
                f" same edits are part of this one; where the reason still holds:"
                f" perfkit accept {shlex.quote(kept.benchmark)} --reason {shlex.quote(kept.reason)}"
            )


def find_acceptances(
    start: Path, *, base: Commit, head: Commit, ledger: Path, outputs: Sequence[Path]
) -> tuple[tuple[Acceptance, ...], tuple[str, ...]]:
    """Return acceptances for base..head, those in the ledger first, and a warning for each bad trailer."""
    repository = open_repository(start)
    shas = commits_in(repository, base.sha, head.sha)
    trailers, warnings = accepted_in(repository, base.sha, head.sha)
    top = repository
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

    return (*acceptances_for(ledger, shas, head.diff_hash, is_here), *trailers), warnings


def _is_committed(
    kept: KeptAcceptance,
    *,
    shas: Sequence[str],
    code: Callable[[str], str | None],
    time: Callable[[str], datetime | None],
) -> bool:
    since = kept.recorded_at - _CLOCKS_DIFFER
    return any((made := time(sha)) is not None and made >= since and code(sha) == kept.code for sha in shas)
