"""Folds counts that moved alike into one entry, and tells each cause behind them once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfkit.model.comparisons import ExactComparison, MovedCause
from perfkit.model.counters import NUMBERS, TITLES
from perfkit.report.counts import signed_amount
from perfkit.report.gate.wording import decides
from perfkit.units import counted

_MOST_CAUSES = 3
_MOST_CAUSES_OF_ALL = 6
_MOST_LETTERS = 60
# From this ratio on a factor is easier to read than percent.
_LARGE_RATIO = 3


@dataclass(frozen=True, kw_only=True)
class Alike:
    """One count of benchmarks that differ only in their parameters, and in which it moved the same way."""

    counts: tuple[ExactComparison, ...]

    @property
    def first(self) -> ExactComparison:
        """The count whose numbers are shown."""
        return self.counts[0]

    @property
    def benchmarks(self) -> tuple[str, ...]:
        """The node ids of the benchmarks."""
        return tuple(one.benchmark.name for one in self.counts)


@dataclass(frozen=True, kw_only=True)
class Behind:
    """A cause, and the counts that it moved."""

    what: str
    place: str
    counts: str


def folded(moved: Iterable[ExactComparison]) -> list[Alike]:
    """Return the counts that moved, those of one benchmark next to each other, the first to decide first."""
    found: dict[tuple[object, ...], list[ExactComparison]] = defaultdict(list)
    for one in moved:
        stem = one.benchmark.name.partition("[")[0]
        grew = (one.head or 0.0) > (one.base or 0.0)
        found[stem, one.metric.name, verdict_word(one), grew].append(one)
    entries = [Alike(counts=tuple(counts)) for counts in found.values()]
    places = {benchmarks: place for place, benchmarks in reversed([*enumerate(_benchmarks(entries))])}
    return sorted(entries, key=lambda entry: places[entry.benchmarks])


def _benchmarks(entries: Iterable[Alike]) -> list[tuple[str, ...]]:
    return [entry.benchmarks for entry in entries]


def entry_name(entry: Alike, names: Mapping[str, str]) -> str:
    """Return the benchmark whose numbers are shown, and how many more moved alike."""
    return f"{names[entry.first.benchmark.name]}{more_alike(entry)}"


def more_alike(entry: Alike) -> str:
    """Return how many benchmarks moved like the one that is named: " and 3 more like it"."""
    more = len(entry.counts) - 1
    return f" and {more} more like it" if more else ""


def causes_behind(entries: Sequence[Alike], names: Mapping[str, str]) -> tuple[list[Behind], int]:
    """Return the causes of counts that moved, each once, and how many more there are.

    Each count that blocks has the cause that moved it most told; what room is left goes to the others. Counts
    are named with their benchmark where there are several of them.
    """
    several = len({entry.benchmarks for entry in entries}) > 1
    found: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry, cause in _causes(entries):
        whose = names[entry.first.benchmark.name] if several else ""
        moved = signed_amount(cause.head - cause.base, entry.first.metric.unit)
        found[cause.what, cause.place][whose].append(f"{count_title(entry.first)} {moved}")
    needed = {
        (cause.what, cause.place) for entry in entries if blocks(entry) for cause in entry.first.causes[:1]
    }
    causes = [
        Behind(what=short_cause(what), place=place, counts=_of_each(counts))
        for (what, place), counts in found.items()
    ]
    told = max(len(needed), _MOST_CAUSES_OF_ALL)
    return causes[:told], max(len(causes) - told, 0)


def _causes(entries: Sequence[Alike]) -> Iterator[tuple[Alike, MovedCause]]:
    """Yield the largest cause of each count, blocking counts first; then each second largest, and so on."""
    in_order = sorted(entries, key=lambda entry: not blocks(entry))
    for rank in range(_MOST_CAUSES):
        yield from ((entry, cause) for entry in in_order for cause in entry.first.causes[rank : rank + 1])


def _of_each(counts: Mapping[str, Sequence[str]]) -> str:
    """Return the counts that a cause moved, those of each benchmark after its name."""
    return "; ".join(f"{whose} {', '.join(found)}".strip() for whose, found in counts.items())


def count_title(one: ExactComparison) -> str:
    """Return the words for a count."""
    return TITLES.get(one.metric.name, one.metric.name)


def verdict_word(one: ExactComparison) -> str:
    """Return the verdict on a count that moved, or the word for a count that cannot decide."""
    if one.accepted is not None:
        return "accepted"
    if not one.metric.exact and one.metric.name not in NUMBERS:
        return "not exact"
    if one.verdict == "REGRESSED" and not one.gating:
        return "informs"
    return one.verdict


def blocks(entry: Alike) -> bool:
    """Tell whether a count that moved keeps the gate from passing."""
    return entry.first.verdict == "REGRESSED" and decides(entry.first)


def moved_text(entry: Alike) -> str:
    """Return by how much a count moved: "+2 (+10.0 %)", or the range where benchmarks differ."""
    ratios = sorted(one.ratio for one in entry.counts if one.ratio is not None)
    if ratios and (least := _change(ratios[0], ratios[-1])) != (most := _change(ratios[-1], ratios[-1])):
        return f"{least.removesuffix(' %')} to {most}"
    one = entry.first
    moved = signed_amount((one.head or 0.0) - (one.base or 0.0), one.metric.unit)
    return moved if one.ratio is None else f"{moved} ({_change(one.ratio, one.ratio)})"


def _change(ratio: float, largest: float) -> str:
    return f"×{ratio:.3g}" if largest >= _LARGE_RATIO else f"{100 * (ratio - 1):+.1f} %"


def short_cause(what: str) -> str:
    """Return a name, or the beginning and the end of a C++ name that is too long to be read."""
    half = _MOST_LETTERS // 2
    return what if len(what) <= _MOST_LETTERS else f"{what[:half]} … {what[-half:]}"


def more_causes(count: int) -> str:
    """Return how many causes are not told and where they are."""
    return f"and {counted(count, 'cause')} more: --json has them all"
