"""Snapshots of an allocator, and the difference of two, in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from perfkit.model.memory import MemoryDifference, MemoryPart, MemorySnapshot
from perfkit.profiling.diff.memory import own_place
from perfkit.units import counted, human_bytes

_MOST_SHOWN = 20
_MOST_PLACE = 60


def snapshot_view(snapshot: MemorySnapshot, *, gib: float | None = None) -> Group:
    """Return who holds memory, largest first, and the other parts; ``gib`` asks whether it would fit."""
    held = counted(snapshot.segments, "segment")
    title = Text(f"{snapshot.name}: {human_bytes(snapshot.reserved)} reserved in {held}", style="bold")
    table = _table(("bytes", "blocks"))
    for one in snapshot.stacks[:_MOST_SHOWN]:
        table.add_row(_cut(own_place(one.stack)) or "not recorded", human_bytes(one.size), str(one.blocks))
    more = snapshot.stacks[_MOST_SHOWN:]
    if more:
        rest = sum(one.size for one in more)
        table.add_row(
            counted(len(more), "more stack"), human_bytes(rest), str(sum(one.blocks for one in more))
        )
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
        f" {human_bytes(whole.head)} ({_signed(whole.moved)})",
        style="bold",
    )
    table = _table(("base", "head", "moved"))
    moved = [part for part in difference.parts if part.moved]
    for part in moved[:_MOST_SHOWN]:
        table.add_row(_named(part), human_bytes(part.base), human_bytes(part.head), _signed(part.moved))
    rest = [part for part in difference.parts if part not in moved[:_MOST_SHOWN]]
    base, head = sum(part.base for part in rest), sum(part.head for part in rest)
    table.add_row("all others", human_bytes(base), human_bytes(head), _signed(head - base))
    table.add_row("together", human_bytes(whole.base), human_bytes(whole.head), _signed(whole.moved))
    peaks = f"Peak of what was reserved on one device: {human_bytes(difference.base_peak)} to"
    return Group(title, table, Text(f"{peaks} {human_bytes(difference.head_peak)}."))


def _table(numbers: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("who asked for it", overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _named(part: MemoryPart) -> str:
    if part.base_blocks == part.head_blocks or part.head_blocks is None:
        blocks = ""
    else:
        blocks = f" ({part.base_blocks} to {counted(part.head_blocks, 'block')})"
    return f"{_cut(f'{part.place} {part.name}'.strip())}{blocks}"


def _cut(place: str) -> str:
    return place if len(place) <= _MOST_PLACE else f"…{place[1 - _MOST_PLACE :]}"


def _signed(size: int) -> str:
    return f"{'-' if size < 0 else '+'}{human_bytes(abs(size))}"
