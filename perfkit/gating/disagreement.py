"""Where a benchmark's time and the counts of its work say different things, which is a finding of its own.

Time follows work as a rule. Where it does not, whoever looks for more work behind a slowdown, or waits for
the gain of less work, looks in the wrong place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfkit.model.comparisons import Comparison, Estimate, ExactComparison, Explanation
from perfkit.model.counting import INSTRUCTIONS

# The counts that stand for time, those that see most of the work first: what they are called, and what work
# they do not see.
_COSTS: Mapping[str, tuple[str, str]] = {
    INSTRUCTIONS: ("instructions", ""),
    "operators": ("operators", " or plain Python between operators"),
    "python_calls": ("Python calls", " or a longer loop within a function"),
}
# Work is the same only where these, as far as they are known, are the same too.
_OF_WORK = (*_COSTS, "flops", "allocated", "syncs", "to_device", "to_host", "kernels", "graph_breaks")
# Counts that differ by no more than this share are the same. At the second ratio a count has fallen so far
# that the time should show it, and at its inverse it has grown so far.
_SAME = 0.005
_FELL = 0.7
_LARGEST_SLOWER = 2.0
_HALF, _TWICE = (0.45, 0.55), (1.9, 2.1)


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """What the time and the counts of a benchmark say together, in a sentence.

    ``elsewhere`` tells that there is much less work and no gain: a profile shows where the time is spent.
    """

    benchmark: str
    said: str
    elsewhere: bool = False


def disagreements(
    comparisons: Sequence[Comparison], exact: Sequence[ExactComparison]
) -> Iterator[Disagreement]:
    """Yield what is to be said of the benchmarks whose time did not follow their work."""
    for one in comparisons:
        counts = {
            count.metric.name: count
            for count in exact
            if count.benchmark.name == one.benchmark.name and _is_known(count)
        }
        if one.estimate is not None and (found := _disagreement(one, one.estimate, counts)) is not None:
            yield found


def explain_counts(
    comparisons: Sequence[Comparison], exact: Sequence[ExactComparison]
) -> tuple[Explanation, ...]:
    """Say where a time did not follow its counts, without a profile."""
    return tuple(
        Explanation(benchmark=one.benchmark, section=None, findings=(one.said,))
        for one in disagreements(comparisons, exact)
    )


def _is_known(count: ExactComparison) -> bool:
    return count.metric.exact and count.base is not None and count.head is not None


def _disagreement(
    one: Comparison, estimate: Estimate, counts: Mapping[str, ExactComparison]
) -> Disagreement | None:
    # Where there is nothing of a kind on base, as of operators in plain Python, it says nothing of the time.
    costs = {metric: counts[metric] for metric in _COSTS if metric in counts and counts[metric].base}
    if not costs:
        return None
    if all(_is_same(counts[metric]) for metric in _OF_WORK if metric in counts):
        return _of_same_counts(one, estimate, next(iter(costs)))
    ratios = {metric: _ratio(count) for metric, count in costs.items()}
    if max(ratios.values()) <= 1 + _SAME and min(ratios.values()) <= _FELL:
        return _of_less_work(one, estimate, costs[min(ratios, key=lambda metric: ratios[metric])])
    if min(ratios.values()) >= 1 - _SAME and max(ratios.values()) >= 1 / _FELL:
        return _of_more_work(one, estimate, costs[max(ratios, key=lambda metric: ratios[metric])])
    return None


def _of_same_counts(one: Comparison, estimate: Estimate, metric: str) -> Disagreement | None:
    if one.verdict not in ("REGRESSED", "IMPROVED"):
        return None
    noun, unseen = _COSTS[metric]
    cause, more, less = "the machine, a library or the cache", "more work", "less work"
    if unseen:
        cause, more, less = f"the machine, a library, the cache{unseen}", f"more {noun}", f"fewer {noun}"
    ruled_out = more if one.verdict == "REGRESSED" else less
    said = f"the same counts, {_change(estimate)}: {cause}, not {ruled_out}"
    return Disagreement(benchmark=one.benchmark.name, said=said)


def _of_less_work(one: Comparison, estimate: Estimate, count: ExactComparison) -> Disagreement | None:
    if one.verdict == "REGRESSED":
        said = f"{_share_of(count)}, yet {_change(estimate)}: each takes longer, or something else does"
        return Disagreement(benchmark=one.benchmark.name, said=said)
    if one.verdict == "UNCHANGED" and estimate.low > _half_way(count):
        said = f"{_share_of(count)}, the same time: the time is spent elsewhere"
        return Disagreement(benchmark=one.benchmark.name, said=said, elsewhere=True)
    return None


def _of_more_work(one: Comparison, estimate: Estimate, count: ExactComparison) -> Disagreement | None:
    if one.verdict == "IMPROVED":
        said = f"{_share_of(count)}, yet {_change(estimate)}: each takes less time, or something else does"
        return Disagreement(benchmark=one.benchmark.name, said=said)
    if one.verdict == "UNCHANGED" and estimate.high < _half_way(count):
        said = f"{_share_of(count)}, the same time: what was added takes too little to show"
        return Disagreement(benchmark=one.benchmark.name, said=said)
    return None


def _change(estimate: Estimate) -> str:
    """Return how a time moved: "9.0 % slower"."""
    if estimate.ratio >= _LARGEST_SLOWER:
        return f"{estimate.ratio:.1f} times as slow"
    return f"{100 * abs(estimate.ratio - 1):.1f} % {'slower' if estimate.ratio > 1 else 'faster'}"


def _half_way(count: ExactComparison) -> float:
    """Return the ratio half-way between no change and that of a count.

    An interval that a wide margin makes UNCHANGED may hold a time that has followed the count.
    """
    return (1 + _ratio(count)) / 2


def _share_of(count: ExactComparison) -> str:
    """Return how much of a count is left, or has become of it: "half of the operators (120 to 60)"."""
    noun, ratio = _COSTS[count.metric.name][0], _ratio(count)
    if _HALF[0] <= ratio <= _HALF[1]:
        share = "half of the"
    elif _TWICE[0] <= ratio <= _TWICE[1]:
        share = "twice the"
    else:
        share = f"{100 * (1 - ratio):.0f} % fewer" if ratio < 1 else f"{ratio:.1f} times the"
    return f"{share} {noun} ({count.base:,.0f} to {count.head:,.0f})"


def _ratio(count: ExactComparison) -> float:
    """Return head / base of a count that is known on both sides, and of which base has some."""
    return count.ratio or 0.0


def _is_same(count: ExactComparison) -> bool:
    return count.base == count.head or (count.ratio is not None and abs(count.ratio - 1) <= _SAME)
