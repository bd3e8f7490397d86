"""A difference as markdown, made for a comment or a document."""

from __future__ import annotations

from perfkit.records.differences import Amount, Difference, Part, Section
from perfkit.units import human_seconds, signed_seconds
from perfkit.views.explain.terminal import calls_text, shown_parts
from perfkit.views.markdown_table import cell_code, escape, table_head, table_row

_HEADINGS = ("base", "head", "moved", "calls")


def difference_markdown(difference: Difference) -> str:
    """Return what differs: the sentences as a list, then each section's parts as a table."""
    lines = [f"### {escape(difference.base)} → {escape(difference.head)}, per {difference.unit}", ""]
    lines += [f"- {escape(line)}" for line in difference.findings]
    lines += [f"- note: {escape(line)}" for line in difference.warnings]
    for section in difference.sections:
        lines += ["", *_section(section, difference.unit)]
    return "\n".join(lines) + "\n"


def _section(section: Section, unit: str) -> list[str]:
    shown, rest, count = shown_parts(section)
    whole = section.whole
    rows = [[_name(part), *_cells(part.amount)] for part in shown]
    if count:
        rows.append(
            [
                f"{count} more",
                human_seconds(rest.base_s),
                human_seconds(rest.head_s),
                signed_seconds(rest.moved_s),
                "",
            ]
        )
    rows.append(
        [
            "**all**",
            human_seconds(whole.base_s),
            human_seconds(whole.head_s),
            signed_seconds(whole.moved_s),
            "",
        ]
    )
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
