"""Shows the counters of a gate; those of one benchmark's parameters that moved alike are one entry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from perfkit.agent.counters.model import INSTRUCTIONS
from perfkit.model import COLD_START
from perfkit.model.comparisons import ExactComparison, MovedCause
from perfkit.model.counters import FLOORS, NEWS_OF_INSTRUCTIONS, NUMBERS, TITLES, moved_counts
from perfkit.report.gate.wording import decides, shown
from perfkit.report.markdown_table import cell_code, code, collapsed, escape, table_head, table_row
from perfkit.report.names import (
    WHOLE_COLUMNS,
    BrokenName,
    Folded,
    NamedTable,
    columns_table,
    fitted,
    short_names,
)
from perfkit.units import amount_text, counted, human_percent, signed_amount

_MOST_CAUSES, _MOST_CAUSES_OF_ALL = 3, 6
_MOST_NAMES = 4
_MOST_LETTERS = 60
# A name has at least this many columns, however long the cause before it is.
_LEAST_NAMES = 24
# From this ratio on a factor is easier to read than percent.
_LARGE_RATIO = 3
_HEADINGS = ("Benchmark", "Count", "Base", "Head", "Moved", "Verdict")


@dataclass(frozen=True, kw_only=True)
class _Entry:
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

    @property
    def blocks(self) -> bool:
        """Whether it keeps the gate from passing."""
        return self.first.verdict == "REGRESSED" and decides(self.first)

    @property
    def more(self) -> str:
        """How many benchmarks moved like the one that is named: " and 3 more like it"."""
        return f" and {len(self.counts) - 1} more like it" if len(self.counts) > 1 else ""

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Base, head, by how much it moved, and the verdict."""
        unit = self.first.metric.unit
        base, head = (amount_text(amount, unit) for amount in (self.first.base, self.first.head))
        return base, head, _moved_text(self.counts), _verdict_word(self.first)


def counter_sections(exact: Sequence[ExactComparison]) -> Iterator[RenderableType]:
    """Yield a table of the counts that moved, their causes, and remarks on all other counts."""
    if not exact:
        return
    names, entries = _names(exact), _entries(moved_counts(exact))
    if entries:
        yield _table(entries, names)
        causes, more = _causes_behind(entries, names)
        if causes:
            yield Group(Text("behind them", style="bold"), *_cause_lines(causes, more))
    yield Text("\n".join(_remarks(exact)), style="dim")


def moved_lines(exact: Sequence[ExactComparison]) -> Iterator[str]:
    """Yield a line for each count that moved, those that fail first, and for what was lost."""
    names, moved = _names(exact), (one for one in moved_counts(exact) if one.verdict != "UNCHANGED")
    entries = sorted(_entries(moved), key=lambda entry: not entry.blocks)
    yield from _attention(exact, names)
    failing = sum(entry.blocks for entry in entries)
    most = max(failing, _MOST_CAUSES)
    for entry in entries[:most]:
        base, head, _, word = entry.cells
        plainly = "" if entry.blocks else f" ({word})"
        name = f"{names[entry.first.benchmark.name]}{entry.more}"
        yield f"{name}: {count_title(entry.first)} from {base} to {head}{_by(entry.first.causes)}{plainly}"
    if more := entries[most:]:
        yield f"and {counted(len(more), 'other count')} that moved, none of which fails"


def _by(causes: Sequence[MovedCause]) -> str:
    """Return a move's largest cause, with the next one if it did half as much: ", by a and b (x.py:3)"."""
    large = [
        one for one in causes[:2] if 2 * abs(one.head - one.base) >= abs(causes[0].head - causes[0].base)
    ]
    by_place: dict[str, list[str]] = {}
    for one in large:
        by_place.setdefault(one.place, []).append(_short(one.what))
    parts = [f"{' and '.join(what)}{f' ({place})' if place else ''}" for place, what in by_place.items()]
    return f", by {' and '.join(parts)}" if parts else ""


