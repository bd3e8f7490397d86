"""Writes an experiment as people note one by hand: as blocks of text, and as two tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from perfkit.features.experiments.effects import Effect
from perfkit.features.experiments.records import (
    ACCURACY,
    DEVICE_PEAK,
    DEVICE_RESERVED,
    HOST_PEAK,
    SKIPPED_STEPS,
    TENSOR_PEAK,
    TOTAL_TIME,
    ExperimentRecord,
    Response,
    Variant,
)
from perfkit.features.experiments.report.summary import failures, summary_of, values_of
from perfkit.features.experiments.report.told import cell_text, levels_text, telling_response, told_effect
from perfkit.model.comparisons import TimedVerdict
from perfkit.report.gate.wording import percent
from perfkit.report.markdown_table import escape, table_head, table_row
from perfkit.units import counted

_HALF = {"bf16", "bfloat16", "fp16", "float16"}
_METHODS = ("lazy", "cached")
_IMAGES = {
    "lazy": ("Pro", "different images in each epoch: each is augmented anew when it is read"),
    "cached": ("Con", "the same images in each epoch: each is augmented once"),
}
_REVERSED: Mapping[TimedVerdict, TimedVerdict] = {"REGRESSED": "IMPROVED", "IMPROVED": "REGRESSED"}


def variant_blocks(record: ExperimentRecord) -> str:
    """Return a block of text for each variant: total time, memory in bytes, and the steps that it skipped."""
    return "\n\n".join("\n".join(_block(record, variant)) for variant in record.experiment.variants)


def performance_table(record: ExperimentRecord) -> str:
    """Return accuracy, memory and total time as a markdown table: means with their 95 % intervals."""
    rows = [
        [
            escape(variant_title(variant)),
            _mean(record, variant, ACCURACY),
            _memory(record, variant),
            _mean(record, variant, TOTAL_TIME),
        ]
        for variant in record.experiment.variants
    ]
    head = table_head(["Algorithm", "Test accuracy", "Memory", "Total training time"])
    return "\n".join([*head, *map(table_row, rows)])


def pros_and_cons(record: ExperimentRecord, effects: Sequence[Effect]) -> str:
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


def variant_title(variant: Variant) -> str:
    """Return a variant's title: "Mixed precision (bf16) training"."""
    precision = variant.levels.get("precision")
    if precision is None:
        return f"{variant.name} training"
    mixed = f"Mixed precision ({precision})" if precision in _HALF else f"{precision} precision".capitalize()
    rest = levels_text({name: level for name, level in variant.levels.items() if name != "precision"})
    return f"{mixed} training" + (f", {rest}" if rest else "")


def _block(record: ExperimentRecord, variant: Variant) -> Iterator[str]:
    name = variant.name
    yield f"{variant_title(variant)}:"
    total = summary_of(record, name, TOTAL_TIME)
    if total is None:
        yield f"Total execution time = {cell_text(record, name, TOTAL_TIME)}"
    else:
        sd = "" if total.sd is None else f", sd {total.sd:.3g}"
        yield f"Total execution time = {total.mean:.3f} sec{sd}, n = {total.blocks}"
    yield from _memory_lines(record, name)
    skipped = values_of(record, name, SKIPPED_STEPS)
    if any(skipped):
        yield f"Skipped steps = {sum(skipped) / len(skipped):g} on average, n = {len(skipped)}"


def _memory_lines(record: ExperimentRecord, name: str) -> Iterator[str]:
    allocated, reserved = (values_of(record, name, one) for one in (DEVICE_PEAK, DEVICE_RESERVED))
    if allocated:
        yield f"Max memory allocated = {max(allocated):.0f} bytes, n = {len(allocated)}"
    if reserved:
        yield f"Max memory reserved = {max(reserved):.0f} bytes, n = {len(reserved)}"
    found = record.fingerprints.get(name)
    if found and not allocated:
        watched = f"the first {counted(found.steps, 'step')}" if found.steps else "one run"
        yield f"Max memory used by tensors = {found.tensor_peak} bytes, counted over {watched}"


def _mean(record: ExperimentRecord, variant: Variant, response: Response) -> str:
    return cell_text(record, variant.name, response, spread="half_width")


def _memory(record: ExperimentRecord, variant: Variant) -> str:
    """Return the memory that limits the batch: the device's, or else that of tensors and of the host."""
    on_device = {"allocated": DEVICE_PEAK, "reserved": DEVICE_RESERVED}
    on_host = {"of tensors": TENSOR_PEAK, "of the host": HOST_PEAK}
    for kinds in (on_device, on_host):
        cells = {kind: _mean(record, variant, response) for kind, response in kinds.items()}
        # A cell without a number says in words why there is none.
        said = [f"{cell} {kind}" for kind, cell in cells.items() if cell[0].isdigit()]
        if said:
            return ", ".join(said)
    return next((one.words for one in failures(record) if one.variant == variant.name), "-")


def _method_rows(method: str, compared: Sequence[Effect], margin: float) -> Iterator[str]:
    verdict, description = _IMAGES[method]
    yield table_row([method, verdict, description])
    by_response = {effect.response: effect for effect in compared}
    memory = HOST_PEAK if HOST_PEAK in by_response else TENSOR_PEAK
    for response in dict.fromkeys((memory, TOTAL_TIME, telling_response(compared))):
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
    told = told_effect(effect)
    if effect.verdict is None or effect.verdict == "INCONCLUSIVE":
        return "Neither", f"{told.title}: cannot tell ({told.verdict})"
    numbers = f"{told.change} against {effect.contrast.reference} ({told.interval}), {told.verdict}"
    if effect.verdict == "UNCHANGED":
        return "Neither", f"{told.title}: the same within ±{percent(margin)}, {numbers}"
    return "Pro" if effect.verdict == "IMPROVED" else "Con", f"{told.title}: {numbers}"
