"""Names and titles of counters, and counts as they stand in rows of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfkit.agent.counters.model import INSTRUCTIONS, KEPT, PEAK_MEMORY, TRACKED, UNITS, Count, Counts
from perfkit.model import COLD_START, Benchmark, Metric, Outcome, Row
from perfkit.model.comparisons import ExactComparison

SYNCS = "syncs"
GRAPHS = "graphs"
# What torch.compile has to do again, which never repeats where each call does.
COMPILED = (GRAPHS, "recompiles")
# Titles of the counts whose names alone are not clear.
TITLES: Mapping[str, str] = {
    "operators": "operators dispatched",
    SYNCS: "host-device syncs",
    "allowed_syncs": "syncs marked as allowed",
    "allocated": "bytes allocated",
    "peak": "peak live bytes",
    "saved": "bytes saved for backward",
    "flops": "floating-point operations",
    "to_device": "bytes to the device",
    "to_host": "bytes to the host",
    "kernels": "kernel launches",
    "python_calls": "Python function calls",
    "python_peak": "peak bytes of Python objects",
    "resident": "peak resident bytes of a call",
    KEPT: "bytes kept after a call",
    "graph_breaks": "graph breaks",
    GRAPHS: "compiled graphs",
    "recompiles": "recompiled functions",
    COLD_START.name: "first call",
    "import_time": "time to import",
    "peak_resident": "peak resident memory",
}
# What the time to import stands under, as it is of no one benchmark.
IMPORTS = "imports of the benchmarks"
# What is measured in pairs of processes beside the times, and by how much more is never too much.
IMPORT_TIME, PEAK_RESIDENT = "import_time", "peak_resident"
FLOORS: Mapping[str, float] = {IMPORT_TIME: 0.05, PEAK_RESIDENT: float(16 << 20)}
# What can be counted, as rows and reports name it.
COUNTS = (*UNITS, PEAK_RESIDENT, IMPORT_TIME)
# What benchmarks measure instead of a time.
NUMBERS = frozenset({PEAK_MEMORY, TRACKED})
# A count that is not exact is reported if it moves by more than this share, and one of bytes by this many.
_NEWS = 0.05
_FEW_BYTES = 16 << 20
# A process's resident memory grows by pages and by what its allocator asks for at once.
_RESIDENT, _ALLOCATED_AT_ONCE = "resident", 1 << 20
# Where things lie in memory changes the number of instructions a little: two turns of a side may differ by
# the first share, and a difference between two commits is reported above the second.
_SPREAD_OF_INSTRUCTIONS = 0.005
NEWS_OF_INSTRUCTIONS = 0.001


def repeated(count: Count) -> bool:
    """Return whether a count repeated: to the digit, or for instructions within half a percent.

    What each call keeps need not, as texts have various lengths: its least value on head decides.
    """
    if count.metric == KEPT:
        return len(count.values) > 1
    if count.metric != INSTRUCTIONS or len(count.values) < 2:  # noqa: PLR2004 (one alone repeats nothing)
        return count.exact
    return max(count.values) <= min(count.values) * (1 + _SPREAD_OF_INSTRUCTIONS)


def is_trifle(metric: str, base: float, head: float) -> bool:
    """Return whether a difference between two counts is one that identical code may have."""
    return metric == _RESIDENT and abs(head - base) < _ALLOCATED_AT_ONCE


def moved_counts(comparisons: Sequence[ExactComparison]) -> list[ExactComparison]:
    """Return the counts that are not the same on both sides, those that decide first."""
    known = (one for one in comparisons if one.base is not None and one.head is not None)
    moved = [one for one in known if one.base != one.head and _is_news(one)]
    return sorted(moved, key=lambda one: (not one.gating, one.verdict != "REGRESSED"))


def _is_news(one: ExactComparison) -> bool:
    if one.metric.name == KEPT or one.metric.name in FLOORS:
        return one.verdict in ("REGRESSED", "IMPROVED")
    if is_trifle(one.metric.name, one.base or 0.0, one.head or 0.0):
        return False
    if one.metric.name in NUMBERS:
        return one.verdict != "UNCHANGED" or one.metric.exact
    if not one.metric.exact:
        moved = abs((one.head or 0.0) - (one.base or 0.0))
        few = one.metric.unit == "B" and moved < _FEW_BYTES
        return not few and (one.ratio is None or abs(one.ratio - 1) > max(one.margin, _NEWS))
    return one.metric.name != INSTRUCTIONS or one.ratio is None or abs(one.ratio - 1) > NEWS_OF_INSTRUCTIONS


_MOST_CAUSES = 40
# The message of a row without a count begins with this.
NOT_COUNTED = "not counted: "


def counts_of(rows: Sequence[Row]) -> Counts:
    """Return the counts in rows of one benchmark; where two rows have one metric, the last one holds."""
    latest = {row.outcome.metric.name: row for row in rows}
    found = {name: count_of(row) for name, row in latest.items()}
    return Counts(
        training=any(row.outcome.training for row in latest.values()),
        counts=tuple(count for count in found.values() if count is not None),
        not_counted={
            name: (latest[name].outcome.message or "").removeprefix(NOT_COUNTED)
            for name, count in found.items()
            if count is None
        },
    )


def is_count(row: Row) -> bool:
    """Return whether a row holds a count, or the reason why there is none."""
    return row.outcome.causes is not None


def count_of(row: Row) -> Count | None:
    """Return the count that a row holds; None if it holds the reason why there is none."""
    if not row.outcome.values:
        return None
    return Count(
        metric=row.outcome.metric.name,
        unit=row.outcome.metric.unit,
        values=row.outcome.values,
        causes=row.outcome.causes or (),
    )


def count_outcomes(benchmark: Benchmark, counts: Counts) -> Iterator[Outcome]:
    """Yield the counts that rows hold, each with its largest causes, or the reason where one was not made."""
    for count in counts.counts:
        metric = Metric(name=count.metric, unit=count.unit, exact=repeated(count))
        yield Outcome(
            benchmark=benchmark,
            metric=metric,
            loops=1,
            values=count.values,
            causes=count.causes[:_MOST_CAUSES],
            training=counts.training,
        )
    for name, why in counts.not_counted.items():
        yield Outcome(
            benchmark=benchmark,
            metric=Metric(name=name, unit="1"),
            status="skipped",
            message=f"{NOT_COUNTED}{why}",
            causes=(),
            training=counts.training,
        )
