"""A snapshot of an accelerator's allocator, as ``torch.cuda.memory._dump_snapshot`` writes it.

It is a pickle of lists, dicts, texts and numbers. A pickle can name any function to be called, so this reader
refuses all that names one: it has no class to give and no object to load.
"""

from __future__ import annotations

import io
import itertools
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn

from perfkit.errors import UsageError
from perfkit.model.memory import MemorySnapshot, StackMemory
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


class _Refused(Exception):  # noqa: N818 (told as a mistake of the file)
    """The pickle names something that would be called."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds what needs no class: lists, dicts, tuples, sets, texts, bytes and numbers."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        """Refuse whatever is named."""
        raise _Refused(f"{module_name}.{global_name}")

    def persistent_load(self, pid: Any) -> NoReturn:  # noqa: ANN401 (whatever the file holds)
        """Refuse whatever lies outside of the file."""
        raise _Refused(f"an object outside of it, {str(pid)[:40]}")


def read_snapshot(data: bytes, name: str) -> MemorySnapshot:
    """Return what a snapshot says, whichever version of torch wrote it.

    Raises:
        UsageError: it is damaged, is no snapshot, or names something that would be called.
    """
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
    """Return the snapshot; older versions of torch wrote the list of segments alone."""
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
    """Yield state, size, requested size and stack of each block, and what no block tells of as free."""
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
    """Return the places of a stack; those of C++ that nobody could name are left out."""
    named = ((str(one["filename"]), int(one["line"]), str(one["name"])) for one in frames)
    return tuple(printable(f"{file}:{line} {name}") for file, line, name in named if file != "??")


def _peaks(trace: Iterable[Mapping[str, Any]], reserved: int, allocated: int) -> tuple[int, int]:
    """Return the most that was reserved and allocated in the history, which ends at the moment itself."""
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
