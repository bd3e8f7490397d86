"""Shows the counters of a gate: those that moved, with their causes, and those that could not be counted."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from perfkit.model.comparisons import ExactComparison, MovedCause
from perfkit.model.counters import NEWS_OF_INSTRUCTIONS, NUMBERS, TITLES, moved_counts
from perfkit.model.counting import INSTRUCTIONS
from perfkit.report.counts import amount_text, signed_amount
from perfkit.report.gate.wording import decides
from perfkit.report.markdown_table import cell_code, code, collapsed, escape, table_head, table_row
from perfkit.report.names import fitted, short_names
from perfkit.units import counted, human_percent

_MOST_CAUSES = 3
_MOST_CAUSES_OF_ALL = 6
_MOST_LETTERS = 60
# From this ratio on a factor is easier to read than percent.
_LARGE_RATIO = 3
_MOST_CAUSES = 3
_MOST_NAMES = 4
_STYLES = {True: "bold red", False: "dim"}
_HEADINGS = ("Benchmark", "Count", "Base", "Head", "Moved", "Verdict")
_ALL_HEADINGS = (*_HEADINGS, "Behind it")
# In a comment a word alone has to do.
_PLAINLY = {"informs": "grew, fails nothing", "not exact": "not exact, fails nothing"}
_NUMBERS = ("base", "head", "moved", "")
# A name has at least so many columns, however wide the numbers beside it are.
_LEAST_NAMES = 24
# No line is folded at this space.
_UNBROKEN = "\N{NO-BREAK SPACE}"


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
    shown = max(len(needed), _MOST_CAUSES_OF_ALL)
    return causes[:shown], max(len(causes) - shown, 0)


def _causes(entries: Sequence[Alike]) -> Iterator[tuple[Alike, MovedCause]]:
    in_order = sorted(entries, key=lambda entry: not blocks(entry))
    for rank in range(_MOST_CAUSES):
        yield from ((entry, cause) for entry in in_order for cause in entry.first.causes[rank : rank + 1])


def _of_each(counts: Mapping[str, Sequence[str]]) -> str:
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


def counter_sections(exact: Sequence[ExactComparison]) -> Iterator[RenderableType]:
    """Yield a table of the counts that moved, their causes, and remarks on all other counts."""
    if not exact:
        return
    names, entries = _names(exact), folded(moved_counts(exact))
    if entries:
        yield _Moved(entries, names)
        causes, more = causes_behind(entries, names)
        if causes:
            yield _Causes(causes, more)
    yield Text("\n".join(_remarks(exact)), style="dim")


def counters_markdown(exact: Sequence[ExactComparison]) -> str:
    """Return the same for a comment, with a part that opens for every single count that moved."""
    if not exact:
        return ""
    moved, names = moved_counts(exact), _names(exact)
    entries = folded(moved)
    causes, more = causes_behind(entries, names)
    rows = [*table_head(_HEADINGS), *(_entry_row(entry, names) for entry in entries)] if entries else []
    listed = [*map(_cause_line, causes), *([f"- {more_causes(more)}"] if more else [])]
    remarks = "\n".join(f"- {escape(line)}" for line in _remarks(exact))
    parts = (
        "Counts of what a call does, which no noise changes:" if rows else "",
        "\n".join(rows),
        "\n".join(["What was called more or less often, and where:", "", *listed]) if listed else "",
        _all_counts(moved, names) if more or len(moved) > len(entries) else "",
        "Of all counts:" if listed else "",
        remarks,
    )
    text = "\n\n".join(part for part in parts if part)
    # What decides stands open, and so does what a person has to do something about.
    if any(map(blocks, entries)) or any(map(_is_missing, exact)):
        return text
    number = f"{counted(len(entries), 'kind')} moved" if entries else "none moved"
    return collapsed(f"Counts of what a call does: {number}, none fails", text)


def _entry_row(entry: Alike, names: Mapping[str, str]) -> str:
    base, head, moved, word = _numbers(entry)
    return table_row(
        [
            cell_code(names[entry.first.benchmark.name]) + more_alike(entry),
            escape(count_title(entry.first)),
            base,
            head,
            moved,
            f"**{word}**" if word == "REGRESSED" else _PLAINLY.get(word, word),
        ]
    )


def _cause_line(one: Behind) -> str:
    where = f", {code(one.place)}" if one.place else ""
    return f"- {escape(one.what)}{where}: {escape(one.counts)}"


def _all_counts(moved: Sequence[ExactComparison], names: Mapping[str, str]) -> str:
    """Return each count that moved with its own numbers and causes."""
    rows = (
        table_row(
            [
                cell_code(names[one.benchmark.name]),
                escape(count_title(one)),
                amount_text(one.base, one.metric.unit),
                amount_text(one.head, one.metric.unit),
                moved_text(Alike(counts=(one,))),
                verdict_word(one),
                "; ".join(escape(_cause_text(cause, one)) for cause in one.causes[:_MOST_CAUSES]),
            ]
        )
        for one in moved
    )
    return collapsed(
        f"{counted(len(moved), 'count')} that moved, one by one",
        "\n".join((*table_head(_ALL_HEADINGS), *rows)),
    )


def _cause_text(cause: MovedCause, one: ExactComparison) -> str:
    where = f", from {cause.place}" if cause.place else ""
    return f"{short_cause(cause.what)} {signed_amount(cause.head - cause.base, one.metric.unit)}{where}"


@dataclass(frozen=True)
class _Moved:
    """The table of counts that moved; names are shortened to the room that the numbers leave."""

    entries: Sequence[Alike]
    names: Mapping[str, str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [_numbers(entry) for entry in self.entries]
        widths = [max(map(cell_len, column)) for column in zip(_NUMBERS, *rows, strict=True)]
        room = max(options.max_width - sum(widths) - len(widths), _LEAST_NAMES)
        yield _line(Text("counts that moved", style="bold"), _NUMBERS, widths, room)
        together = itertools.groupby(zip(self.entries, rows, strict=True), key=lambda row: row[0].benchmarks)
        for _, found in together:
            entries = [*found]
            begin, one_line = entry_name(entries[0][0], self.names), len(entries) == 1
            if not one_line or cell_len(f"{begin}  {count_title(entries[0][0].first)}") > room:
                yield Text(fitted(begin, options.max_width))
                begin = ""
            for entry, numbers in entries:
                name = Text.assemble(f"{begin}  ", (count_title(entry.first), "cyan"))
                yield _line(name, numbers, widths, room, style=_STYLES[blocks(entry)])


def _numbers(entry: Alike) -> tuple[str, str, str, str]:
    unit = entry.first.metric.unit
    base, head = (amount_text(amount, unit) for amount in (entry.first.base, entry.first.head))
    return base, head, moved_text(entry), verdict_word(entry.first)


def _line(
    name: Text, numbers: tuple[str, str, str, str], widths: Sequence[int], room: int, *, style: str = ""
) -> Text:
    *amounts, word = numbers
    name.append(" " * (room - name.cell_len))
    for amount, width in zip(amounts, widths, strict=False):
        name.append(f" {amount:>{width}}")
    return name.append(f" {word}" if word else "", style=style)


@dataclass(frozen=True)
class _Causes:
    """The list of causes behind the counts that moved, each told once."""

    causes: Sequence[Behind]
    more: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("behind them", style="bold")
        width = options.max_width
        for one in self.causes:
            place = f", from {fitted(one.place, max(width - len(one.what) - 10, _LEAST_NAMES))}"
            yield Text(_wrapped(f"{one.what}{place if one.place else ''}:", one.counts, width), style="dim")
        if self.more:
            yield Text(f"  {more_causes(self.more)}", style="dim")


def _wrapped(cause: str, counts: str, width: int) -> str:
    """Return a cause with its counts, folded between counts."""
    unbroken = (one.replace(" ", _UNBROKEN) for one in re.split(r"(?<=[,;]) ", counts))
    lines = textwrap.wrap(
        f"{cause.replace(' ', _UNBROKEN)} {' '.join(unbroken)}",
        width=width,
        initial_indent="  ",
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_UNBROKEN, " ")


def _remarks(exact: Sequence[ExactComparison]) -> Iterator[str]:
    yield from _alike(exact)
    names = _names(exact)
    yield from _missing(exact, names)
    for one in exact:
        if one.metric.name in NUMBERS and one.verdict != "UNCHANGED" and one.message and one.head is not None:
            yield f"{one.verdict} {names[one.benchmark.name]}: {count_title(one)} {one.message}"
    reasons: dict[str, list[ExactComparison]] = defaultdict(list)
    for one in exact:
        if (one.base is None or one.head is None) and not _is_missing(one):
            reasons[one.message or "not counted"].append(one)
    accepted: dict[str, list[ExactComparison]] = defaultdict(list)
    for one in exact:
        if one.accepted is not None:
            accepted[f"accepted: {one.accepted}"].append(one)
    for reason, found in [*reasons.items(), *accepted.items()]:
        yield f"{_listed(found, names)}: {reason}"


def _listed(found: Sequence[ExactComparison], names: Mapping[str, str]) -> str:
    if len(found) <= _MOST_NAMES:
        return ", ".join(f"{names[one.benchmark.name]} {count_title(one)}" for one in found)
    benchmarks = list(dict.fromkeys(names[one.benchmark.name] for one in found))
    whose = ", ".join(benchmarks) if len(benchmarks) <= _MOST_NAMES else f"{len(benchmarks)} benchmarks"
    return f"{counted(len(found), 'count')} of {whose}"


def _missing(exact: Sequence[ExactComparison], names: Mapping[str, str]) -> Iterator[str]:
    """Yield for each benchmark the counts that decide and that head lacks."""
    found: dict[tuple[str, str], list[ExactComparison]] = {}
    for one in filter(_is_missing, exact):
        found.setdefault((one.benchmark.name, one.message or ""), []).append(one)
    for (benchmark, why), lost in found.items():
        listed = ", ".join(
            f"{count_title(one)} (base: {amount_text(one.base, one.metric.unit)})" for one in lost
        )
        yield f"MISSING {names[benchmark]}: {listed}: {why}"


def _is_missing(one: ExactComparison) -> bool:
    return one.verdict == "MISSING" and decides(one)


def _alike(exact: Sequence[ExactComparison]) -> Iterator[str]:
    """Yield how many counts are the same, and which are not although they are in no table."""
    digits = [one for one in exact if one.metric.name != INSTRUCTIONS]
    if digits:
        alike = sum(one.base == one.head and one.base is not None for one in digits)
        lacking = sum(one.base is None or one.head is None for one in digits)
        others = f", {lacking} not counted on both sides" if lacking else ""
        yield f"{counted(alike, 'count')} of {len(digits)} the same to the digit on both sides{others}"
    yield from _moved_by_little(digits, _names(exact))
    # No two processes run the same instructions to the digit.
    near = [one for one in exact if one.metric.name == INSTRUCTIONS]
    if near:
        alike = sum(one.metric.exact and one.ratio is not None and not moved_counts([one]) for one in near)
        share = human_percent(NEWS_OF_INSTRUCTIONS)
        yield f"instructions of {counted(alike, 'benchmark')} of {len(near)} the same within {share}"


def _moved_by_little(exact: Sequence[ExactComparison], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the counts that differ between the sides by too little to be in the table."""
    both = [one for one in exact if one.base is not None and one.head is not None and one.base != one.head]
    shown = {(one.benchmark.name, one.metric.name) for one in moved_counts(both)}
    found = [one for one in both if (one.benchmark.name, one.metric.name) not in shown]
    if not found:
        return
    why = "not exact, and moved by too little to mean anything"
    numbers = ""
    if len(found) == 1:
        unit = found[0].metric.unit
        numbers = f" ({amount_text(found[0].base, unit)}, {amount_text(found[0].head, unit)})"
    yield f"{_listed(found, names)}{numbers}: {why}"


def _names(exact: Sequence[ExactComparison]) -> Mapping[str, str]:
    return short_names(one.benchmark.name for one in exact)