def counters_markdown(exact: Sequence[ExactComparison]) -> str:
    """Return the same for a comment; what fails nothing is folded."""
    if not exact:
        return ""
    names, entries = _names(exact), _entries(moved_counts(exact))
    causes, more = _causes_behind(entries, names)
    rows = [*table_head(_HEADINGS), *(_entry_row(entry, names) for entry in entries)] if entries else []
    called = "\n".join(
        f"- {escape(what)}{f', {code(place)}' if place else ''}: {escape(counts)}"
        for what, place, counts in causes
    )
    left = f"{_more_causes(more)}." if more else ""
    causes_text = "\n\n".join(filter(None, (called, left)))
    rest = "\n".join(f"- {escape(line)}" for line in _remarks(exact))
    parts = (
        "Counts of what a call does, which no noise changes:" if rows else "",
        "\n".join(rows),
        collapsed("What was called more or less often, and where", causes_text) if called else "",
        collapsed("The other counts", rest) if rows else rest,
    )
    text = "\n\n".join(part for part in parts if part)
    # What decides stands open, and so does what a person has to do something about.
    if any(entry.blocks for entry in entries) or any(map(_is_missing, exact)):
        return text
    number = f"{counted(len(entries), 'kind')} moved" if entries else "none moved"
    return collapsed(f"Counts of what a call does: {number}, none fails", text)


def count_title(one: ExactComparison) -> str:
    """Return the words for a count."""
    return TITLES.get(one.metric.name, one.metric.name)


def _entries(moved: Iterable[ExactComparison]) -> list[_Entry]:
    """Return the counts that moved, those of one benchmark next to each other, the first to decide first."""
    found: dict[tuple[object, ...], list[ExactComparison]] = defaultdict(list)
    for one in moved:
        stem = one.benchmark.name.partition("[")[0]
        grew = (one.head or 0.0) > (one.base or 0.0)
        found[stem, one.metric.name, _verdict_word(one), grew].append(one)
    entries = [_Entry(counts=tuple(counts)) for counts in found.values()]
    benchmarks = [entry.benchmarks for entry in entries]
    return sorted(entries, key=lambda entry: benchmarks.index(entry.benchmarks))


def _table(entries: Sequence[_Entry], names: Mapping[str, str]) -> NamedTable:
    table = columns_table("counts that moved", numbers=("base", "head", "moved"), boxed=False)
    table.add_column("", no_wrap=True)
    last: tuple[str, ...] = ()
    for entry in entries:
        if entry.benchmarks != last:
            table.add_row(BrokenName(f"{names[entry.first.benchmark.name]}{entry.more}"), "", "", "", "")
        last = entry.benchmarks
        *amounts, word = entry.cells
        style = "bold red" if entry.blocks else "dim"
        table.add_row(Text(f"  {count_title(entry.first)}", style="cyan"), *amounts, Text(word, style=style))
    return table


def _cause_lines(causes: Sequence[tuple[str, str, str]], more: int) -> Iterator[RenderableType]:
    for what, place, counts in causes:
        room = max(WHOLE_COLUMNS - len(what) - 10, _LEAST_NAMES)
        where = f", from {fitted(place, room)}" if place else ""
        yield Padding(Folded(f"{what}{where}: {counts}", room_beside=2, style="dim"), (0, 0, 0, 2))
    if more:
        yield Text(f"  {_more_causes(more)}", style="dim")


def _entry_row(entry: _Entry, names: Mapping[str, str]) -> str:
    base, head, moved, word = entry.cells
    return table_row(
        [
            cell_code(names[entry.first.benchmark.name]) + entry.more,
            escape(count_title(entry.first)),
            base,
            head,
            moved,
            f"**{word}**" if word == "REGRESSED" else word,
        ]
    )


