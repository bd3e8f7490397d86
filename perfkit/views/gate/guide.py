"""How to read a gate's numbers: what they are, and what holds with which confidence."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from perfkit.records.comparisons import Comparison, GateReport
from perfkit.views.gate.wording import percent, upper_text


def reading_guide(report: GateReport, names: Mapping[str, str]) -> str:
    """Return what the numbers are, the confidence they hold with, and the margins."""
    policy = report.policy
    together = f" for all {policy.family} of them at once" if policy.family > 1 else ""
    sentences = (
        "Base and head are the time of one call. Change is head against base.",
        f"The true change lies within the interval, with {percent(1 - policy.alpha)} confidence{together}.",
        _of_typical_calls(report.comparisons, names),
        _resting_on_preloaders(report.comparisons, names),
        _margins(report.comparisons, names),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _of_typical_calls(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    """Say that times are of typical calls, and what all calls may have lost where those did not change."""
    typical = [found for found in comparisons if found.estimate and found.estimate.calls == "typical"]
    if not typical:
        return ""
    short = "" if len(typical) == len(comparisons) else " where calls are short"
    whole = [(found.other.high, found) for found in typical if found.other and found.verdict == "UNCHANGED"]
    if not whole:
        return f"Times are of a typical call{short}."
    _, most = max(whole, key=lambda one: one[0])
    limit, name = upper_text(most.other), names[most.benchmark.name]
    return f"Times are of a typical call{short}; all calls together, slow ones too: at most {limit} ({name})."


def _resting_on_preloaders(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    """Say which intervals are wider, as launches of one preloader were too much alike to count alone."""
    found = [entry for entry in comparisons if entry.estimate and entry.estimate.unit == "preloaders"]
    listed = ", ".join(names[entry.benchmark.name] for entry in found)
    return f"Launches of {listed} were alike in groups, and its interval is wider for that." if found else ""


def _margins(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    """Return the margin most have, and the others with their benchmarks."""
    if not comparisons:
        return ""
    by_margin: dict[float, list[str]] = defaultdict(list)
    for found in comparisons:
        by_margin[found.margin].append(names[found.benchmark.name])
    usual, *others = sorted(by_margin, key=lambda margin: -len(by_margin[margin]))
    exceptions = "".join(f", {percent(margin)} for {', '.join(by_margin[margin])}" for margin in others)
    return f"A change may be as large as the margin: {percent(usual)}{exceptions}."
