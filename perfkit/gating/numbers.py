"""Numbers that benchmarks measure instead of times, such as peak memory: one in each launch of each side."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from perfkit.gating.counts import CountedPair, Tally
from perfkit.gating.exact import compare_count, numbers_that_decide
from perfkit.gating.missing_files import Mend, mend_nothing
from perfkit.gating.sequential import ComparedBenchmark, prove_code
from perfkit.gating.survey import finding_on, finding_on_failure
from perfkit.model import SIDES, Side
from perfkit.model.counting import TRACKED, Count, Counts
from perfkit.runner.lockstep.counted import count_benchmarks
from perfkit.runner.lockstep.launch import Failure
from perfkit.runner.lockstep.launcher import Launcher

# Two launches show whether a tracked value repeats.
_TO_REPEAT = 2


def measure_numbers(
    benchmarks: Sequence[ComparedBenchmark],
    launcher: Launcher,
    *,
    error: float,
    has_time: Callable[[], bool],
    log: Callable[[str], None],
    base_own: Collection[str] | None = None,
    mend: Mend = mend_nothing,
) -> Tally:
    """Measure each number on both sides at once, in launches of its own, until it is decided.

    A tracked value that repeats to the digit in two launches and is alike on both sides is; any other number
    has as many as tell the sides apart with ``error``, and is not judged where there is no time for these.
    ``base_own`` are the benchmarks that base has without head's files, None where both sides have all. What
    ``mend`` has done something about is measured again.

    Raises:
        NotMeasuredError: a side imported other code than its own.
    """
    known = {one.benchmark.name: one for one in benchmarks}
    values: dict[Side, dict[str, Count]] = {side: {} for side in SIDES}
    failed: dict[str, Failure] = {}
    loaded: set[str] = set()
    most = numbers_that_decide(error)
    for launch in range(most):
        wanted = [name for name in known if name not in failed and not _is_decided(known[name], values)]
        if not wanted or (launch >= _TO_REPEAT and not has_time()):
            break
        count = functools.partial(
            count_benchmarks, launcher, wanted, limit_s=lambda node: known[node].limit_s, on_benchmark=log
        )
        found = count()
        while mend(found.failures):
            found = count()
        prove_code(found.reports)
        loaded.update(file for report in found.reports.values() for file in report.loaded)
        failed |= {failure.node: failure for failure in reversed(found.failures)}
        for side in SIDES:
            for name, counts in found.counts[side].items():
                values[side][name] = _joined(values[side].get(name), counts)
    measured = [name for name in known if name not in failed]
    enough = [
        name for name in measured if _is_decided(known[name], values) or _launches(name, values) == most
    ]
    return Tally(
        pairs=tuple(_pair(known[name], values) for name in enough),
        findings=(
            *(
                finding_on_failure(known[name], failure, base_own=base_own)
                for name, failure in failed.items()
            ),
            *(
                finding_on(
                    known[name], "NOT REACHED", f"{_launches(name, values)} of the {most} launches it needs"
                )
                for name in measured
                if name not in enough
            ),
        ),
        loaded=frozenset(loaded),
    )


def _joined(before: Count | None, counts: Counts) -> Count:
    (count,) = counts.counts
    return count if before is None else replace(count, values=(*before.values, *count.values))


def _is_decided(one: ComparedBenchmark, values: Mapping[Side, Mapping[str, Count]]) -> bool:
    """Tell whether a tracked value has repeated on both sides and is alike within the margin.

    Two values that repeat in two launches differ by chance in one of eight comparisons, where each is one of
    two by a coin.
    """
    base, head = (values[side].get(one.benchmark.name) for side in SIDES)
    if base is None or head is None or not (base.metric == TRACKED and base.exact and head.exact):
        return False
    found = compare_count(one.benchmark, base, head, margin=one.margin, gating=one.gating)
    return found.verdict == "UNCHANGED"


def _launches(name: str, values: Mapping[Side, Mapping[str, Count]]) -> int:
    return min(len(values[side][name].values) if name in values[side] else 0 for side in SIDES)


def _pair(one: ComparedBenchmark, values: Mapping[Side, Mapping[str, Count]]) -> CountedPair:
    name = one.benchmark.name
    return CountedPair(
        benchmark=one.benchmark,
        counts={side: Counts(counts=(values[side][name],), not_counted={}) for side in SIDES},
        training=False,
        gating=one.gating,
        margin=one.margin,
    )