def _causes_behind(
    entries: Sequence[_Entry], names: Mapping[str, str]
) -> tuple[list[tuple[str, str, str]], int]:
    """Return causes with place and moved counts, and how many are left out; blocking counts come first."""
    several = len({entry.benchmarks for entry in entries}) > 1
    found: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for entry, cause in _causes(entries):
        whose = f"{names[entry.first.benchmark.name]} " if several else ""
        moved = signed_amount(cause.head - cause.base, entry.first.metric.unit)
        found[cause.what, cause.place][whose].append(f"{count_title(entry.first)} {moved}")
    needed = {
        (cause.what, cause.place) for entry in entries if entry.blocks for cause in entry.first.causes[:1]
    }
    causes = [
        (_short(what), place, "; ".join(f"{whose}{', '.join(moved)}" for whose, moved in counts.items()))
        for (what, place), counts in found.items()
    ]
    # A line about one more cause would be as long as the cause itself.
    shown = max(len(needed), _MOST_CAUSES_OF_ALL + (len(causes) == _MOST_CAUSES_OF_ALL + 1))
    return causes[:shown], max(len(causes) - shown, 0)


def _causes(entries: Sequence[_Entry]) -> Iterator[tuple[_Entry, MovedCause]]:
    """Yield the largest cause of each count, blocking counts first; then each second largest, and so on."""
    in_order = sorted(entries, key=lambda entry: not entry.blocks)
    for rank in range(_MOST_CAUSES):
        yield from ((entry, cause) for entry in in_order for cause in entry.first.causes[rank : rank + 1])


def _verdict_word(one: ExactComparison) -> str:
    """Return the verdict on a count that moved, or the word for a count that cannot decide."""
    if one.accepted is not None:
        return "accepted"
    if one.verdict == "REGRESSED":
        return shown(one.verdict) if one.gating else "allowed to grow"
    return (
        shown(one.verdict) if one.metric.exact or one.metric.name in NUMBERS else "not exact, allowed to grow"
    )


def _moved_text(counts: Sequence[ExactComparison]) -> str:
    """Return by how much a count moved: "+2 (+10.0 %)", or the range where benchmarks differ."""
    ratios = sorted(one.ratio for one in counts if one.ratio is not None)
    if ratios and (least := _change(ratios[0], ratios[-1])) != (most := _change(ratios[-1], ratios[-1])):
        return f"{least.removesuffix(' %')} to {most}"
    one = counts[0]
    moved = signed_amount((one.head or 0.0) - (one.base or 0.0), one.metric.unit)
    change = "" if one.ratio is None else _change(one.ratio, one.ratio)
    return f"{moved} ({change})" if change.strip("+-0. %") else moved


def _change(ratio: float, largest: float) -> str:
    return f"×{ratio:.3g}" if largest >= _LARGE_RATIO else f"{100 * (ratio - 1):+.1f} %"


def _short(what: str) -> str:
    """Return a name, or the beginning and the end of a C++ name that is too long to be read."""
    half = _MOST_LETTERS // 2
    return what if len(what) <= _MOST_LETTERS else f"{what[:half]} … {what[-half:]}"


def _more_causes(count: int) -> str:
    return f"and {counted(count, 'cause')} more: --json has them all"


def _remarks(exact: Sequence[ExactComparison]) -> Iterator[str]:
    """Yield what is to be known of the counts that are not in the table."""
    names = _names(exact)
    digits = [one for one in exact if one.metric.name not in (INSTRUCTIONS, COLD_START.name, *FLOORS)]
    if digits:
        alike = sum(one.base == one.head and one.base is not None for one in digits)
        lacking = sum(one.base is None or one.head is None for one in digits)
        others = f", {lacking} not counted on both sides" if lacking else ""
        yield f"{counted(alike, 'count')} of {len(digits)} the same to the digit on both sides{others}"
    yield from _moved_by_little(digits, names)
    yield from _within_floors(exact)
    # No two processes run the same instructions to the digit.
    near = [one for one in exact if one.metric.name == INSTRUCTIONS]
    if near:
        alike = sum(one.metric.exact and one.ratio is not None and not moved_counts([one]) for one in near)
        share = human_percent(NEWS_OF_INSTRUCTIONS)
        yield f"instructions of {counted(alike, 'benchmark')} of {len(near)} the same within {share}"
    yield from _attention(exact, names)
    reasons: dict[str, list[ExactComparison]] = defaultdict(list)
    for one in exact:
        if (one.base is None or one.head is None) and not _is_missing(one):
            reasons[one.message or "not counted"].append(one)
    for one in exact:
        if one.accepted is not None:
            reasons[f"accepted: {one.accepted}"].append(one)
    yield from (f"{_listed(found, names)}: {reason}" for reason, found in reasons.items())


