"""The counts of a gate: what moved, with the operators and lines behind it, and what could not be counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.agent.callgrind import INSTRUCTIONS
from perfkit.records.comparisons import ExactComparison, MovedCause
from perfkit.units import counted, human_percent
from perfkit.verdict.exact import NEWS_OF_INSTRUCTIONS, TITLES, moved_counts
from perfkit.views.counts import amount_text, signed_amount
from perfkit.views.gate.names import short_names
from perfkit.views.gate.wording import accept_command, decides
from perfkit.views.markdown_table import cell_code, escape, table_head, table_row

_MOST_CAUSES = 3
_MOST_NAMES = 4
_MOST_LETTERS = 60
# From here on a factor reads better than percent.
_LARGE_RATIO = 3
_STYLES = {True: "bold red", False: "dim"}
_HEADINGS = ("Benchmark", "Count", "Base", "Head", "Moved", "Verdict", "Behind it")


def exact_sections(exact: Sequence[ExactComparison]) -> Iterator[RenderableType]:
    """Yield a table of the counts that moved, and a line about all others."""
    if not exact:
        return
    moved = moved_counts(exact)
    if moved:
        yield _table(moved)
    yield Text("\n".join(_remarks(exact)), style="dim")


def exact_markdown(exact: Sequence[ExactComparison]) -> str:
    """Return the same for a comment."""
    if not exact:
        return ""
    moved, names = moved_counts(exact), _names(exact)
    rows = [
        table_row(
            [
                cell_code(names[one.benchmark.name]),
                escape(_title(one)),
                amount_text(one.base, one.metric.unit),
                amount_text(one.head, one.metric.unit),
                _moved(one),
                f"**{word}**" if (word := verdict_word(one)) == "REGRESSED" else word,
                "; ".join(escape(_cause_text(cause, one)) for cause in one.causes[:_MOST_CAUSES]),
            ]
        )
        for one in moved
    ]
    remarks = [f"- {escape(line)}" for line in _remarks(exact)]
    return "\n".join([*([*table_head(_HEADINGS), *rows, ""] if rows else []), *remarks])


def verdict_word(one: ExactComparison) -> str:
    """Return what a count that moved means: its verdict where it decides, else that it informs."""
    if one.accepted is not None:
        return "accepted"
    if not one.metric.exact:
        return "not exact"
    if one.verdict == "REGRESSED" and not one.gating:
        return "informs"
    return one.verdict


def _table(moved: Sequence[ExactComparison]) -> RenderableType:
    names = _names(moved)
    table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, expand=True)
    table.add_column(Text("counts that moved", style="bold"), overflow="fold", ratio=1)
    for heading in ("base", "head", "moved"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for one in moved:
        table.add_row(
            Text.assemble(names[one.benchmark.name], (f"  {_title(one)}", "cyan")),
            amount_text(one.base, one.metric.unit),
            amount_text(one.head, one.metric.unit),
            _moved(one),
            Text(verdict_word(one), style=_STYLES[one.verdict == "REGRESSED" and decides(one)]),
        )
        for cause in one.causes[:_MOST_CAUSES]:
            table.add_row(
                Text(f"  {_short(cause.what)}{f', from {cause.place}' if cause.place else ''}", style="dim"),
                amount_text(cause.base, one.metric.unit),
                amount_text(cause.head, one.metric.unit),
                signed_amount(cause.head - cause.base, one.metric.unit),
                "",
                style="dim",
            )
    return Group(table)


def _remarks(exact: Sequence[ExactComparison]) -> Iterator[str]:
    names = _names(exact)
    yield from _alike(exact)
    yield from _missing(exact, names)
    reasons: dict[str, list[str]] = {}
    for one in exact:
        if (one.base is None or one.head is None) and not _is_missing(one):
            reasons.setdefault(one.message or "not counted", []).append(names[one.benchmark.name])
    for reason, found in reasons.items():
        benchmarks = list(dict.fromkeys(found))
        few = len(benchmarks) <= _MOST_NAMES
        yield f"{', '.join(benchmarks) if few else counted(len(benchmarks), 'benchmark')}: {reason}"
    for one in exact:
        if one.accepted is not None:
            yield f"{names[one.benchmark.name]}, {_title(one)}: accepted: {one.accepted}"


def _missing(exact: Sequence[ExactComparison], names: Mapping[str, str]) -> Iterator[str]:
    """Yield, for each benchmark, what decides and could not be counted on head, and how to let that pass."""
    found: dict[tuple[str, str], list[ExactComparison]] = {}
    for one in filter(_is_missing, exact):
        found.setdefault((one.benchmark.name, one.message or ""), []).append(one)
    for (benchmark, why), lost in found.items():
        listed = ", ".join(f"{_title(one)} (base: {amount_text(one.base, one.metric.unit)})" for one in lost)
        command = accept_command(lost[0], names[benchmark])
        yield f"MISSING {names[benchmark]}: {listed}: {why}; to let it pass: {command}"


def _is_missing(one: ExactComparison) -> bool:
    return one.verdict == "MISSING" and decides(one)


def _alike(exact: Sequence[ExactComparison]) -> Iterator[str]:
    """Yield how many counts are the same; no two processes run the same instructions to the digit."""
    digits = [one for one in exact if one.metric.name != INSTRUCTIONS]
    if digits:
        alike = sum(one.base == one.head and one.base is not None for one in digits)
        yield f"{counted(alike, 'count')} of {len(digits)} the same to the digit on both sides"
    near = [one for one in exact if one.metric.name == INSTRUCTIONS]
    if near:
        alike = sum(one.metric.exact and one.ratio is not None and not moved_counts([one]) for one in near)
        share = human_percent(NEWS_OF_INSTRUCTIONS)
        yield f"instructions of {counted(alike, 'benchmark')} of {len(near)} the same within {share}"


def _names(exact: Sequence[ExactComparison]) -> Mapping[str, str]:
    return short_names(one.benchmark.name for one in exact)


def _title(one: ExactComparison) -> str:
    return TITLES.get(one.metric.name, one.metric.name)


def _moved(one: ExactComparison) -> str:
    moved = (one.head or 0.0) - (one.base or 0.0)
    return f"{signed_amount(moved, one.metric.unit)}{_share(one.ratio)}"


def _share(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f" (×{ratio:.3g})" if ratio >= _LARGE_RATIO else f" ({100 * (ratio - 1):+.1f} %)"


def _cause_text(cause: MovedCause, one: ExactComparison) -> str:
    where = f", from {cause.place}" if cause.place else ""
    return f"{_short(cause.what)} {signed_amount(cause.head - cause.base, one.metric.unit)}{where}"


def _short(what: str) -> str:
    """Return the beginning and the end of a name that C++ made too long to be read."""
    return (
        what
        if len(what) <= _MOST_LETTERS
        else f"{what[: _MOST_LETTERS // 2]} … {what[-_MOST_LETTERS // 2 :]}"
    )
