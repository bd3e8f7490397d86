"""Verdicts on counters, without statistics, and how they explain a time that moved."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from perfkit.agent.counters.model import INSTRUCTIONS, KEPT, NO_TORCH, TRACKED, Cause, Count, Counts
from perfkit.model import Benchmark, Metric
from perfkit.model.comparisons import (
    SAME_CODE,
    Comparison,
    Estimate,
    ExactComparison,
    Explanation,
    MovedCause,
    Verdict,
)
from perfkit.model.counters import COMPILED, FLOORS, NUMBERS, SYNCS, repeated

_OPERATORS, _PYTHON_CALLS = "operators", "python_calls"
# Counts that stand for time, and do not count where the time itself is known to be shorter.
_PRICES_OF_SPEED = ("operators", "allocated", *COMPILED)
_FEWEST_NUMBERS = 3
_MOST_CAUSES = 20
# Fewer bytes more never decide: of a benchmark, of a training step (the larger of the two), and this many
# times as many where the time became shorter.
_BENCHMARK_FLOOR = float(1 << 20)
_STEP_FLOOR, _STEP_FLOOR_SHARE = float(16 << 20), 0.01
_BESIDE_A_GAIN = 10
# The reason of a count for which the budget had no time left.
NO_TIME = "the budget was over"
# What is kept decides from this many bytes a call on.
LEAST_KEPT = 256
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
class CounterPolicy:
    """Which counts decide: those named, where they grow by more than the share ``tolerance``.

    A sync is reported in any benchmark but decides in a training step only, where one more is too many; so is
    one more compiled graph or recompiled function in any benchmark. Where a benchmark has become faster
    beyond doubt, operators, graphs and bytes allocated are what that took. Bytes decide beyond a floor only.
    If nothing is ``timed``, Python's calls decide where torch is not used. With ``same_code`` no code differs
    between the sides, and no count accuses or praises.
    """

    gating: tuple[str, ...]
    tolerance: float
    same_code: bool = False
    timed: bool = True

    def margin(self, metric: str) -> float:
        """Return the share by which a count may grow."""
        return 0.0 if metric in (SYNCS, *COMPILED) else self.tolerance

    def floor(self, count: Count, base: float, *, training: bool, faster: bool) -> float:
        """Return by how much a count may grow at any size."""
        if count.metric in FLOORS:
            return FLOORS[count.metric] * (_BESIDE_A_GAIN if faster and count.unit == "B" else 1)
        if count.unit != "B" or count.metric in (TRACKED, KEPT):
            return 0.0
        floor = max(_STEP_FLOOR, _STEP_FLOOR_SHARE * base) if training else _BENCHMARK_FLOOR
        return floor * (_BESIDE_A_GAIN if faster else 1)

    def gates(self, metric: str, *, training: bool, faster: bool, torch: bool = True) -> bool:
        """Return whether a count decides."""
        if faster and metric in _PRICES_OF_SPEED:
            return False
        if metric == _PYTHON_CALLS and not torch and not self.timed:
            return True
        return metric in self.gating and (training or metric != SYNCS)


def compare_counts(
    benchmark: Benchmark,
    base: Counts,
    head: Counts,
    policy: CounterPolicy,
    *,
    training: bool,
    gating: bool,
    faster: bool = False,
    margin: float | None = None,
) -> Iterator[ExactComparison]:
    """Yield a comparison for each count that either side has, or gives a reason not to have.

    A benchmark that trains on either side is a training step like that of a target; ``faster`` means that its
    time is IMPROVED. ``margin`` is that of a number which a benchmark measures instead of a time: it decides
    wherever the benchmark does.
    """
    training = training or base.training or head.training
    torch = _uses_torch(base) or _uses_torch(head)
    olds, news = ({count.metric: count for count in one.counts} for one in (base, head))
    for metric in dict.fromkeys([*olds, *news, *base.not_counted, *head.not_counted]):
        old, new = olds.get(metric), news.get(metric)
        decides = gating and (
            margin is not None or policy.gates(metric, training=training, faster=faster, torch=torch)
        )
        if old is None or new is None:
            reasons = (base.not_counted.get(metric), head.not_counted.get(metric))
            # More calls, for which there may be no time on one side, are no part of what is asked of head.
            yield not_compared(benchmark, metric, old, new, reasons, gating=decides and metric != KEPT)
        else:
            allowed = policy.margin(metric) if margin is None else margin
            floor = policy.floor(new, _typical(old), training=training, faster=faster)
            if floor and _typical(old):
                allowed = max(allowed, floor / _typical(old))
            # A base of 0 has no percentage.
            decides = decides and not (_typical(old) == 0 < _typical(new) <= floor)
            found = compare_count(benchmark, old, new, margin=allowed, gating=decides)
            yield without_blame(found) if policy.same_code else found


def _uses_torch(counts: Counts) -> bool:
    for count in counts.counts:
        if count.metric == _OPERATORS:
            return any(count.values)
    return counts.not_counted.get(_OPERATORS) != NO_TORCH


def compare_count(
    benchmark: Benchmark, old: Count, new: Count, *, margin: float, gating: bool
) -> ExactComparison:
    """Return the verdict on one count; one that did not repeat on a side never decides.

    The numbers of several launches do, by a rule of their own (``_compare_numbers``).
    """
    if new.metric in NUMBERS or new.metric in FLOORS:
        return _compare_numbers(benchmark, old, new, margin=margin, gating=gating)
    base, head = _typical(old), _typical(new)
    if new.metric in COMPILED and min(new.values) > max(old.values):
        # Code that is compiled anew in each call never repeats, and is the worst of it.
        base, head = max(old.values), min(new.values)
        old, new = (replace(one, values=(value,) * 2) for one, value in ((old, base), (new, head)))
    if new.metric == KEPT:
        base, head = _kept(old, new)
    unsteady = [side for side, count in (("base", old), ("head", new)) if not repeated(count)]
    verdict = _verdict(base, head, margin)
    if new.metric == KEPT and is_kept_alike(old, new):
        verdict = "UNCHANGED"
    return ExactComparison(
        benchmark=benchmark,
        metric=Metric(name=new.metric, unit=new.unit, exact=not unsteady),
        verdict="INCONCLUSIVE" if unsteady and base != head else verdict,
        margin=margin,
        gating=gating and not unsteady,
        base=base,
        head=head,
        causes=() if base == head else _moved(old.causes, new.causes),
        message=f"did not repeat on {' and '.join(unsteady)}: not exact" if unsteady else None,
    )


def is_kept_alike(old: Count, new: Count) -> bool:
    """Return whether what calls keep on both sides is too much alike to mean anything."""
    base, head = _kept(old, new)
    return abs(head - base) < LEAST_KEPT


def _kept(old: Count, new: Count) -> tuple[float, float]:
    """Return the two values of what is kept, of all processes and halves, that are nearest to each other."""
    if min(new.values) > max(old.values):
        return max(old.values), min(new.values)
    if max(new.values) < min(old.values):
        return min(old.values), max(new.values)
    return old.values[-1], old.values[-1]


def without_blame(found: ExactComparison) -> ExactComparison:
    """Return a comparison of sides between which no code differs: it accuses and praises nothing."""
    if found.verdict not in {"REGRESSED", "IMPROVED"}:
        return found
    metric = replace(found.metric, exact=False)
    return replace(found, verdict="INCONCLUSIVE", metric=metric, gating=False, message=SAME_CODE)


def _compare_numbers(
    benchmark: Benchmark, old: Count, new: Count, *, margin: float, gating: bool
) -> ExactComparison:
    """Return the verdict on numbers of several launches, which need not repeat.

    Those of head are all above those of base by more than the margin, all below, or none above. For two
    samples of n from one distribution, all of one lie above all of the other with a probability of 1 in
    "2n choose n" (Mann and Whitney, 1947), for any distribution.
    """
    paired = new.metric in FLOORS
    verdict = (_verdict_on_pairs if paired else _verdict_on_all)(old.values, new.values, margin)
    exact = repeated(old) and repeated(new)
    apart = f"base {_span(old.values)}, head {_span(new.values)}"
    launches = f"{len(new.values)} launches"
    return ExactComparison(
        benchmark=benchmark,
        metric=Metric(name=new.metric, unit=new.unit, exact=exact),
        verdict=verdict,
        margin=margin,
        gating=gating,
        base=_middle(old.values),
        head=_middle(new.values),
        message=None if exact or paired else f"differs between launches; in {launches}: {apart}",
    )


def _verdict_on_pairs(base: Sequence[float], head: Sequence[float], margin: float) -> Verdict:
    """Return the verdict on pairs measured beside each other, of five of which one may be otherwise."""
    moved = [new - old for old, new in zip(base, head, strict=False)]
    needed = max(len(moved) - len(moved) // 5, _FEWEST_NUMBERS)
    for verdict, sign in (("REGRESSED", 1), ("IMPROVED", -1)):
        if sum(sign * one > margin * old for one, old in zip(moved, base, strict=False)) >= needed:
            return "REGRESSED" if verdict == "REGRESSED" else "IMPROVED"
    return "UNCHANGED"


def _verdict_on_all(base: Sequence[float], head: Sequence[float], margin: float) -> Verdict:
    pairs = [(old, new, margin * abs(old)) for old in base for new in head]
    if all(new - old > allowed for old, new, allowed in pairs):
        return "REGRESSED"
    if all(old - new > allowed for old, new, allowed in pairs):
        return "IMPROVED"
    did_not_grow = all(new - old <= allowed for old, new, allowed in pairs)
    return "UNCHANGED" if did_not_grow else "INCONCLUSIVE"


def _middle(values: Sequence[float]) -> float:
    return values[0] if len(set(values)) == 1 else statistics.median(values)


def _span(values: Sequence[float]) -> str:
    return f"{min(values):g} to {max(values):g}"


def numbers_that_decide(error: float) -> int:
    """Return how many launches of each side must lie apart so that chance does it with ``error`` at most."""
    return next(size for size in itertools.count(_FEWEST_NUMBERS) if 2 / math.comb(2 * size, size) <= error)


def _verdict(base: float, head: float, margin: float) -> Verdict:
    if head > base * (1 + margin):
        return "REGRESSED"
    return "IMPROVED" if head < base * (1 - margin) else "UNCHANGED"


def _typical(count: Count) -> float:
    return count.values[-1] if count.exact else math.fsum(count.values) / len(count.values)


def not_compared(
    benchmark: Benchmark,
    metric: str,
    old: Count | None,
    new: Count | None,
    reasons: tuple[str | None, str | None],
    *,
    gating: bool,
) -> ExactComparison:
    """Return a count that a side lacks, with the reasons that base and head give.

    A count that decides and that only base has is MISSING: it could have grown unseen. A count that did not
    repeat on base would not have decided. One for which there was no time stays undecided.
    """
    known = new or old
    missing = gating and old is not None and new is None and repeated(old)
    return ExactComparison(
        benchmark=benchmark,
        metric=Metric(name=metric, unit=known.unit if known else "1"),
        verdict="MISSING" if missing else "INCONCLUSIVE",
        margin=0.0,
        gating=missing or (gating and reasons == (NO_TIME, NO_TIME)),
        base=_typical(old) if old else None,
        head=_typical(new) if new else None,
        message=_why(reasons, lacking=[side for side, one in (("base", old), ("head", new)) if one is None]),
    )


def _why(reasons: tuple[str | None, str | None], *, lacking: Sequence[str]) -> str:
    base, head = reasons
    if base is not None and base == head:
        return f"not counted: {base}"
    parts = [f"not counted on {side}: {why}" for side, why in (("base", base), ("head", head)) if why]
    return "; ".join(parts) or f"not counted on {' and '.join(lacking)}"


def _moved(olds: Iterable[Cause], news: Iterable[Cause]) -> tuple[MovedCause, ...]:
    """Return what stands behind a count that moved, the most moved first."""
    before, after = _by_file(olds), _by_file(news)
    pairs = (
        pair
        for key in dict.fromkeys([*after, *before])
        for pair in _pairs(before.get(key, []), after.get(key, []))
    )
    moved = [
        MovedCause(what=(new or old)[0].what, place=(new or old)[0].place, base=_total(old), head=_total(new))
        for old, new in pairs
    ]
    changed = [one for one in moved if one.base != one.head]
    return tuple(sorted(changed, key=lambda one: -abs(one.head - one.base))[:_MOST_CAUSES])


def _by_file(causes: Iterable[Cause]) -> Mapping[tuple[str, str], Sequence[Cause]]:
    found: dict[tuple[str, str], list[Cause]] = defaultdict(list)
    for cause in causes:
        found[cause.what, cause.place.rpartition(":")[0]].append(cause)
    return found


def _pairs(olds: Sequence[Cause], news: Sequence[Cause]) -> Iterator[tuple[list[Cause], list[Cause]]]:
    """Pair the lines of a file by their text, since line numbers move with every change above them.

    Lines that are left on both sides are taken for edited ones and paired in their order in the file.
    """
    before, after = _by_text(olds), _by_text(news)
    for text in before.keys() & after.keys():
        yield before.pop(text), after.pop(text)
    left = (sorted(side.values(), key=_line) for side in (before, after))
    for old, new in zip_longest(*left, fillvalue=None):
        yield old or [], new or []


def _by_text(causes: Iterable[Cause]) -> dict[str, list[Cause]]:
    found: dict[str, list[Cause]] = defaultdict(list)
    for cause in causes:
        found[cause.text].append(cause)
    return found


def _line(causes: Sequence[Cause]) -> int:
    number = causes[0].place.rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _total(causes: Iterable[Cause]) -> float:
    return math.fsum(cause.amount for cause in causes)


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A time that did not follow the counts of its benchmark, in a sentence.

    ``elsewhere`` marks much less work without a gain: a profile shows where the time is spent.
    ``same_counts`` marks one that is void where a changed function is found to take the time.
    """

    benchmark: str
    sentence: str
    elsewhere: bool = False
    same_counts: bool = False


