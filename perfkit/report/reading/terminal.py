"""Shows a profile that was read in the terminal: totals, steps, phases, waits, and the largest entries."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfkit.model.readings import DeviceTime, FunctionTime, IdleCause, OperatorTime, Reading
from perfkit.report.names import Folded, NamedTable
from perfkit.units import counted, human_bytes, human_percent, human_seconds

_ENTRIES = 10
_WORTH_TELLING = 0.001
_FEW_STEPS = 3
_FEW_RANKS = 2
_MUCH_OF_A_STEP = 0.03
_IDLE: tuple[tuple[IdleCause, str], ...] = (
    ("host", "idle, its next work not launched"),
    ("sync", "idle, the host waiting for it"),
    ("queue", "idle, its next work launched"),
)


def reading_view(reading: Reading) -> Group:
    """Return all that is shown of a profile, the most important first."""
    sections = (
        _headline(reading),
        _phases(reading),
        _memory(reading),
        _waits(reading),
        *_devices(reading),
        *_functions(reading),
        *_operators(reading),
        _notes(reading),
    )
    return Group(*(Padding(section, (0, 0, 1, 0)) for section in sections if section is not None))


def ranks_view(readings: Sequence[Reading]) -> Group | None:
    """Return what the ranks of one training were busy with, None for profiles that are no ranks of one.

    Who waits least in collectives is whom the others wait for there.
    """
    ranks = sorted(
        (one for one in readings if one.rank is not None and one.devices), key=lambda one: one.rank or 0
    )
    if len({one.rank for one in ranks}) != len(ranks) or len(ranks) < _FEW_RANKS:
        return None
    table = _table("rank", "a step", "computes", "in collectives", "idle")
    for one in ranks:
        parts = (_computes_s(one), _collectives_s(one), _idle_s(one))
        row = (human_seconds(_each(one, seconds)) for seconds in (one.total_s, *parts))
        table.add_row(f"{one.rank}  {one.name}", *row)
    last = min(ranks, key=lambda one: _each(one, _collectives_s(one)))
    others = [_each(one, _collectives_s(one)) for one in ranks if one is not last]
    lead_s = statistics.median(others) - _each(last, _collectives_s(last))
    told = "no rank is waited for: all are about as long in collectives"
    if lead_s >= _MUCH_OF_A_STEP * _each(last, last.total_s):
        told = (
            f"rank {last.rank} is waited for: it is {human_seconds(lead_s)}"
            f" {'a step' if last.steps else 'in all'} less in collectives than the others"
        )
    return Group(table, Padding(Folded(told, hanging=""), (0, 0, 1, 0)))


def reading_sentence(reading: Reading) -> str:
    """Return how long a profile took, and a training step in it, in a sentence."""
    said = f"{reading.name}: {human_seconds(reading.total_s, digits=6)}, {_origin(reading)}"
    if reading.steps is None:
        return said
    step = human_seconds(reading.step_s, digits=4)
    return f"{said}, {counted(reading.steps.count, 'step')} of {step} each"


def notes(reading: Reading) -> list[str]:
    """Return notes on numbers that do not mean what they seem to mean."""
    found = list(reading.warnings)
    if reading.steps is None and reading.origin != "torch trace":
        found.append("no optimizer and no backward pass was called: there is no time per step")
    elif reading.steps is not None and reading.steps.count < _FEW_STEPS:
        found.append(
            f"only {counted(reading.steps.count, 'step')}, with the set-up in the total: no other"
            " profile's total can be compared with it"
        )
    return found


def function_name(one: FunctionTime) -> str:
    """Return a function's name with its file and line; a builtin has neither."""
    return one.function if one.kind == "builtin" or not one.line else f"{one.function}  {one.file}:{one.line}"


def _headline(reading: Reading) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    total_s = human_seconds(reading.total_s, digits=6)
    table.add_row(Text(reading.name, style="bold"), total_s, _origin(reading))
    if reading.steps is not None:
        table.add_row("steps", str(reading.steps.count), f"by {reading.steps.sign}")
        table.add_row("time per step", human_seconds(reading.step_s, digits=4), _spread(reading))
    if reading.device_busy_s is not None:
        busy_s, share = _each(reading, reading.device_busy_s), _share(reading, reading.device_busy_s)
        each = "a step, " if reading.steps else ""
        table.add_row("device busy", human_seconds(busy_s), f"{each}{share} of the time")
    return table


def _origin(reading: Reading) -> str:
    calls = f", {reading.calls:,} calls" if reading.calls is not None else ""
    ranks = f", one of {reading.world_size} ranks" if (reading.world_size or 1) > 1 else ""
    return f"{reading.origin}{calls}{ranks}"


def _spread(reading: Reading) -> str:
    seconds = reading.steps.seconds if reading.steps else ()
    if not seconds:
        return "the whole over the steps"
    median, longest = human_seconds(statistics.median(seconds)), human_seconds(max(seconds))
    return f"mean; median {median}, longest {longest}"


def _phases(reading: Reading) -> Table | None:
    if not reading.phases:
        return None
    table = _table("a step is made of", "a step", "share")
    # A saved profile has its phases from another pass than its functions: they are parts of their own sum.
    whole_s = sum(phase.seconds for phase in reading.phases)
    for phase in reading.phases:
        share = human_percent(phase.seconds / whole_s if whole_s else None)
        table.add_row(Text(phase.name), human_seconds(_each(reading, phase.seconds)), share)
    return table


def _memory(reading: Reading) -> Table | None:
    """Return the most that a device's allocator held in each phase of a step, where that was recorded."""
    if not reading.memory:
        return None
    table = _table("device memory, most in a step", "tensors", "reserved", "unusable", "retries")
    for one in reading.memory:
        sizes = map(human_bytes, (one.allocated, one.reserved, one.unusable))
        table.add_row(Text(one.name), *sizes, str(one.retries) if one.retries else "")
    return table


