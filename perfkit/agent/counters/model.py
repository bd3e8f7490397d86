"""Counts, their causes in the code, and the reasons why metrics were not counted."""

from __future__ import annotations

import dataclasses
import linecache
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

# A source is the name of what is counted, and its place in the code.
Source = tuple[str, str]
Amounts = Counter[Source]
_MOST_CAUSES = 100
# The counters and their units. docs/architecture.md lists what else a new one needs.
OF_TENSORS = ("operators", "syncs", "allowed_syncs", "allocated", "peak", "saved", "flops")
OF_DEVICES = ("to_device", "to_host")
INSTRUCTIONS = "instructions"
KEPT = "kept"
# What a call keeps is looked for in about so many CPU seconds at most.
MOST_KEPT_S = 4.0
UNITS: Mapping[str, str] = {
    **dict.fromkeys(("operators", "syncs", "allowed_syncs"), "1"),
    **dict.fromkeys(("allocated", "peak", "saved", *OF_DEVICES), "B"),
    "flops": "FLOP",
    **dict.fromkeys(("python_calls", "kernels", "graphs", "graph_breaks", "recompiles"), "1"),
    **dict.fromkeys(("python_peak", "resident", KEPT), "B"),
    INSTRUCTIONS: INSTRUCTIONS,
}
# Why operators are not counted where a benchmark uses no torch.
NO_TORCH = "torch is not used"
# What benchmarks of asv suites measure instead of a time, which need not repeat.
PEAK_MEMORY, TRACKED = "peak memory", "tracked value"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A part of a count: what it is, such as "aten::mm", and the own line or function that it comes from.

    ``place`` is "" where no own line is on the stack; ``text`` is the text of the line, which identifies it
    where its number has changed.
    """

    what: str
    place: str
    amount: float
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Count:
    """A metric's value in each counted iteration, and the causes of the last one, largest first."""

    metric: str
    unit: str
    values: tuple[float, ...]
    causes: tuple[Cause, ...]

    @property
    def exact(self) -> bool:
        """Whether the count repeated to the digit, in two or more iterations."""
        return len(self.values) > 1 and len(set(self.values)) == 1


@dataclass(frozen=True, kw_only=True)
class Counts:
    """All counts, and by metric the reasons why others were not made.

    ``training`` means that a backward pass and an optimizer's step were counted too. ``losses`` are
    what a training loop went backward from, each with its type.
    """

    counts: tuple[Count, ...]
    not_counted: Mapping[str, str]
    training: bool = False
    losses: tuple[tuple[str, float], ...] = ()


def count_of(metric: str, found: Sequence[Amounts] | Sequence[float]) -> Count:
    """Return a counter's values by iteration; given amounts by source, with the causes of the last one."""
    sums = [sum(one.values()) if isinstance(one, Counter) else one for one in found]
    causes = causes_of(found[-1]) if isinstance(found[-1], Counter) else ()
    return Count(metric=metric, unit=UNITS[metric], values=tuple(map(float, sums)), causes=causes)


def joined_counts(one: Counts, other: Counts) -> Counts:
    """Return the counts of one process with the values that another process counted as well."""
    values = {count.metric: count.values for count in other.counts}
    return replace(
        one,
        counts=tuple(
            replace(count, values=(*count.values, *values.get(count.metric, ()))) for count in one.counts
        ),
    )


def as_message(counts: Counts) -> dict[str, object]:
    """Return counts as data that JSON can hold."""
    return dataclasses.asdict(counts)


def causes_of(amounts: Mapping[Source, float]) -> tuple[Cause, ...]:
    """Return the causes of an amount, largest first; equal ones by name, so that the order repeats."""
    largest = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        Cause(what=what, place=place, amount=float(amount))
        for (what, place), amount in largest[:_MOST_CAUSES]
        if amount
    )


def with_texts(counts: Counts, root: Path) -> Counts:
    """Return counts whose causes have the text of their lines."""
    return replace(
        counts,
        counts=tuple(
            replace(count, causes=tuple(_with_text(cause, root) for cause in count.causes))
            for count in counts.counts
        ),
    )


def _with_text(cause: Cause, root: Path) -> Cause:
    file, _, line = cause.place.rpartition(":")
    if not file or not line.isdigit():
        return cause
    return replace(cause, text=linecache.getline(str(root / file), int(line)).strip())
