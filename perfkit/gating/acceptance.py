"""What people let pass: which findings an acceptance covers, and which it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from perfkit.model.acceptances import Acceptance
from perfkit.model.comparisons import BLOCKING, COUNTED, Comparison, ExactComparison
from perfkit.model.results import meant_by


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
        f" ({acceptance.verdict or 'any finding'}): {_instead(acceptance, comparisons, exact)};"
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
    return (
        (one.benchmark.name,) == meant_by(acceptance.benchmark, names)
        and one.gating
        and one.verdict in COUNTED
        and _allows_count(acceptance, one)
    )


def _allows_count(acceptance: Acceptance, one: ExactComparison) -> bool:
    """Tell whether an acceptance speaks of a count, whatever else of the benchmark was accepted with it."""
    if acceptance.counts is None:
        return acceptance.verdict in (None, one.verdict)
    if one.head is None:
        return one.metric.name in acceptance.uncounted
    return one.metric.name in acceptance.counts and one.head <= acceptance.counts[one.metric.name]


def _covers(acceptance: Acceptance, comparison: Comparison, names: Sequence[str]) -> bool:
    return (
        (comparison.benchmark.name,) == meant_by(acceptance.benchmark, names)
        and comparison.gating
        and comparison.verdict in BLOCKING
        and acceptance.verdict in (None, comparison.verdict)
        and not acceptance.of_counts_alone
        and not _clearly_worse(acceptance, comparison)
    )


def _clearly_worse(acceptance: Acceptance, comparison: Comparison) -> bool:
    """Tell whether a regression lies wholly above the one that was accepted."""
    return (
        comparison.verdict == "REGRESSED"
        and acceptance.ratio is not None
        and comparison.estimate is not None
        and comparison.estimate.low > acceptance.ratio
    )


def _instead(
    acceptance: Acceptance, comparisons: Sequence[Comparison], exact: Sequence[ExactComparison]
) -> str:
    """Say why an acceptance covers nothing."""
    found = {one.benchmark.name: one for one in comparisons}
    meant = meant_by(acceptance.benchmark, dict.fromkeys([*found, *_counted(exact)]))
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
    return f"it is {comparison.verdict} now"


def _instead_of_counts(acceptance: Acceptance, counts: Sequence[ExactComparison]) -> str:
    """Say how the counts stand that were accepted without a time."""
    if not counts:
        return "its counts alone were accepted, and this gate counted none of it"
    named = {*(acceptance.counts or ()), *acceptance.uncounted}
    told = "its counts alone were accepted"
    grown = [one for one in counts if one.metric.name in named and one.gating and one.verdict in COUNTED]
    if not grown:
        return f"{told}, and these pass now"
    listed = ", ".join(f"{one.metric.name} ({_count_text(one)})" for one in grown)
    return f"{told}, and they are beyond that now: {listed}"


def _count_text(one: ExactComparison) -> str:
    return "not counted" if one.head is None else f"{one.head:g}"
