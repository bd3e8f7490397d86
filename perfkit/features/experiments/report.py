"""An experiment's result in the terminal, as a chart, and as a document with lab notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfkit.features.experiments.effects import Effect, effects_of
from perfkit.features.experiments.records import (
    ACCURACY,
    DEVICE_PEAK,
    DEVICE_RESERVED,
    HOST_PEAK,
    SAMPLE_TIME,
    SKIPPED_STEPS,
    TENSOR_PEAK,
    TIMES,
    TOTAL_TIME,
    ExperimentRecord,
    Fingerprint,
    Response,
    Variant,
    level_text,
)
from perfkit.features.experiments.summary import (
    EffectTable,
    cell_text,
    contrast_text,
    crossover_sentences,
    effect_tables,
    effect_text,
    failure_lines,
    failure_words,
    fastest_lines,
    guide_text,
    head_lines,
    left_out_lines,
    levels_text,
    main_time,
    mistake_lines,
    note_lines,
    ratios_by_block,
    repeated_lines,
    shown_estimate,
    shown_response,
    shown_responses,
    single_run_lines,
    succeeded_trials,
    summary_of,
    values_of,
)
from perfkit.model import Row
from perfkit.model.comparisons import TimedVerdict
from perfkit.report.chart import ChartRow, interval_chart
from perfkit.report.gate.wording import percent
from perfkit.report.markdown_table import cell_code, code, escape, table_head, table_row
from perfkit.report.names import BrokenName, NamedTable
from perfkit.units import counted, human_bytes

_STYLES: dict[TimedVerdict | None, str] = {
    "REGRESSED": "bold red",
    "IMPROVED": "green",
    "UNCHANGED": "dim",
    None: "",
}
_OTHER_STYLE = "yellow"
_HALF = {"bf16", "bfloat16", "fp16", "float16"}
_METHODS = ("lazy", "cached")
_IMAGES = {
    "lazy": ("Pro", "different images in each epoch: each is augmented anew when it is read"),
    "cached": ("Con", "the same images in each epoch: each is augmented once"),
}
_REVERSED: Mapping[TimedVerdict, TimedVerdict] = {"REGRESSED": "IMPROVED", "IMPROVED": "REGRESSED"}


def experiment_view(record: ExperimentRecord) -> RenderableType:
    """Return the whole result, mistakes first; it fits 80 columns where names are short."""
    effects = effects_of(record)
    caught = [Text.assemble(("caught", "bold red"), f": {line}") for line in mistake_lines(record)]
    sections = (
        Text("\n".join(head_lines(record))),
        *([Group(*caught)] if caught else []),
        *_variant_tables(record),
        *_lines(failure_lines(record)),
        *_lines(note_lines(record)),
        *map(_effects_view, effect_tables(effects)),
        *_lines((*fastest_lines(effects), *crossover_sentences(record, effects))),
        *_lines((*left_out_lines(effects), *repeated_lines(record))),
        *_lines(single_run_lines(record)),
        Text(guide_text(record), style="dim"),
    )
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections[:-1]), sections[-1])


def effects_chart(record: ExperimentRecord) -> str:
    """Return main and simple effects on the time that matters most as an SVG.

    Each main effect is followed by the simple effects of the same levels.
    """
    effects = effects_of(record)
    response = main_time(effects)
    is_rate = response == SAMPLE_TIME
    contrasts = list(dict.fromkeys(contrast_text(effect.contrast) for effect in effects))
    shown = sorted(
        (one for one in effects if one.response == response and one.contrast.kind != "interaction"),
        key=lambda effect: contrasts.index(contrast_text(effect.contrast)),
    )
    experiment = record.experiment
    low, high = 1 - experiment.margin, 1 + experiment.margin
    title = shown_response(response).title if response else "no time was measured"
    return interval_chart(
        [_chart_row(record, effect, is_rate=is_rate) for effect in shown],
        title=f"{experiment.name}: {title}",
        ends=("fewer", "more") if is_rate else ("faster", "slower"),
        band=(1 / high, 1 / low) if is_rate else (low, high),
        legend=(
            "Small dots are blocks; a bar is the interval around its estimate, all of them together at"
            f" {percent(1 - experiment.alpha)} confidence; the band is ±{percent(experiment.margin)} of time."
        ),
    )


def experiment_document(record: ExperimentRecord, row: Row, *, picture: str) -> str:
    """Return the document as markdown, the same text for the same record.

    A ``row`` of its run has the code that ran, where and when; ``picture`` is where the effects' chart lies.
    """
    effects = effects_of(record)
    parts: Mapping[str, Iterable[str]] = {
        "What was run": [_plan(record)],
        "Where": [_where(row)],
        "What went wrong": [_listed(map(escape, (*mistake_lines(record), *failure_lines(record))))],
        "What the variants do": _fingerprints(record),
        "What they give": _results(record, effects),
        "Effects": _effects(record, effects, picture),
        "What single runs would have shown": [_listed(map(escape, single_run_lines(record)))],
    }
    sections = [f"# {escape(record.experiment.name)}"]
    for heading, texts in parts.items():
        below = [text for text in texts if text]
        if below:
            sections += [f"## {heading}", *below]
    return "\n\n".join(sections) + "\n"


def _variant_tables(record: ExperimentRecord) -> Iterator[RenderableType]:
    """Yield a table of the times and one of the other responses, as one table would be too wide."""
    times = {shown_response(time) for time in TIMES}
    shown = shown_responses(record)
    for responses in ([one for one in shown if one in times], [one for one in shown if one not in times]):
        if responses:
            table = _plain_table("variant, mean ± sd", "n", *(response.title for response in responses))
            for variant in record.experiment.variants:
                cells = (cell_text(record, variant.name, response) for response in responses)
                number = str(succeeded_trials(record, variant.name))
                table.add_row(BrokenName(variant.name), number, *cells)
            yield table


def _effects_view(found: EffectTable) -> Table:
    table = _plain_table(found.title, "change", "interval")
    table.add_column("", no_wrap=True)
    for heading, lines in found.groups.items():
        table.add_row(Text(heading, style="bold"))
        for label, effect in lines:
            text = effect_text(effect)
            verdict = Text(text.verdict, style=_STYLES.get(effect.verdict, _OTHER_STYLE))
            table.add_row(Padding(BrokenName(label), (0, 0, 0, 2)), text.change, text.interval, verdict)
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


def _chart_row(record: ExperimentRecord, effect: Effect, *, is_rate: bool) -> ChartRow:
    text, estimate = effect_text(effect), shown_estimate(effect)
    ratios = ratios_by_block(record, effect)
    return ChartRow(
        label=levels_text(effect.contrast.at) or contrast_text(effect.contrast),
        is_main=effect.contrast.kind == "main",
        words=text.verdict if estimate is None else f"{text.change} {text.verdict}".strip(),
        verdict=effect.verdict,
        estimate=estimate,
        points=[1 / ratio for ratio in ratios] if is_rate else ratios,
    )


def _plan(record: ExperimentRecord) -> str:
    experiment = record.experiment
    lines = [f"Target: {code(experiment.target)}"]
    for factor in experiment.factors:
        reference, *others = (code(level_text(level)) for level in factor.levels)
        lines.append(f"Factor {code(factor.name)}: {reference} against {', '.join(others)}")
    if experiment.fixed:
        lines.append(f"Fixed: {code(levels_text(experiment.fixed))}")
    lines += [
        escape(head_lines(record)[1]),
        f"In a block every variant runs once, in a fresh process; seed {experiment.seed} draws their order",
        (
            f"Judged at a margin of ±{percent(experiment.margin)} and an alpha of"
            f" {percent(experiment.alpha)}; step times leave out"
            f" {counted(experiment.warmup_steps, 'step')} and {experiment.warmup_s:g} s of warm-up"
        ),
    ]
    return _listed(lines)


def _where(row: Row) -> str:
    lines = [
        f"Commit: {code(row.commit.sha)} {escape(row.commit.subject or '')}".rstrip(),
        f"Recorded: {row.recorded_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC, run {code(row.run_id)}",
    ]
    for title, facts in (("Machine", row.machine.facts), ("Environment", row.environment.facts)):
        if facts:
            shown = ", ".join(f"{name} {value}" for name, value in facts.items() if value)
            lines.append(f"{title}: {escape(shown)}")
    return _listed(lines)


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
    variants = record.experiment.variants
    blocks = "\n\n".join("\n".join(_variant_block(record, variant)) for variant in variants)
    yield f"```text\n{blocks}\n```"
    yield _performance_table(record)
    yield "± is the 95 % interval of the mean over blocks."
    yield "All that was measured, mean ± sd over n blocks:"
    responses = shown_responses(record)
    rows = (
        [
            cell_code(variant.name),
            str(succeeded_trials(record, variant.name)),
            *(cell_text(record, variant.name, response) for response in responses),
        ]
        for variant in variants
    )
    head = table_head(["Variant", "n", *(escape(response.title) for response in responses)])
    yield "\n".join((*head, *map(table_row, rows)))
    yield _pros_and_cons(record, effects)


def _effects(record: ExperimentRecord, effects: Sequence[Effect], picture: str) -> Iterator[str]:
    if effects:
        yield f"![Effects with their intervals, and each block's ratio]({picture})"
    yield from map(_effects_table, effect_tables(effects))
    yield _listed(map(escape, (*fastest_lines(effects), *crossover_sentences(record, effects))))
    yield from map(escape, (*left_out_lines(effects), *repeated_lines(record)))
    yield _listed(map(escape, note_lines(record)))
    yield escape(guide_text(record))


def _effects_table(found: EffectTable) -> str:
    rows = []
    for heading, lines in found.groups.items():
        for label, effect in lines:
            text = effect_text(effect)
            rows.append([escape(heading), escape(label), text.change, text.interval, text.verdict])
    kind = found.title[0].upper() + found.title[1:]
    return "\n".join((*table_head([kind, "", "Change", "Interval", "Verdict"]), *map(table_row, rows)))


def _listed(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _variant_title(variant: Variant) -> str:
    """Return a variant's title: "Mixed precision (bf16) training"."""
    precision = variant.levels.get("precision")
    if precision is None:
        return f"{variant.name} training"
    mixed = f"Mixed precision ({precision})" if precision in _HALF else f"{precision} precision".capitalize()
    rest = levels_text({name: level for name, level in variant.levels.items() if name != "precision"})
    return f"{mixed} training" + (f", {rest}" if rest else "")


