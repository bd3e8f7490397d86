"""What people let pass: which findings an acceptance covers, and which it does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from perfkit.records.comparisons import Comparison, ExactComparison, Verdict
from perfkit.records.results import meant_by

BLOCKING: frozenset[Verdict] = frozenset(
    {"REGRESSED", "INCONCLUSIVE", "MISSING", "CHANGED", "FAILED", "TIMEOUT"}
)
SHOWN_DIGITS = 8


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """A person's word, at one commit, that a finding may pass.

    ``benchmark`` is a node id or the end of one. ``verdict`` is the kind of finding that was accepted, None
    for any. ``ratio`` is head / base as it was when it was accepted, ``counts`` what grew, by metric, with
    head's count; None stands for whatever grows.
    """

    benchmark: str
    reason: str
    commit: str
    author: str | None = None
    verdict: Verdict | None
    ratio: float | None = None
    counts: Mapping[str, float] | None = None

    @property
    def told(self) -> str:
        """The reason, with who gave it and where."""
        where = self.commit[:SHOWN_DIGITS]
        return f"{self.reason} ({f'{self.author}, {where}' if self.author else where})"


def apply(comparisons: Sequence[Comparison], acceptances: Sequence[Acceptance]) -> tuple[Comparison, ...]:
    """Return the comparisons, those that block and are covered with ``accepted`` set.

    Where several acceptances cover a finding, the first of them is told.
    """
    names = _names(comparisons)
    return tuple(_accepted(comparison, acceptances, names) for comparison in comparisons)


def apply_to_counts(
    exact: Sequence[ExactComparison], acceptances: Sequence[Acceptance]
) -> tuple[ExactComparison, ...]:
    """Return the counts, those that block and are covered with ``accepted`` set."""
    names = _counted(exact)
    return tuple(_accepted_count(one, acceptances, names) for one in exact)


def unused_notes(
    comparisons: Sequence[Comparison],
    acceptances: Sequence[Acceptance],
    exact: Sequence[ExactComparison] = (),
) -> tuple[str, ...]:
    """Return a sentence for each acceptance that covers no finding, with what was found instead."""
    names, counted = _names(comparisons), _counted(exact)
    return tuple(
        f"accepted but not found: {acceptance.benchmark}"
        f" ({acceptance.verdict or 'any finding'}): {_instead(acceptance, comparisons)};"
        f" the reason given was: {acceptance.told}"
        for acceptance in acceptances
        if not any(_covers(acceptance, comparison, names) for comparison in comparisons)
        and not any(_covers_count(acceptance, one, counted) for one in exact)
    )


def _names(comparisons: Sequence[Comparison]) -> tuple[str, ...]:
    return tuple(comparison.benchmark.name for comparison in comparisons)


def _accepted(comparison: Comparison, acceptances: Sequence[Acceptance], names: Sequence[str]) -> Comparison:
    covering = (acceptance for acceptance in acceptances if _covers(acceptance, comparison, names))
    first = next(covering, None)
    return replace(comparison, accepted=first.told) if first else comparison


def _counted(exact: Sequence[ExactComparison]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.benchmark.name for one in exact))


def _accepted_count(
    one: ExactComparison, acceptances: Sequence[Acceptance], names: Sequence[str]
) -> ExactComparison:
    covering = (acceptance for acceptance in acceptances if _covers_count(acceptance, one, names))
    first = next(covering, None)
    return replace(one, accepted=first.told) if first else one


def _covers_count(acceptance: Acceptance, one: ExactComparison, names: Sequence[str]) -> bool:
    counts = acceptance.counts
    return (
        (one.benchmark.name,) == meant_by(acceptance.benchmark, names)
        and one.gating
        and one.verdict == "REGRESSED"
        and acceptance.verdict in (None, one.verdict)
        and (counts is None or (one.head or 0.0) <= counts.get(one.metric.name, -1.0))
    )


def _covers(acceptance: Acceptance, comparison: Comparison, names: Sequence[str]) -> bool:
    return (
        (comparison.benchmark.name,) == meant_by(acceptance.benchmark, names)
        and comparison.gating
        and comparison.verdict in BLOCKING
        and acceptance.verdict in (None, comparison.verdict)
        and not _of_counts_alone(acceptance)
        and not _clearly_worse(acceptance, comparison)
    )


def _of_counts_alone(acceptance: Acceptance) -> bool:
    return bool(acceptance.counts) and acceptance.ratio is None


def _clearly_worse(acceptance: Acceptance, comparison: Comparison) -> bool:
    """Tell whether a regression lies wholly above the one that was accepted."""
    return (
        comparison.verdict == "REGRESSED"
        and acceptance.ratio is not None
        and comparison.estimate is not None
        and comparison.estimate.low > acceptance.ratio
    )


def _instead(acceptance: Acceptance, comparisons: Sequence[Comparison]) -> str:
    """Say why an acceptance covers nothing."""
    meant = meant_by(acceptance.benchmark, _names(comparisons))
    if not meant:
        return "this gate has no such benchmark"
    if len(meant) > 1:
        return f"it could mean {' or '.join(meant)}"
    found = next(comparison for comparison in comparisons if comparison.benchmark.name == meant[0])
    if not found.gating:
        return "it does not gate"
    if acceptance.verdict == found.verdict:
        return f"it is clearly slower now than the ×{acceptance.ratio:.3f} that was accepted"
    return f"it is {found.verdict} now"
