"""Memory for people: by line, by phase of a step, snapshots of an allocator, and the difference of two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfkit.model import LineMemory, MemoryProfile
from perfkit.model.readings import MemoryDifference, MemoryPart, MemorySnapshot, PhaseMemory
from perfkit.profiling.read.memory import own_place
from perfkit.report.names import Folded, named_table
from perfkit.units import counted, human_bytes, signed_amount

_MOST_LINES = 8
# A line that grows by less is not worth a sentence of its own.
_WORTH_NAMING_BYTES = 1024
_MOST_STACKS = 20
_MOST_PLACE = 60
_HEAD = f"{'a step':>11} {'stays':>11} {'growth':>11}  of       line"


def phase_memory_table(phases: Sequence[PhaseMemory]) -> Table | None:
    """Return the most that a device's allocator held in each phase of a step, where that was recorded."""
    if not phases:
        return None
    table = named_table("device memory, most in a step", "tensors", "reserved", "unusable", "retries")
    for one in phases:
        sizes = map(human_bytes, (one.allocated, one.reserved, one.unusable))
        table.add_row(Text(one.name), *sizes, str(one.retries) if one.retries else "")
    return table


def line_memory_views(memory: MemoryProfile) -> Iterator[RenderableType]:
    """Yield the lines that allocate most bytes a step, those whose bytes stay, and which of them grow."""
    unit = "a step" if memory.steps else "the run"
    allocating = sorted(
        (line for line in memory.lines if line.step_bytes), key=lambda line: -(line.step_bytes or 0.0)
    )
    staying = sorted((line for line in memory.lines if line.stays_bytes), key=lambda line: -line.stays_bytes)
    for title, lines in (
        (f"tensors, by bytes allocated in {unit}", allocating),
        ("memory that stays, by bytes", staying),
    ):
        if lines:
            table = named_table(title, unit, "stays", "growth")
            for line in lines[:_MOST_LINES]:
                name = Text(line.what or line.kind).append(f"  {line.place or 'no own line'}", style="dim")
                table.add_row(name, *_line_bytes(line))
            yield table
    yield Group(*map(Folded, _growth(memory)))


def _line_bytes(line: LineMemory) -> tuple[str, str, str]:
    step = "-" if line.step_bytes is None else human_bytes(round(line.step_bytes))
    return step, human_bytes(line.stays_bytes), signed_amount(line.growth_bytes, "B")


def _growth(memory: MemoryProfile) -> Iterator[str]:
    """Yield which lines grow in each step after the set-up, or why none can be named, and what is missing."""
    growing = sorted((line for line in memory.lines if line.leaks), key=lambda line: -line.growth_bytes)
    named = [line for line in growing if line.growth_bytes >= _WORTH_NAMING_BYTES][:_MOST_LINES]
    for line in named:
        of = f"{line.kind}{f', {line.what}' if line.what else ''}"
        yield (
            f"leak: {line.place or 'no own line'} ({of}) grows in each step after the set-up, by"
            f" {human_bytes(round(line.growth_bytes))}: something still holds what it allocates"
        )
    others = growing[len(named) :]
    if others:
        each = human_bytes(round(sum(line.growth_bytes for line in others)))
        many = f"{counted(len(others), 'line')}{' more' if named else ''}"
        yield f"{many} {'grows' if len(others) == 1 else 'grow'} in each step, by {each} together"
    elif not named and memory.shows_growth:
        yield "no line grows in each step after the set-up: no leak"
    if not memory.shows_growth:
        yield f"{counted(memory.steps, 'step')}: too few to distinguish a leak from what is set up once"
    if memory.not_seen:
        yield f"not seen: {memory.not_seen}"


def memory_text(memory: MemoryProfile) -> str:
    """Return all lines that are kept as a plain table, for the file of the memory pass."""
    whole = (
        f"of {memory.steps}" if memory.steps else "which is the whole run, since no optimizer step was seen"
    )
    lines = [
        f"Bytes allocated in a step, {whole}; alive after the last one; and by how much that grew in a step.",
        "Of Python's objects only living ones are known. The line is where memory was allocated.",
        *([f"Not seen: {memory.not_seen}."] if memory.not_seen else []),
        "",
        _HEAD,
    ]
    for line in memory.lines:
        numbers = " ".join(f"{size:>11}" for size in _line_bytes(line))
        parts = (line.place or "no own line", line.what, line.text, "grows" if line.leaks else "")
        lines.append(f"{numbers}  {line.kind:<8} {'  '.join(filter(None, parts))}")
    return "\n".join(lines) + "\n"