def _waits(reading: Reading) -> Table | None:
    waits = [wait for wait in reading.waits if wait.seconds >= _WORTH_TELLING * reading.total_s]
    if not waits:
        return None
    table = _table("waiting for", "calls", "seconds", "a step", "share")
    for wait in waits:
        name = Text(wait.whom).append(f"  {', '.join(wait.through[:2])}", style="dim")
        share = _share(reading, wait.seconds)
        step_s = human_seconds(_each(reading, wait.seconds)) if reading.steps else "-"
        table.add_row(name, f"{wait.calls:,}", human_seconds(wait.seconds), step_s, share)
    return table


def _devices(reading: Reading) -> Iterator[RenderableType]:
    for one in reading.devices:
        table = _table(f"device {one.name}", "a step" if reading.steps else "seconds", "share")
        parts = [
            ("computes", one.compute_s),
            ("communicates only", one.communication_s),
            ("copies only", one.copy_s),
            *((title, one.idle_s.get(cause, 0.0)) for cause, title in _IDLE),
        ]
        for title, seconds in parts:
            if seconds >= _WORTH_TELLING * reading.total_s:
                table.add_row(title, human_seconds(_each(reading, seconds)), _share(reading, seconds))
        yield Group(table, Folded(_device_told(one, reading), hanging="", style="dim"))


def _device_told(one: DeviceTime, reading: Reading) -> str:
    """Return what the host did while the device had nothing to do, and how small its work is."""
    each = reading.steps.count if reading.steps else 1
    per = "a step" if reading.steps else "in all"
    short = human_percent(one.short_kernels / one.kernels if one.kernels else None)
    sentences = [f"{one.kernels / each:,.0f} kernels {per}, {short} of them shorter than 5 us"]
    during = [part for part in one.waited_for if part.seconds >= _WORTH_TELLING * reading.total_s]
    if during:
        parts = (f"{human_seconds(_each(reading, part.seconds))} in {part.name}" for part in during[:3])
        sentences.append(f"while it had nothing to do, the host was {', '.join(parts)}")
    return "; ".join(sentences)


def _computes_s(reading: Reading) -> float:
    return sum(one.compute_s for one in reading.devices)


def _collectives_s(reading: Reading) -> float:
    return sum(one.collectives_s for one in reading.devices)


def _idle_s(reading: Reading) -> float:
    return sum(sum(one.idle_s.values()) for one in reading.devices)


def _functions(reading: Reading) -> Iterator[RenderableType]:
    own = [one for one in reading.functions if one.kind == "own"]
    library = [one for one in reading.functions if one.kind != "own"]
    for title, entries, by in (
        ("own code, by cumulative time", own, "cumulative_s"),
        ("own code, by own time", own, "own_s"),
        ("library code, by own time", library, "own_s"),
    ):
        if entries:
            yield _function_table(title, entries, by, reading)


def _function_table(title: str, entries: Sequence[FunctionTime], by: str, reading: Reading) -> Table:
    seconds: Callable[[FunctionTime], float] = attrgetter(by)
    table = _table(title, "calls", "own", "cumul.", "a step", "share")
    for one in sorted(entries, key=seconds, reverse=True)[:_ENTRIES]:
        if seconds(one) < _WORTH_TELLING * reading.total_s:
            break
        step_s = human_seconds(_each(reading, seconds(one))) if reading.steps else "-"
        share = _share(reading, seconds(one))
        own_s, cumulative_s = human_seconds(one.own_s), human_seconds(one.cumulative_s)
        table.add_row(_named(function_name(one)), f"{one.calls:,}", own_s, cumulative_s, step_s, share)
    return table if table.row_count else _table(f"{title}: nothing above {human_percent(_WORTH_TELLING)}")


def _operators(reading: Reading) -> Iterator[RenderableType]:
    for title, place in (("operators, by own time", "cpu"), ("on the device", "device")):
        entries = [one for one in reading.operators if one.place == place]
        if entries:
            yield _operator_table(title, entries, reading)


def _operator_table(title: str, entries: Sequence[OperatorTime], reading: Reading) -> Table:
    table = _table(title, "calls", "own", "cumul.", "a step", "share")
    for one in entries[:_ENTRIES]:
        share = _share(reading, one.own_s if one.busy_s is None else one.busy_s)
        own_s, cumulative_s = human_seconds(one.own_s), human_seconds(one.cumulative_s)
        step_s = human_seconds(_each(reading, one.own_s)) if reading.steps else "-"
        table.add_row(_named(one.name), f"{one.calls:,}", own_s, cumulative_s, step_s, share)
    return table


def _notes(reading: Reading) -> Group | None:
    found = notes(reading)
    return Group(*(Folded(f"note: {one}", style="yellow") for one in found)) if found else None


def _each(reading: Reading, seconds: float) -> float:
    """Return seconds per step, or all of them where no step is known."""
    return seconds / reading.steps.count if reading.steps else seconds


def _share(reading: Reading, seconds: float) -> str:
    """Return seconds as a share of the whole; an empty profile has no shares."""
    return human_percent(seconds / reading.total_s if reading.total_s else None)


def _table(title: str, *headings: str) -> Table:
    """Return an empty table with a column of names, which are cut to fit, and columns of numbers."""
    table = NamedTable(box=None, padding=(0, 0, 0, 1), pad_edge=False, expand=True)
    table.add_column(Text(title, style="bold"), no_wrap=True, overflow="ellipsis", ratio=1)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _named(name: str) -> Text:
    """Return a name with its place dimmed."""
    function, gap, place = name.partition("  ")
    return Text(function).append(f"{gap}{place}", style="dim")