def _attention(exact: Sequence[ExactComparison], names: Mapping[str, str]) -> Iterator[str]:
    """Yield what could not be counted on head alone, and what is to be known of other numbers."""
    lost: dict[tuple[str, str], list[str]] = {}
    for one in filter(_is_missing, exact):
        title = f"{count_title(one)} (base: {amount_text(one.base, one.metric.unit)})"
        lost.setdefault((names[one.benchmark.name], one.message or ""), []).append(title)
    yield from (f"MISSING {name}: {', '.join(titles)}: {why}" for (name, why), titles in lost.items())
    for one in exact:
        if one.metric.name in NUMBERS and one.verdict != "UNCHANGED" and one.message and one.head is not None:
            yield f"{shown(one.verdict)} {names[one.benchmark.name]}: {count_title(one)} {one.message}"


def _within_floors(exact: Sequence[ExactComparison]) -> Iterator[str]:
    """Yield a line for each metric with a floor, on what moved most of what may pass."""
    for metric, floor in FLOORS.items():
        same = [one for one in exact if one.metric.name == metric and one.verdict == "UNCHANGED"]
        if not same:
            continue
        most = max(same, key=lambda one: abs((one.head or 0.0) - (one.base or 0.0)))
        # It is larger beside a gain in time, or as configured.
        allowed = max(floor, most.margin * (most.base or 0.0))
        base, head, limit = (
            amount_text(amount, most.metric.unit) for amount in (most.base, most.head, allowed)
        )
        several = f" of {counted(len(same), 'benchmark')}" if len(same) > 1 else ""
        sides = f"at most {base} on base, {head} on head"
        yield f"{count_title(most)}{several}: {sides}, where up to {limit} more passes"


def _listed(found: Sequence[ExactComparison], names: Mapping[str, str]) -> str:
    """Return the names of counts; of many their benchmarks, and of many benchmarks the number."""
    if len(found) <= _MOST_NAMES:
        return ", ".join(f"{names[one.benchmark.name]} {count_title(one)}" for one in found)
    benchmarks = list(dict.fromkeys(names[one.benchmark.name] for one in found))
    whose = ", ".join(benchmarks) if len(benchmarks) <= _MOST_NAMES else f"{len(benchmarks)} benchmarks"
    return f"{counted(len(found), 'count')} of {whose}"


def _is_missing(one: ExactComparison) -> bool:
    return one.verdict == "MISSING" and decides(one)


def _moved_by_little(exact: Sequence[ExactComparison], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the counts that differ between the sides by too little to be in the table."""
    both = [one for one in exact if one.base is not None and one.head is not None and one.base != one.head]
    shown = {(one.benchmark.name, one.metric.name) for one in moved_counts(both)}
    found = [one for one in both if (one.benchmark.name, one.metric.name) not in shown]
    if not found:
        return
    amounts = (amount_text(amount, found[0].metric.unit) for amount in (found[0].base, found[0].head))
    numbers = f" ({', '.join(amounts)})" if len(found) == 1 else ""
    yield f"{_listed(found, names)}{numbers}: not exact, and moved by too little to mean anything"


def _names(exact: Sequence[ExactComparison]) -> Mapping[str, str]:
    return short_names(one.benchmark.name for one in exact)
