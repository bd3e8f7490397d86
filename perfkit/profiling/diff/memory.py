"""What differs between two snapshots of an allocator, by the stacks that asked for memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from perfkit.model.memory import MemoryDifference, MemoryPart, MemorySnapshot, StackMemory

_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages|torch|lib/python[\d.]+)/|^<")
_PYTHON = re.compile(r"\.py:\d+ ")
_BACKWARD = re.compile(r"\bautograd::generated::\w+Backward\w*::apply\b")
_LINE = re.compile(r":\d+ ")
_UNKNOWN = "stacks that were not recorded"
_Key = tuple[int, tuple[str, ...]]


def explain_memory(base: MemorySnapshot, head: MemorySnapshot) -> MemoryDifference:
    """Return the difference of two snapshots in parts that add up to it.

    Stacks are the same where all of their lines are. Of those that only one side has, stacks through the same
    functions of the same files are taken to be the same, since lines move with each change of a file.
    """
    parts = [
        *_stacks(base.stacks, head.stacks),
        MemoryPart(name="rounding of sizes", base=base.rounding, head=head.rounding),
        MemoryPart(name="waiting for other streams", base=base.waiting, head=head.waiting),
        MemoryPart(name="free between blocks in use", base=base.fragments, head=head.fragments),
        MemoryPart(name="free in whole segments", base=base.unused, head=head.unused),
    ]
    return MemoryDifference(
        base=base.name,
        head=head.name,
        whole=MemoryPart(name="reserved", base=base.reserved, head=head.reserved),
        parts=tuple(sorted(parts, key=lambda part: (-abs(part.moved), -part.head))),
        base_peak=base.peak_reserved,
        head_peak=head.peak_reserved,
    )


def own_place(stack: tuple[str, ...]) -> str:
    """Return the innermost line of Python that is in no library.

    Else it is the innermost of all lines of Python, or the backward function of C++ that asked, since
    backward passes run in threads without Python, or the innermost place of all.
    """
    python = [place for place in stack if _PYTHON.search(place)]
    own = [place for place in python if not _LIBRARY.search(place)]
    backward = [place for place in stack if _BACKWARD.search(place)]
    return next(iter((*own, *python, *backward, *stack)), "")


def _stacks(base: Iterable[StackMemory], head: Iterable[StackMemory]) -> list[MemoryPart]:
    old, new = ({(one.device, one.stack): one for one in side} for side in (base, head))
    parts = [_part(old[key], new[key]) for key in old.keys() & new.keys()]
    left_old, left_new = _without_lines(old, new), _without_lines(new, old)
    return parts + [_part(left_old.get(key), left_new.get(key)) for key in {**left_old, **left_new}]


def _without_lines(
    mine: Mapping[_Key, StackMemory], theirs: Mapping[_Key, StackMemory]
) -> dict[_Key, StackMemory]:
    """Return what only one side has, added up over stacks that differ in their lines alone."""
    found: dict[_Key, StackMemory] = {}
    for key, one in mine.items():
        if key in theirs:
            continue
        short = one.device, tuple(_LINE.sub(" ", place) for place in one.stack)
        known = found.get(short)
        found[short] = StackMemory(
            device=one.device,
            stack=known.stack if known else one.stack,
            size=one.size + (known.size if known else 0),
            blocks=one.blocks + (known.blocks if known else 0),
        )
    return found


def _part(old: StackMemory | None, new: StackMemory | None) -> MemoryPart:
    shown = new or old
    assert shown is not None  # noqa: S101 (one side has it)
    place = own_place(shown.stack)
    return MemoryPart(
        name=place.partition(" ")[2] if place else _UNKNOWN,
        place=place.partition(" ")[0],
        stack=shown.stack,
        base=old.size if old else 0,
        head=new.size if new else 0,
        base_blocks=old.blocks if old else 0,
        head_blocks=new.blocks if new else 0,
    )
