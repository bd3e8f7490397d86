"""Finds the unit of equal work in which two profiles can be compared."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.errors import UsageError
from perfkit.model.differences import Unit
from perfkit.model.readings import Reading
from perfkit.units import counted

_SAME_BATCH = 0.01


@dataclass(frozen=True, kw_only=True)
class Work:
    """The unit of work by which both profiles are divided, and how many units each did."""

    unit: Unit
    base: float
    head: float
    warnings: tuple[str, ...] = ()


def equal_work(base: Reading, head: Reading) -> Work:
    """Return the unit in which two profiles can be compared: a step, or a sample where batches differ.

    Raises:
        UsageError: they cannot be: of different kinds or worlds, or steps are known of only one.
    """
    if base.origin != head.origin:
        raise UsageError(
            f"{base.name} is a {base.origin} and {head.name} a {head.origin}: the one does not see what the"
            " other does; compare two of a kind"
        )
    base_ranks, head_ranks = base.world_size or 1, head.world_size or 1
    if base_ranks != head_ranks:
        raise UsageError(
            f"{base.name} is of {base_ranks} ranks and {head.name} of {head_ranks}: a step is not the same"
            " work in both; profile both with the same world size"
        )
    base_steps, head_steps = (one.steps.count if one.steps else 0 for one in (base, head))
    if not base_steps and not head_steps:
        return Work(
            unit="whole run",
            base=1,
            head=1,
            warnings=("neither profile shows its steps: totals are compared",),
        )
    if not base_steps or not head_steps:
        with_steps, without = (base, head) if base_steps else (head, base)
        raise UsageError(
            f"{with_steps.name} holds {counted(base_steps or head_steps, 'training step')}, and"
            f" {without.name} shows none: their work cannot be made equal"
        )
    return _per_step(base, head, base_steps, head_steps)


def _per_step(base: Reading, head: Reading, base_steps: int, head_steps: int) -> Work:
    samples = base.samples, head.samples
    if samples[0] and samples[1]:
        base_batch, head_batch = samples[0] / base_steps, samples[1] / head_steps
        if abs(head_batch / base_batch - 1) > _SAME_BATCH:
            told = f"batches of {base_batch:.0f} against {head_batch:.0f}: compared per sample"
            warnings = (*_unequal_steps(base_steps, head_steps, "sample"), told)
            return Work(unit="sample", base=samples[0], head=samples[1], warnings=warnings)
    warnings = _unequal_steps(base_steps, head_steps, "step")
    return Work(unit="step", base=base_steps, head=head_steps, warnings=warnings)


def _unequal_steps(base: int, head: int, unit: str) -> tuple[str, ...]:
    if base == head:
        return ()
    many = f"{counted(base, 'step')} against {head}"
    return (f"{many}: compared per {unit}, and set-up weighs more in fewer",)
