"""Snapshots of an accelerator's allocator: read without running them, and compared."""

from __future__ import annotations

import io
import itertools
import pickle
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from perfkit.errors import UsageError
from perfkit.model.readings import MemoryDifference, MemoryPart, MemorySnapshot, StackMemory
from perfkit.profiling.read.names import printable

# No device has as much; larger numbers could not be handed on.
_MOST_BYTES = 1 << 60
_IN_USE, _FREE = "active_allocated", "inactive"
# The states in which a block waits for other streams; their name changed once.
_WAITING = frozenset({"active_pending_free", "active_awaiting_free"})
# What an event of the history adds to what is reserved, and to what tensors have.
_RESERVES: Mapping[str, int] = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_ALLOCATES: Mapping[str, int] = {"alloc": 1, "free_completed": -1}
# What unpickling plain values may raise where they are damaged.
_DAMAGE = (
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError, AttributeError),
    *(OverflowError, UnicodeDecodeError, NotImplementedError, ImportError),
)
_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages|torch|lib/python[\d.]+)/|^<")
_PYTHON = re.compile(r"\.py:\d+ ")
_BACKWARD = re.compile(r"\bautograd::generated::\w+Backward\w*::apply\b")
_LINE = re.compile(r":\d+ ")
_UNKNOWN = "stacks that were not recorded"
_Key = tuple[int, tuple[str, ...]]


class _Refused(Exception):  # noqa: N818 (reported as a mistake of the file)
    """The pickle names something that would be called."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds what needs no class: lists, dicts, tuples, sets, texts, bytes and numbers."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise _Refused(f"{module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> NoReturn:  # noqa: ANN401 (any object)
        raise _Refused(f"an object outside of it, {str(pid)[:40]}")


def read_snapshot(data: bytes, name: str) -> MemorySnapshot:
    """Return the snapshot, from whichever version of torch."""
    try:
        found = _PlainUnpickler(io.BytesIO(data)).load()
    except _Refused as error:
        raise UsageError(
            f"{name} is a pickle that would call {printable(str(error))}, so it was not opened further;"
            " a snapshot of torch.cuda.memory._dump_snapshot has plain values only"
        ) from None
    except _DAMAGE as error:
        raise UsageError(
            f"{name} is a damaged pickle ({printable(str(error))}); dump the snapshot again"
        ) from None
    try:
        return _snapshot(found, name)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        raise UsageError(
            f"{name} is a pickle, but no memory snapshot ({type(error).__name__}: {printable(str(error))});"
            " expected what torch.cuda.memory._dump_snapshot writes"
        ) from None


def _snapshot(found: Any, name: str) -> MemorySnapshot:  # noqa: ANN401 (anybody's data)
    segments = found["segments"] if isinstance(found, dict) else found
    traces = found.get("device_traces", []) if isinstance(found, dict) else []
    if not isinstance(segments, list):
        raise TypeError("its segments are no list")
    stacks: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(lambda: [0, 0])
    sums: dict[str, int] = defaultdict(int)
    reserved: dict[int, int] = defaultdict(int)
    allocated: dict[int, int] = defaultdict(int)
    for segment in segments:
        device, total = _size(segment.get("device", 0)), _size(segment["total_size"])
        reserved[device] += total
        blocks = list(_blocks(segment, total))
        idle = all(state == _FREE for state, *_ in blocks)
        for state, size, requested, stack in blocks:
            if state == _IN_USE:
                entry = stacks[device, stack]
                entry[0] += requested
                entry[1] += 1
                sums["rounding"] += size - requested
                allocated[device] += size
            elif state in _WAITING:
                sums["waiting"] += size
            else:
                sums["unused" if idle else "fragments"] += size
                sums["largest_free"] = max(sums["largest_free"], size)
    peaks = [_peaks(trace, reserved[device], allocated[device]) for device, trace in enumerate(traces)]
    return MemorySnapshot(
        name=name,
        reserved=sum(reserved.values()),
        segments=len(segments),
        stacks=_largest_first(stacks),
        rounding=sums["rounding"],
        waiting=sums["waiting"],
        fragments=sums["fragments"],
        unused=sums["unused"],
        largest_free=sums["largest_free"],
        peak_reserved=max((*(peak for peak, _ in peaks), *reserved.values()), default=0),
        peak_allocated=max((*(peak for _, peak in peaks), *allocated.values()), default=0),
        events=sum(map(len, traces)),
    )


def _largest_first(stacks: Mapping[tuple[int, tuple[str, ...]], list[int]]) -> tuple[StackMemory, ...]:
    found = (
        StackMemory(device=device, stack=stack, size=size, blocks=blocks)
        for (device, stack), (size, blocks) in stacks.items()
    )
    return tuple(sorted(found, key=lambda one: (-one.size, one.stack)))


def _blocks(segment: Mapping[str, Any], total: int) -> Iterator[tuple[str, int, int, tuple[str, ...]]]:
    left = total
    for block in segment["blocks"]:
        size, state = _size(block["size"]), str(block["state"])
        left -= size
        # Versions before 2.1 kept the tensors that a block has had, the present one first.
        past = block.get("history") or [{}]
        requested = _size(block.get("requested_size", past[0].get("real_size", size)))
        frames = block.get("frames", past[0].get("frames", ()))
        yield state, size, min(requested, size), _stack(frames)
    if left < 0:
        raise ValueError(f"its blocks have {-left} bytes more than their segment")
    if left:
        yield _FREE, left, left, ()


def _stack(frames: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    named = ((str(one["filename"]), int(one["line"]), str(one["name"])) for one in frames)
    return tuple(printable(f"{file}:{line} {name}") for file, line, name in named if file != "??")


def _peaks(trace: Iterable[Mapping[str, Any]], reserved: int, allocated: int) -> tuple[int, int]:
    events = list(trace)
    peaks = []
    for adds, now in ((_RESERVES, reserved), (_ALLOCATES, allocated)):
        changes = (
            adds.get(str(one.get("action")), 0) * _size(one.get("size", 0)) for one in reversed(events)
        )
        # Backwards in time each change is undone.
        peaks.append(max(itertools.accumulate((-change for change in changes), initial=now)))
    return peaks[0], peaks[1]


def _size(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= _MOST_BYTES:
        raise TypeError(f"{str(value)[:40]} is no number of bytes")
    return value


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
