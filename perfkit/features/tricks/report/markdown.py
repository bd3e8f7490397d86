"""Writes tricks as a document: the ranked table with equivalence, and what the catalogue knows of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from perfkit.features.experiments.records import level_text
from perfkit.features.tricks.report.terminal import guide, suggestions
from perfkit.features.tricks.report.wording import (
    bounds_text,
    counts_text,
    crossing_sentence,
    equivalence_text,
    memory_text,
    time_text,
)
from perfkit.features.tricks.verdict import TrickResult, TricksReport, ranked, size_crossings
from perfkit.identity import short_run_id
from perfkit.report.markdown_table import cell_code, escape, table_head, table_row
from perfkit.units import human_seconds

_HEADINGS = ("trick", "does it help?", "time", "interval", "peak of tensors", "results", "also")


class Description(Protocol):
    """What the catalogue knows of a trick."""

    @property
    def title(self) -> str:
        """The trick's title."""

    @property
    def what(self) -> str:
        """What the trick does."""

    @property
    def helps(self) -> str:
        """When the trick helps."""

    @property
    def caveat(self) -> str:
        """What to look out for when using it."""

    @property
    def source(self) -> str:
        """Where the trick is described."""

    @property
    def code(self) -> str:
        """The code of the trick."""


def tricks_document(
    report: TricksReport, descriptions: Mapping[str, Description], *, picture: str | None = None
) -> str:
    """Return the document as markdown, the same text for the same rows.

    ``descriptions`` is by trick; ``picture`` is the name of a file beside it with the sizes.
    """
    sections = [
        f"# {_title(report)}",
        _where(report),
        *_suggestions(report, descriptions),
        _table(report),
        guide(report),
    ]
    if picture is not None:
        sections.append(f"![Time with each trick against time without it, by size]({picture})")
    crossings = [crossing_sentence(found) for found in size_crossings(report.results)]
    if crossings:
        sections += ["## Where the answer turns", "\n".join(f"- {escape(one)}" for one in crossings)]
    if report.left_out:
        left_out = (f"- {cell_code(name)}: {escape(why)}" for name, why in report.left_out.items())
        sections += ["## Not tried here", "\n".join(left_out)]
    if report.claims:
        sections += ["## What is said of them", _claims(report)]
    sections.append("## What each does")
    sections += [_description(name, descriptions[name]) for name in _told(report) if name in descriptions]
    return "\n\n".join(sections) + "\n"


def _told(report: TricksReport) -> Iterable[str]:
    tried = dict.fromkeys([name for one in ranked(report.results) for name in one.case.tricks])
    # Of a loop only the tricks that it could use are told; the others are in the document of all tricks.
    return tried if _loops(report) else tried | dict.fromkeys(report.left_out)


def _title(report: TricksReport) -> str:
    loops = _loops(report)
    return f"Tricks on {', '.join(map(escape, loops))}" if loops else "Tricks"


def _loops(report: TricksReport) -> list[str]:
    """Return the loops on which tricks were tried, or none where some were tried by themselves."""
    loops = dict.fromkeys(one.case.loop for one in report.results)
    return [] if "" in loops else list(loops)


def _suggestions(report: TricksReport, descriptions: Mapping[str, Description]) -> list[str]:
    lines = suggestions(report, {name: one.code for name, one in descriptions.items()})
    return ["## What to change", "\n\n".join(map(escape, lines))] if lines else []


def _claims(report: TricksReport) -> str:
    rows = (
        table_row([escape(claim.statement), claim.answer, escape(claim.evidence)]) for claim in report.claims
    )
    return "\n".join([*table_head(("what is said", "here", "what was seen")), *rows])


def _where(report: TricksReport) -> str:
    facts = {**report.machine.facts, **report.environment.facts}
    known = [facts[name] for name in ("cpu", "gpus") if facts.get(name)]
    told = [
        *(f"{escape(name)}={escape(level_text(level))}" for name, level in report.arguments.items()),
        f"commit {cell_code(report.commit.sha[:12])}",
        *map(escape, known),
        *(f"{name} {escape(facts[name])}" for name in ("python", "torch", "threads") if name in facts),
        f"{report.recorded_at:%Y-%m-%d}",
        f"run {cell_code(short_run_id(report.run_id))}",
        f"{human_seconds(report.wall_s)} in all",
    ]
    return "Measured: " + ", ".join(told) + "."


def _table(report: TricksReport) -> str:
    return "\n".join([*table_head(_HEADINGS), *(_row(one) for one in ranked(report.results))])


def _row(one: TrickResult) -> str:
    return table_row(
        [
            f"{escape(one.case.title)} ({escape(_where_tried(one))})",
            one.answer,
            time_text(one),
            bounds_text(one),
            memory_text(one),
            escape(equivalence_text(one)),
            escape(counts_text(one)),
        ]
    )


def _where_tried(one: TrickResult) -> str:
    return f"on {one.case.loop}" if one.case.loop else f"{one.case.size} {one.case.size_means}"


def _description(name: str, trick: Description) -> str:
    return "\n\n".join(
        [
            f"### {escape(trick.title)}",
            f"{cell_code(name)}. {escape(trick.what)}",
            *([f"Written: {cell_code(trick.code)}"] if trick.code else []),
            f"Helps: {escape(trick.helps)} Look out: {escape(trick.caveat)} Source: {escape(trick.source)}.",
        ]
    )