def _variant_block(record: ExperimentRecord, variant: Variant) -> Iterator[str]:
    """Yield a variant's total time, its memory in bytes, and the steps that it skipped."""
    name = variant.name
    yield f"{_variant_title(variant)}:"
    total = summary_of(record, name, TOTAL_TIME)
    if total is None:
        yield f"Total execution time = {cell_text(record, name, TOTAL_TIME)}"
    else:
        sd = "" if total.sd is None else f", sd {total.sd:.3g}"
        yield f"Total execution time = {total.mean:.3f} sec{sd}, n = {total.blocks}"
    allocated, reserved = (values_of(record, name, one) for one in (DEVICE_PEAK, DEVICE_RESERVED))
    if allocated:
        yield f"Max memory allocated = {max(allocated):.0f} bytes, n = {len(allocated)}"
    if reserved:
        yield f"Max memory reserved = {max(reserved):.0f} bytes, n = {len(reserved)}"
    found = record.fingerprints.get(name)
    if found and not allocated:
        watched = f"the first {counted(found.steps, 'step')}" if found.steps else "one run"
        yield f"Max memory used by tensors = {found.tensor_peak} bytes, counted over {watched}"
    skipped = values_of(record, name, SKIPPED_STEPS)
    if any(skipped):
        yield f"Skipped steps = {sum(skipped) / len(skipped):g} on average, n = {len(skipped)}"