def snapshot_view(snapshot: MemorySnapshot, *, gib: float | None = None) -> Group:
    """Return who holds memory, largest first, and the other parts; ``gib`` asks whether it would fit."""
    segments = counted(snapshot.segments, "segment")
    title = Text(f"{snapshot.name}: {human_bytes(snapshot.reserved)} reserved in {segments}", style="bold")
    table = _stack_table("bytes", "blocks")
    for one in snapshot.stacks[:_MOST_STACKS]:
        table.add_row(_cut(own_place(one.stack)) or "not recorded", human_bytes(one.size), str(one.blocks))
    more = snapshot.stacks[_MOST_STACKS:]
    if more:
        sizes, blocks = sum(one.size for one in more), sum(one.blocks for one in more)
        table.add_row(counted(len(more), "more stack"), human_bytes(sizes), str(blocks))
    for name, size in (
        ("rounding of sizes", snapshot.rounding),
        ("waiting for other streams", snapshot.waiting),
        ("free between blocks in use", snapshot.fragments),
        ("free in whole segments", snapshot.unused),
        ("together", snapshot.reserved),
    ):
        table.add_row(name, human_bytes(size), "")
    return Group(title, table, Text("\n".join(_peaks(snapshot, gib))))


def _peaks(snapshot: MemorySnapshot, gib: float | None) -> Iterator[str]:
    when = f"over {counted(snapshot.events, 'event')}" if snapshot.events else "now, no history was recorded"
    reserved, allocated = human_bytes(snapshot.peak_reserved), human_bytes(snapshot.peak_allocated)
    yield f"At most {allocated} in use and {reserved} reserved on one device ({when})."
    yield f"The largest free block has {human_bytes(snapshot.largest_free)}."
    if gib is None:
        return
    asked = f"{gib:g} GiB, besides what CUDA itself and other libraries take"
    found = snapshot.fits(gib)
    if found is None:
        yield f"It may fit into {asked}: tensors would, what the allocator reserved did not."
    else:
        yield f"It would {'' if found else 'not '}fit into {asked}."


def memory_difference_view(difference: MemoryDifference) -> Group:
    """Return the parts that moved, the most moved first; they add up to the move of the whole."""
    whole = difference.whole
    title = Text(
        f"{difference.base} to {difference.head}: reserved {human_bytes(whole.base)} to"
        f" {human_bytes(whole.head)} ({signed_amount(whole.moved, 'B')})",
        style="bold",
    )
    table = _stack_table("base", "head", "moved")
    shown = [part for part in difference.parts if part.moved][:_MOST_STACKS]
    rest = [part for part in difference.parts if part not in shown]
    base, head = sum(part.base for part in rest), sum(part.head for part in rest)
    for name, one in (
        *((_part_name(part), part) for part in shown),
        ("all others", MemoryPart(name="", base=base, head=head)),
        ("together", whole),
    ):
        table.add_row(name, human_bytes(one.base), human_bytes(one.head), signed_amount(one.moved, "B"))
    peaks = f"Peak of what was reserved on one device: {human_bytes(difference.base_peak)} to"
    return Group(title, table, Text(f"{peaks} {human_bytes(difference.head_peak)}."))


def _stack_table(*numbers: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("who asked for it", overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _part_name(part: MemoryPart) -> str:
    blocks = ""
    if part.head_blocks is not None and part.base_blocks != part.head_blocks:
        blocks = f" ({part.base_blocks} to {counted(part.head_blocks, 'block')})"
    return f"{_cut(f'{part.place} {part.name}'.strip())}{blocks}"


def _cut(place: str) -> str:
    return place if len(place) <= _MOST_PLACE else f"…{place[1 - _MOST_PLACE :]}"