def disagreements(
    comparisons: Sequence[Comparison], exact: Sequence[ExactComparison]
) -> Iterator[Disagreement]:
    """Yield the benchmarks whose time did not follow their work."""
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
    """Yield where a time did not follow its counts, without a profile."""
    return tuple(
        Explanation(benchmark=one.benchmark, section=None, findings=(one.sentence,))
        for one in disagreements(comparisons, exact)
    )


def _is_known(count: ExactComparison) -> bool:
    return count.metric.exact and count.base is not None and count.head is not None


def _disagreement(
    one: Comparison, estimate: Estimate, counts: Mapping[str, ExactComparison]
) -> Disagreement | None:
    # Where there is nothing of a kind on base, as of operators in plain Python, it explains no time.
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
    cause = f"the machine, a library, the cache{unseen}" if unseen else "the machine, a library or the cache"
    text = f"as many {noun} as before, {_change(estimate)}: {cause}"
    return Disagreement(benchmark=one.benchmark.name, sentence=text, same_counts=True)


def _of_less_work(one: Comparison, estimate: Estimate, count: ExactComparison) -> Disagreement | None:
    if one.verdict == "REGRESSED":
        text = f"{_share_of(count)}, yet {_change(estimate)}: each takes longer, or something else does"
        return Disagreement(benchmark=one.benchmark.name, sentence=text)
    if one.verdict == "UNCHANGED" and estimate.low > _half_way(count):
        text = f"{_share_of(count)}, the same time: the time is spent elsewhere"
        return Disagreement(benchmark=one.benchmark.name, sentence=text, elsewhere=True)
    return None


def _of_more_work(one: Comparison, estimate: Estimate, count: ExactComparison) -> Disagreement | None:
    if one.verdict == "IMPROVED":
        text = f"{_share_of(count)}, yet {_change(estimate)}: each takes less time, or something else does"
        return Disagreement(benchmark=one.benchmark.name, sentence=text)
    if one.verdict == "UNCHANGED" and estimate.high < _half_way(count):
        text = f"{_share_of(count)}, the same time: what was added takes too little to show"
        return Disagreement(benchmark=one.benchmark.name, sentence=text)
    return None


def _change(estimate: Estimate) -> str:
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
    return count.ratio or 0.0


def _is_same(count: ExactComparison) -> bool:
    return count.base == count.head or (count.ratio is not None and abs(count.ratio - 1) <= _SAME)
