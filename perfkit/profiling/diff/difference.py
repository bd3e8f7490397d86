"""Computes what differs between two profiles of equal work, and says in sentences what matters most."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from perfkit.model import RatioInterval
from perfkit.model.differences import Amount, Difference, Part, Section, most_moved_first
from perfkit.model.phases import RESIDUAL
from perfkit.model.readings import OperatorTime, PhaseTime, Place, Reading
from perfkit.profiling.diff.findings import findings
from perfkit.profiling.diff.functions import function_section
from perfkit.profiling.diff.work import Work, equal_work

Workers = tuple[Reading | None, Reading | None]


@dataclass(frozen=True, kw_only=True)
class CleanSteps:
    """The median steps of both sides without a profiler, and their ratio where enough steps took turns."""

    base_s: float
    head_s: float
    ratio: RatioInterval | None


def explain(
    base: Reading,
    head: Reading,
    *,
    workers: Workers = (None, None),
    clean: CleanSteps | None = None,
) -> Difference:
    """Return what differs; ``workers`` are the cProfiles of the loaders' workers, added up for each side.

    Where ``clean`` steps were measured, their times are told first, as a profiler makes steps longer.

    Raises:
        UsageError: the two cannot be compared.
    """
    work = equal_work(base, head)
    sections = [
        *_phase_sections(base, head, work),
        *_function_sections(base, head, work),
        *_worker_sections(workers, work),
        *_operator_sections(base, head, work),
    ]
    whole = Amount(base_s=base.total_s / work.base, head_s=head.total_s / work.head)
    if clean is not None:
        whole = Amount(base_s=clean.base_s, head_s=clean.head_s)
    ratio = clean.ratio if clean else None
    return Difference(
        base=base.name,
        head=head.name,
        unit=work.unit,
        whole=whole,
        sections=tuple(sections),
        findings=tuple(findings(whole, sections, work, base, head, ratio)),
        warnings=(*work.warnings, *_one_sided(base, head, workers), *_of_both(base, head)),
        ratio=ratio,
    )


def _one_sided(base: Reading, head: Reading, workers: Workers) -> Iterable[str]:
    """Yield what cannot be compared, since only one of the profiles has it."""
    kinds: tuple[tuple[str, tuple[bool, bool]], ...] = (
        ("phases", (bool(base.phases), bool(head.phases))),
        ("functions", (bool(base.functions), bool(head.functions))),
        ("operators", (bool(_operators(base, "cpu")), bool(_operators(head, "cpu")))),
        ("the loader's workers", (workers[0] is not None, workers[1] is not None)),
        ("what ran on the device", (bool(_operators(base, "device")), bool(_operators(head, "device")))),
    )
    for kind, (in_base, in_head) in kinds:
        if in_base != in_head:
            yield f"only {(base if in_base else head).name} tells of {kind}: not compared"


def _of_both(base: Reading, head: Reading) -> Iterable[str]:
    for one in (base, head):
        yield from (f"{one.name}: {warning}" for warning in one.warnings)


def _phase_sections(base: Reading, head: Reading, work: Work) -> Iterable[Section]:
    if not base.phases or not head.phases:
        return
    olds, news = _by_name(base.phases), _by_name(head.phases)
    names = [name for name in _as_a_step_goes([*olds], [*news]) if name != RESIDUAL]
    yield Section(
        title="phases",
        whole=_seconds(
            sum(one.seconds for one in base.phases), sum(one.seconds for one in head.phases), work
        ),
        parts=tuple(
            Part(name=name, kind="phase", amount=_phase_amount(olds.get(name), news.get(name), work))
            for name in [*names, RESIDUAL]
        ),
    )


def _as_a_step_goes(olds: Sequence[str], news: Sequence[str]) -> list[str]:
    """Return the phases of both sides in order; a phase of head alone comes after the one before it there."""
    names = [*olds]
    behind = 0
    for name in news:
        if name not in names:
            names.insert(behind, name)
        behind = names.index(name) + 1
    return names


def _by_name(phases: Iterable[PhaseTime]) -> Mapping[str, PhaseTime]:
    return {phase.name: phase for phase in phases}


def _phase_amount(old: PhaseTime | None, new: PhaseTime | None, work: Work) -> Amount:
    return Amount(
        base_s=old.seconds / work.base if old else 0.0,
        head_s=new.seconds / work.head if new else 0.0,
        base_calls=_each(old.calls if old else 0, work.base),
        head_calls=_each(new.calls if new else 0, work.head),
    )


def _each(calls: int | None, work: float) -> float | None:
    return None if calls is None else calls / work


def _function_sections(base: Reading, head: Reading, work: Work) -> Iterable[Section]:
    if base.functions and head.functions:
        yield function_section(base, head, work)


def _worker_sections(workers: Workers, work: Work) -> Iterable[Section]:
    base, head = workers
    if base is not None and head is not None:
        yield function_section(base, head, work, title="the loader's workers", kind="worker")


def _operator_sections(base: Reading, head: Reading, work: Work) -> Iterable[Section]:
    places: tuple[tuple[str, Place], ...] = (("operators", "cpu"), ("on the device", "device"))
    for title, place in places:
        olds, news = _operators(base, place), _operators(head, place)
        if olds and news:
            yield Section(
                title=title,
                whole=_seconds(sum(map(_own, olds.values())), sum(map(_own, news.values())), work),
                parts=most_moved_first(_operator_parts(olds, news, place, work)),
            )


def _operators(reading: Reading, place: Place) -> dict[str, OperatorTime]:
    return {one.name: one for one in reading.operators if one.place == place}


def _operator_parts(
    olds: Mapping[str, OperatorTime], news: Mapping[str, OperatorTime], place: Place, work: Work
) -> Iterable[Part]:
    for name in dict.fromkeys([*olds, *news]):
        old, new = olds.get(name), news.get(name)
        yield Part(
            name=name,
            kind="kernel" if place == "device" else "operator",
            amount=Amount(
                base_s=old.own_s / work.base if old else 0.0,
                head_s=new.own_s / work.head if new else 0.0,
                base_calls=old.calls / work.base if old else 0.0,
                head_calls=new.calls / work.head if new else 0.0,
            ),
        )


def _own(one: OperatorTime) -> float:
    return one.own_s


def _seconds(base_s: float, head_s: float, work: Work) -> Amount:
    return Amount(base_s=base_s / work.base, head_s=head_s / work.head)
