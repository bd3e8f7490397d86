"""Shows an experiment in the terminal: what went wrong, the variants, and the effects of their factors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfkit.features.experiments.effects import effects_of
from perfkit.features.experiments.records import TIMES, ExperimentRecord, Response
from perfkit.features.experiments.report.groups import EffectTable, effect_tables
from perfkit.features.experiments.report.summary import (
    failures,
    mistakes,
    shown_responses,
    succeeded_trials,
    told_response,
)
from perfkit.features.experiments.report.told import cell_text, told_effect
from perfkit.features.experiments.report.wording import (
    crossover_sentences,
    failure_text,
    guide_text,
    head_lines,
    left_out_lines,
    mistake_text,
    note_lines,
    single_run_lines,
)
from perfkit.model.comparisons import TimedVerdict
from perfkit.report.names import BrokenName, NamedTable

_STYLES: dict[TimedVerdict | None, str] = {
    "REGRESSED": "bold red",
    "IMPROVED": "green",
    "UNCHANGED": "dim",
    None: "",
}
_OTHER_STYLE = "yellow"


def experiment_view(record: ExperimentRecord) -> RenderableType:
    """Return the whole result, mistakes first; it fits 80 columns where names are short."""
    effects = effects_of(record)
    sections = (
        Text("\n".join(head_lines(record))),
        *_caught(record),
        *_variants(record),
        *_lines(map(failure_text, failures(record))),
        *_lines(note_lines(record)),
        *map(_effects_table, effect_tables(effects)),
        *_lines(crossover_sentences(record, effects)),
        *_lines(left_out_lines(effects)),
        *_lines(single_run_lines(record)),
        Text(guide_text(record), style="dim"),
    )
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections[:-1]), sections[-1])


def _caught(record: ExperimentRecord) -> Iterator[RenderableType]:
    said = [mistake_text(mistake, len(record.fingerprints)) for mistake in mistakes(record)]
    if said:
        yield Group(*(Text.assemble(("caught", "bold red"), f": {line}") for line in said))


def _variants(record: ExperimentRecord) -> Iterator[RenderableType]:
    """Yield a table of the times and one of the other responses, as one table would be too wide."""
    times = {told_response(time) for time in TIMES}
    shown = shown_responses(record)
    for responses in ([one for one in shown if one in times], [one for one in shown if one not in times]):
        if responses:
            yield _variants_table(record, responses)


def _variants_table(record: ExperimentRecord, responses: Sequence[Response]) -> Table:
    table = _plain_table("variant, mean ± sd", "n", *(response.title for response in responses))
    for variant in record.experiment.variants:
        cells = (cell_text(record, variant.name, response) for response in responses)
        table.add_row(BrokenName(variant.name), str(succeeded_trials(record, variant.name)), *cells)
    return table


def _effects_table(found: EffectTable) -> Table:
    table = _plain_table(found.title, "change", "interval")
    table.add_column("", no_wrap=True)
    for group in found.groups:
        table.add_row(Text(group.heading, style="bold"))
        for line in group.lines:
            told = told_effect(line.effect)
            label = Padding(BrokenName(line.label), (0, 0, 0, 2))
            verdict = Text(told.verdict, style=_STYLES.get(line.effect.verdict, _OTHER_STYLE))
            table.add_row(label, told.change, told.interval, verdict)
    return table


def _plain_table(title: str, *headings: str) -> Table:
    table = NamedTable(box=SIMPLE, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(Text(title), overflow="fold", ratio=1)
    for heading in headings:
        table.add_column(Text(heading), justify="right")
    return table


def _lines(lines: Iterable[str]) -> Iterator[RenderableType]:
    text = "\n".join(lines)
    if text:
        yield Text(text)
