"""Puts one trick into words, which are the same in every view."""

from __future__ import annotations

from perfkit.features.tricks.verdict import Interaction, SizeCrossing, TrickResult
from perfkit.model.comparisons import ExactComparison, TimedVerdict
from perfkit.report.gate.wording import change_text, interval_text
from perfkit.units import human_bytes

# These counts are told beside the time.
_TOLD_COUNTS = ("syncs", "operators", "allocated")
_INTERACTIONS: dict[TimedVerdict, str] = {
    "REGRESSED": "They take from each other",
    "IMPROVED": "They add to each other",
    "UNCHANGED": "They leave each other alone",
    "INCONCLUSIVE": "Whether they change each other cannot be told",
}
_TITLES = {"syncs": "host syncs", "operators": "operators", "allocated": "allocated"}


def time_text(result: TrickResult) -> str:
    """Return the change of the time: "-12.3 %"."""
    return change_text(result.comparison.estimate) if result.equivalence.equal else "-"


def bounds_text(result: TrickResult) -> str:
    """Return the interval of that change."""
    return interval_text(result.comparison.estimate) if result.equivalence.equal else "-"


def memory_text(result: TrickResult) -> str:
    """Return the change of the peak of tensors in bytes."""
    moved = result.peak_moved
    if moved is None:
        return "-"
    if moved == 0:
        return "same"
    return f"{'+' if moved > 0 else '-'}{human_bytes(round(abs(moved)))}"


def equivalence_text(result: TrickResult) -> str:
    """Return in words how far the results of both sides agree."""
    found = result.equivalence
    if found.problem:
        return found.problem
    if not found.equal:
        return "differ"
    if not found.largest:
        return "same to the bit"
    return f"within {100 * found.largest:.2g} % of what may differ"


def counts_text(result: TrickResult) -> str:
    """Return the counts that moved: "host syncs 20 to 1"."""
    moved = [one for one in result.exact if one.metric.name in _TOLD_COUNTS and _moved(one)]
    return ", ".join(_count_text(one) for one in moved)


def suggestion_sentence(result: TrickResult, code: str) -> str:
    """Return what a trick gains on a loop, with its code."""
    return f"{result.case.trick}: {time_text(result)} ({bounds_text(result)}), {code}"


def interaction_sentence(found: Interaction) -> str:
    """Return what two tricks gain together, and whether that is what each gains by itself."""
    names = " and ".join(found.both.case.tricks)
    expected = f"{100 * (found.expected - 1):+.1f} %"
    between = f"{100 * (found.low - 1):+.1f} to {100 * (found.high - 1):+.1f} %"
    return (
        f"{names} together: {time_text(found.both)} ({bounds_text(found.both)}); if neither changed what"
        f" the other gives, it would be {expected}. {_INTERACTIONS[found.verdict]} (differs by {between})."
    )


def crossing_sentence(found: SizeCrossing) -> str:
    """Return the size from which or up to which a trick pays."""
    verb = "pays from" if found.helps_above else "ceases to pay at"
    return (
        f"{found.trick} {verb} about {found.size:.3g} {found.size_means}"
        f" (tried: {found.below} and {found.above})."
    )


def _moved(one: ExactComparison) -> bool:
    return one.base is not None and one.head is not None and one.base != one.head


def _count_text(one: ExactComparison) -> str:
    texts = [
        human_bytes(round(value or 0)) if one.metric.unit == "B" else f"{value or 0:g}"
        for value in (one.base, one.head)
    ]
    return f"{_TITLES[one.metric.name]} {texts[0]} to {texts[1]}"
