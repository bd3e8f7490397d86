"""Writes a difference as markdown, for a comment or a document."""

from __future__ import annotations

from perfkit.model.differences import Amount, Difference, Part, Section, Unit
from perfkit.report.explain.terminal import (
    MOST_PARTS,
    REMAINDER,
    calls_text,
    shown_parts,
    shown_remainder,
    telling_callees,
)
from perfkit.report.markdown_table import cell_code, escape, table_head, table_row
from perfkit.units import human_seconds, signed_seconds

_HEADINGS = ("base", "head", "moved", "calls")


def difference_markdown(difference: Difference) -> str:
    """Return the sentences of a difference as a list, then each section's parts as a table."""
    lines = [f"### {escape(difference.base)} → {escape(difference.head)}, per {difference.unit}", ""]
    lines += [f"- {escape(line)}" for line in difference.findings]
    lines += [f"- note: {escape(line)}" for line in difference.warnings]
    for section in difference.sections:
        lines += ["", *section_rows(section, difference.unit)]
    return "\n".join(lines) + "\n"


def section_rows(section: Section, unit: Unit, most: int = MOST_PARTS) -> list[str]:
    """Return a table of what moved most, the sum of the rest, what no part explains, and the whole."""
    shown, rest, count = shown_parts(section, most)
    rows = []
    for part in shown:
        rows.append([_name(part), *_cells(part.amount)])
        rows += [[f"through {escape(one.name)}", *_cells(one.amount)] for one in telling_callees(part)]
    if count:
        rows.append([f"{count} more", *_cells(rest)])
    remainder = shown_remainder(section)
    if remainder:
        rows.append([REMAINDER, "", "", remainder, ""])
    rows.append(["**all**", *_cells(section.whole)])
    return [*table_head([f"{section.title}, a {unit}", *_HEADINGS]), *map(table_row, rows)]


def _name(part: Part) -> str:
    place = f" {cell_code(part.place)}" if part.place else ""
    was = f" (was {escape(part.was)})" if part.was else ""
    return f"{escape(part.name)}{place}{was}"


def _cells(amount: Amount) -> list[str]:
    return [
        human_seconds(amount.base_s),
        human_seconds(amount.head_s),
        signed_seconds(amount.moved_s),
        calls_text(amount).replace("->", "→"),
    ]