def _performance_table(record: ExperimentRecord) -> str:
    """Return accuracy, memory and total time: means with their 95 % intervals."""
    rows = [
        [
            escape(_variant_title(variant)),
            _mean(record, variant, ACCURACY),
            _memory(record, variant),
            _mean(record, variant, TOTAL_TIME),
        ]
        for variant in record.experiment.variants
    ]
    head = table_head(["Algorithm", "Test accuracy", "Memory", "Total training time"])
    return "\n".join([*head, *map(table_row, rows)])


def _mean(record: ExperimentRecord, variant: Variant, response: Response) -> str:
    return cell_text(record, variant.name, response, spread="half_width")


def _memory(record: ExperimentRecord, variant: Variant) -> str:
    """Return the memory that limits the batch: the device's, or else that of tensors and of the host."""
    on_device = {"allocated": DEVICE_PEAK, "reserved": DEVICE_RESERVED}
    on_host = {"of tensors": TENSOR_PEAK, "of the host": HOST_PEAK}
    for kinds in (on_device, on_host):
        cells = {kind: _mean(record, variant, response) for kind, response in kinds.items()}
        # A cell without a number has the reason in words.
        numbers = [f"{cell} {kind}" for kind, cell in cells.items() if cell[0].isdigit()]
        if numbers:
            return ", ".join(numbers)
    return failure_words(record, variant.name)


