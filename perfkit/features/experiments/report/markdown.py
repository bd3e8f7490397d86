"""Writes an experiment as a document: what was run and where, what each variant did, and the effects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from perfkit.features.experiments.effects import Effect, effects_of
from perfkit.features.experiments.records import Experiment, ExperimentRecord, Factor, Fingerprint, level_text
from perfkit.features.experiments.report.groups import EffectTable, effect_tables
from perfkit.features.experiments.report.seed_forms import performance_table, pros_and_cons, variant_blocks
from perfkit.features.experiments.report.summary import failures, mistakes, shown_responses, succeeded_trials
from perfkit.features.experiments.report.told import cell_text, levels_text, told_effect
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
from perfkit.report.gate.wording import percent
from perfkit.report.markdown_table import cell_code, code, escape, table_head, table_row
from perfkit.units import human_bytes


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """The code that ran, where and when; ``run_id`` leads to its rows in the ledger."""

    commit: str
    subject: str
    recorded_at: datetime
    run_id: str
    machine: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


def experiment_document(
    record: ExperimentRecord, *, heading_level: int = 1, picture: str | None, provenance: Provenance
) -> str:
    """Return the document as markdown, the same text for the same record.

    ``picture`` is the place of the effects' picture as the document links it; None leaves it out.
    """
    effects = effects_of(record)
    below = "#" * (heading_level + 1)
    sections = (
        f"{'#' * heading_level} {escape(record.experiment.name)}",
        f"{below} What was run",
        _plan(record),
        f"{below} Where",
        _where(provenance),
        *_section(f"{below} What went wrong", _wrong(record)),
        *_section(f"{below} What the variants do", _fingerprints(record)),
        *_section(f"{below} What they give", _results(record, effects)),
        *_section(f"{below} Effects", _effects(record, effects, picture)),
        *_section(f"{below} What single runs would have said", _single_runs(record)),
    )
    return "\n\n".join(sections) + "\n"


def _section(heading: str, parts: Iterator[str]) -> tuple[str, ...]:
    """Return the parts that are not empty under their heading, or nothing where all are empty."""
    said = tuple(part for part in parts if part)
    return (heading, *said) if said else ()


def _plan(record: ExperimentRecord) -> str:
    experiment = record.experiment
    _, blocks = head_lines(record)
    lines = (
        f"Target: {code(experiment.target)}",
        *(_factor(factor) for factor in experiment.factors),
        *([f"Fixed: {code(levels_text(experiment.fixed))}"] if experiment.fixed else []),
        escape(blocks),
        f"In a block every variant runs once, in a fresh process; seed {experiment.seed} draws their order",
        _rules(experiment),
    )
    return _listed(lines)


def _factor(factor: Factor) -> str:
    reference, *others = (code(level_text(level)) for level in factor.levels)
    return f"Factor {code(factor.name)}: {reference} against {', '.join(others)}"


def _rules(experiment: Experiment) -> str:
    return (
        f"Judged at a margin of ±{percent(experiment.margin)} and an alpha of {percent(experiment.alpha)};"
        f" step times leave out {experiment.warmup_steps} steps and {experiment.warmup_s:g} s of warm-up"
    )


def _where(provenance: Provenance) -> str:
    recorded = provenance.recorded_at.astimezone(UTC)
    lines = (
        f"Commit: {code(provenance.commit)} {escape(provenance.subject)}".rstrip(),
        f"Recorded: {recorded:%Y-%m-%d %H:%M} UTC, run {code(provenance.run_id)}",
        *(
            f"{title}: {escape(', '.join(f'{name} {value}' for name, value in facts.items() if value))}"
            for title, facts in (("Machine", provenance.machine), ("Environment", provenance.environment))
            if facts
        ),
    )
    return _listed(lines)


def _wrong(record: ExperimentRecord) -> Iterator[str]:
    caught = [mistake_text(mistake, len(record.fingerprints)) for mistake in mistakes(record)]
    yield _listed(escape(line) for line in (*caught, *map(failure_text, failures(record))))


def _fingerprints(record: ExperimentRecord) -> Iterator[str]:
    if record.fingerprints:
        yield "Seen in the first steps, without a clock:"
        head = table_head(["Variant", "Steps", "Operators", "In half precision", "Peak of tensors"])
        rows = (_fingerprint(variant, found) for variant, found in record.fingerprints.items())
        yield "\n".join((*head, *rows))


def _fingerprint(variant: str, found: Fingerprint) -> str:
    half = ", ".join(f"{count} in {kind}" for kind, count in found.half.items())
    peak = f"{found.tensor_peak} bytes ({human_bytes(found.tensor_peak)})"
    return table_row([cell_code(variant), str(found.steps), str(found.operators), half or "none", peak])


def _results(record: ExperimentRecord, effects: Sequence[Effect]) -> Iterator[str]:
    yield f"```text\n{variant_blocks(record)}\n```"
    yield performance_table(record)
    yield "± is the 95 % interval of the mean over blocks."
    yield "All that was measured, mean ± sd over n blocks:"
    yield _measured(record)
    yield pros_and_cons(record, effects)


def _measured(record: ExperimentRecord) -> str:
    responses = shown_responses(record)
    rows = (
        [
            cell_code(variant.name),
            str(succeeded_trials(record, variant.name)),
            *(cell_text(record, variant.name, response) for response in responses),
        ]
        for variant in record.experiment.variants
    )
    head = table_head(["Variant", "n", *(escape(response.title) for response in responses)])
    return "\n".join((*head, *map(table_row, rows)))


def _effects(record: ExperimentRecord, effects: Sequence[Effect], picture: str | None) -> Iterator[str]:
    if picture is not None and effects:
        yield f"![Effects with their intervals, and each block's ratio]({picture})"
    yield from map(_effects_table, effect_tables(effects))
    yield _listed(map(escape, crossover_sentences(record, effects)))
    yield from map(escape, left_out_lines(effects))
    yield _listed(map(escape, note_lines(record)))
    yield escape(guide_text(record))


def _single_runs(record: ExperimentRecord) -> Iterator[str]:
    yield _listed(map(escape, single_run_lines(record)))


def _effects_table(found: EffectTable) -> str:
    rows = []
    for group in found.groups:
        for line in group.lines:
            told = told_effect(line.effect)
            rows.append([escape(group.heading), escape(line.label), told.change, told.interval, told.verdict])
    kind = found.title[0].upper() + found.title[1:]
    return "\n".join((*table_head([kind, "", "Change", "Interval", "Verdict"]), *map(table_row, rows)))


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