def _pros_and_cons(record: ExperimentRecord, effects: Sequence[Effect]) -> str:
    """Return the measured advantages of lazy and of cached augmentation.

    Empty where no factor "augmentation" has these two levels.
    """
    compared = [
        effect
        for effect in effects
        if effect.contrast.kind == "main"
        and effect.contrast.factor == "augmentation"
        and {effect.contrast.reference, effect.contrast.level} == set(_METHODS)
    ]
    rows = [row for method in _METHODS for row in _method_rows(method, compared, record.experiment.margin)]
    return "\n".join([*table_head(["Method", "Pro or Con", "Description"]), *rows]) if compared else ""


def _method_rows(method: str, compared: Sequence[Effect], margin: float) -> Iterator[str]:
    verdict, description = _IMAGES[method]
    yield table_row([method, verdict, description])
    by_response = {effect.response: effect for effect in compared}
    memory = HOST_PEAK if HOST_PEAK in by_response else TENSOR_PEAK
    for response in dict.fromkeys((memory, TOTAL_TIME, main_time(compared))):
        if response in by_response:
            yield table_row([method, *_judged(_seen_from(method, by_response[response]), margin)])


def _seen_from(method: str, effect: Effect) -> Effect:
    """Return the effect of a method against the other one, even where it was the reference."""
    contrast = effect.contrast
    if contrast.level == method:
        return effect
    turned = replace(contrast, reference=contrast.level, level=contrast.reference)
    if not (effect.value and effect.low and effect.high):
        return replace(effect, contrast=turned)
    return replace(
        effect,
        contrast=turned,
        value=1 / effect.value,
        low=1 / effect.high,
        high=1 / effect.low,
        verdict=_REVERSED.get(effect.verdict, effect.verdict) if effect.verdict else None,
    )


def _judged(effect: Effect, margin: float) -> tuple[str, str]:
    """Return whether an effect is an advantage of its level, with the numbers that show it."""
    text = effect_text(effect)
    if effect.verdict is None or effect.verdict == "INCONCLUSIVE":
        return "Neither", f"{text.title}: not decided ({text.verdict})"
    numbers = f"{text.change} against {effect.contrast.reference} ({text.interval}), {text.verdict}"
    if effect.verdict == "UNCHANGED":
        return "Neither", f"{text.title}: the same within ±{percent(margin)}, {numbers}"
    return "Pro" if effect.verdict == "IMPROVED" else "Con", f"{text.title}: {numbers}"
