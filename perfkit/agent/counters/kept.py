"""Counts the bytes that each call keeps for ever: Python objects, tensors and native memory.

Calls are made in equal blocks. Memory that grows in nearly every block, by about the same amount, is kept; a
list that doubles its capacity, or a cache that is full, does not grow so.
"""

from __future__ import annotations

import array
import collections
import contextlib
import ctypes
import functools
import gc
import logging
import math
import signal
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Self

from .interventions import undone_in_forks, without_garbage_collection
from .model import KEPT, MOST_KEPT_S, Count, Counts, Places, causes_of
from .torch_adapter import no_overrides, storage_of

TOO_LONG = "there was no time for more of its calls"
TRACED = "memory is being traced already"
_HERE = Path(__file__).parent.as_posix()
# Nothing is traced in the first blocks, which decide whether there is anything to trace.
_BLOCKS, _TRACED_BLOCKS = 5, 6
_FEWEST_CALLS = 2 + (1 + _BLOCKS) + (1 + _TRACED_BLOCKS)
_LONGEST_CALL_S = 0.15
_WARM_UP_S, _BLOCK_S, _LONG_BLOCK_S, _TRACED_BLOCK_S = 0.015, 0.005, 0.02, 0.01
_MOST_CALLS_TRACED, _MOST_TRACED = 30, 400
# In a loop that keeps nothing so far no more steps are read.
_FEWEST_STEPS, _MOST_STEPS, _MOST_STEPS_S = 4, 8, 3.0
TOO_FEW_STEPS = "it made too few optimizer steps, or too slow ones"
_MOST_KEPT = 64 << 20
_FRAMES = 12
# A call that keeps less than this in each of these ways is not traced: allocated blocks, bytes of malloc.
_LEAST_BLOCKS, _LEAST_BYTES = 0.5, 128
# A line that keeps less keeps a number for a log, or a text that torch itself loses in each step.
_LEAST_OF_A_LINE = 128
# The pieces of small objects are Python's own, those of others malloc's.
_SMALL = 512
# The objects in C++ that belong to a tensor and its storage.
_TENSOR_BYTES = 320
_NATIVE, _GRAPH = "native memory", "tensor with its graph"
# Native memory that nothing else explains is noticed from this many bytes on, and this share of all.
_UNEXPLAINED, _UNEXPLAINED_SHARE = 256, 0.25
_MOST_OBJECTS, _MOST_PARTS, _MOST_HOLDERS, _SAMPLES = 10_000, 200, 6, 20
_HALF = _MOST_PARTS // 2
_LIMITS = ("maxsize", "max_size", "maxlen", "capacity")


class _Malloc(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


@functools.cache
def _malloc_info() -> Callable[[], _Malloc] | None:
    """Return the function of the C library that knows what is allocated, None where another one allocates."""
    read: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if read is None:
        return None
    read.restype = _Malloc
    before = read()
    probe = bytearray(1 << 17)
    after = read()
    grown = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd
    return read if grown >= len(probe) else None


def _native_bytes() -> int:
    read = _malloc_info()
    found = None if read is None else read()
    return 0 if found is None else int(found.uordblks + found.hblkhd)


def _device_bytes() -> int:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return sum(torch.cuda.memory_allocated(index) for index in range(torch.cuda.device_count()))


def _growth(series: Sequence[float]) -> tuple[float, float]:
    """Return by how much a series grows from one reading to the next, in both halves of it.

    It is zero unless it grows nearly always: one step of many may be another one, as a list has more room.
    """
    steps = [after - before for before, after in pairwise(series)]
    usual = statistics.median_low(steps)
    allowed = len(steps) - (1 if len(steps) > 3 else 0)  # noqa: PLR2004 (of fewer each has to grow)
    if sum(step > 0 for step in steps) < allowed or series[-1] - series[0] < usual * len(steps) / 2:
        return 0.0, 0.0
    half = len(steps) // 2
    return statistics.median_low(steps[:half]), statistics.median_low(steps[half:])


@contextlib.contextmanager
def _unrecorded() -> Iterator[None]:
    """Keep pytest from keeping what is logged, and the warnings."""
    root = logging.getLogger()
    handlers = [one for one in root.handlers if type(one).__module__.startswith("_pytest.")]
    for one in handlers:
        root.removeHandler(one)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for one in handlers:
            root.addHandler(one)


def count_kept(
    call: Callable[[], object], root: Path, *, most_calls: float, most_s: float = MOST_KEPT_S
) -> Count | str:
    """Return the bytes that a call keeps, or why they are not counted, in about ``most_s`` CPU seconds."""
    if most_calls < _FEWEST_CALLS:
        return "it may not be called often enough"
    if tracemalloc.is_tracing():
        return TRACED
    try:
        with _unrecorded(), without_garbage_collection(whole=False):
            return _Calls(call, most_calls=most_calls, most_s=most_s).count(root)
    except Exception as error:  # noqa: BLE001 (the other counts are made already)
        return f"one more call failed: {type(error).__name__}"


class _Calls:
    """Calls of a benchmark, all of which may take some time together."""

    def __init__(self, call: Callable[[], object], *, most_calls: float, most_s: float) -> None:
        self._call, self._many, self._most_s = call, math.isinf(most_calls), most_s
        self._until = time.process_time() + most_s / 2
        self._call_s = 0.0

    def count(self, root: Path) -> Count | str:
        """Return the bytes that a call keeps, or why they are not counted."""
        self._make(1)
        if self._call_s > _LONGEST_CALL_S:
            return TOO_LONG
        self._make(self._fitting(_WARM_UP_S))
        found = self._screened(self._fitting(_BLOCK_S))
        if found is None:
            return TOO_LONG
        native, calls = found
        if native is not None and self._many:
            # A cache that fills up needs longer, as far as memory allows.
            most = int(_MOST_KEPT / max(sum(native[1:]), 1.0) / _BLOCKS)
            longer = max(1, min(self._fitting(_LONG_BLOCK_S), most))
            native, calls = self._screened(longer) or (native, calls)
        if native is None:
            return Count(metric=KEPT, unit="B", values=(0.0, 0.0), causes=())
        self._until += self._most_s
        most = int(_MOST_TRACED / max(native[0], 1.0))
        calls = max(1, min(self._fitting(_TRACED_BLOCK_S), calls, _MOST_CALLS_TRACED, most))
        with Readings(root) as readings:
            for _ in range(1 + _TRACED_BLOCKS):
                if time.process_time() > self._until:
                    return TOO_LONG
                self._make(calls)
                readings.take()
            return readings.count(calls, native[1:])

    def _fitting(self, seconds: float) -> int:
        return max(1, min(int(seconds / max(self._call_s, 1e-7)), 10_000)) if self._many else 1

    def _make(self, calls: int) -> None:
        begun, made = time.perf_counter(), 0
        while made < calls and time.process_time() < self._until:
            self._call()
            made += 1
        self._call_s = (time.perf_counter() - begun) / max(made, 1)

    def _screened(self, calls: int) -> tuple[tuple[float, float, float] | None, int] | None:
        """Return the small objects and the bytes that a call keeps, by kind, and a block's calls.

        It is None where calls become so much slower, since each copies what is kept, that there is no time.
        """
        # Written in place, since readings that are kept as objects would be taken for what a call keeps.
        rows = [array.array("q", [0] * (1 + _BLOCKS)) for _ in range(3)]
        for block in range(1 + _BLOCKS):
            if time.process_time() > self._until:
                return None
            self._make(calls)
            gc.collect(0)
            for row, read in zip(rows, (sys.getallocatedblocks, _native_bytes, _device_bytes), strict=True):
                row[block] = read()
        blocks, native, device = (min(_growth(series)) / calls for series in rows)
        keeps = blocks >= _LEAST_BLOCKS or native >= _LEAST_BYTES or device > 0 or _malloc_info() is None
        return ((blocks, native, device) if keeps else None), calls


def with_kept(counts: Counts, kept: Count | str) -> Counts:
    """Return counts with what is kept, or the reason why that is not counted."""
    if isinstance(kept, str):
        return replace(counts, not_counted={**counts.not_counted, KEPT: kept})
    return replace(counts, counts=(*counts.counts, kept))


class KeptSteps:
    """Reads what a training loop keeps at the ends of some of its steps, for a few seconds at most.

    An alarm ends the loop then, in what follows its last step.
    """

    def __init__(self, root: Path) -> None:
        self._readings = Readings(root)
        self._around = contextlib.ExitStack()
        self._whole = False
        self.found: Count | str = TOO_FEW_STEPS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if len(self._readings) >= _FEWEST_STEPS:
            self.found = self._readings.count()
        self._around.close()

    def begin(self, end: type[BaseException]) -> bool:
        """Begin to trace, and raise ``end`` after some seconds; return whether anything can be traced."""
        if tracemalloc.is_tracing():
            self.found = TRACED
            return False

        def ring(*_: object) -> None:
            raise end

        self._around.enter_context(_unrecorded())
        with contextlib.suppress(ValueError):
            signal.signal(signal.SIGALRM, ring)
            signal.setitimer(signal.ITIMER_REAL, _MOST_STEPS_S)
            self._around.callback(signal.setitimer, signal.ITIMER_REAL, 0)
        self._around.enter_context(self._readings)
        return True

    def end_step(self) -> bool:
        """Read what is alive after a step; return whether no more steps are needed.

        Of the first step only the end was traced.
        """
        if not self._whole:
            self._whole = True
            return False
        self._readings.take()
        read = len(self._readings)
        return read > _MOST_STEPS or (read >= _FEWEST_STEPS and not self._readings.grow())


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """The bytes alive by place, those of them that malloc and devices have, and all that these have."""

    places: dict[str, int]
    explained: tuple[int, int]
    native: tuple[int, int]


class Readings:
    """Reads what is alive at the ends of blocks, while Python's memory is traced."""

    def __init__(self, root: Path) -> None:
        self._places, self._root = Places(root), str(root)
        self._known: dict[tracemalloc.Traceback, str | None] = {}
        self._readings: list[_Reading] = []
        self._own = 0
        self._around = contextlib.ExitStack()

    def __enter__(self) -> Self:
        # What is here by now is not looked at again: this process times nothing, and soon ends.
        gc.collect()
        gc.freeze()
        self._around.enter_context(undone_in_forks(tracemalloc.stop))
        tracemalloc.start(_FRAMES)
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()
        self._around.close()

    def take(self) -> None:
        """Read what is alive now."""
        gc.collect()
        before = _native_bytes()
        native = (before - self._own - tracemalloc.get_tracemalloc_memory(), _device_bytes())
        self._readings.append(self._read(native))
        self._own += _native_bytes() - before

    def __len__(self) -> int:
        return len(self._readings)

    def grow(self) -> bool:
        """Return whether anything has grown so far."""
        return bool(self._growing()) or any(min(pair) > 0 for pair in self._unexplained(None))

    def count(self, calls: int = 1, native: tuple[float, float] | None = None) -> Count:
        """Return the bytes that a call keeps; ``native`` are those of malloc and devices, where known."""
        growing = self._growing(_LEAST_OF_A_LINE * calls)
        found = _Kept(self._places_of, growing.keys(), self._own_modules()).named()
        for place in [place for place, what in found.items() if what is None]:
            # A container that holds no more than a limit holds these.
            del growing[place]
        bounded = len(found) > 0 and not growing
        unexplained = (0.0, 0.0) if bounded else self._most_unexplained(native, calls)
        amounts = {
            (found.get(place) or "memory", place): min(pair) / calls for place, pair in growing.items()
        }
        if min(unexplained) > 0:
            graph = next((key for key in amounts if key[0] == _GRAPH), (_NATIVE, ""))
            amounts[graph] = amounts.get(graph, 0.0) + min(unexplained) / calls
        values = (sum(halves) / calls for halves in zip(unexplained, *growing.values(), strict=True))
        return Count(
            metric=KEPT,
            unit="B",
            values=tuple(float(round(value)) for value in values),
            causes=causes_of({source: float(round(amount)) for source, amount in amounts.items()}),
        )

    def _growing(self, least: float = _LEAST_OF_A_LINE) -> dict[str, tuple[float, float]]:
        last = self._readings[-1].places
        every = {place: _growth([one.places.get(place, 0) for one in self._readings]) for place in last}
        return {place: pair for place, pair in every.items() if min(pair) >= least}

    def _most_unexplained(self, native: tuple[float, float] | None, calls: int) -> tuple[float, float]:
        pairs = self._unexplained(None if native is None else (native[0] * calls, native[1] * calls))
        first, last = map(sum, zip(*pairs, strict=True))
        return first, last

    def _unexplained(self, native: tuple[float, float] | None) -> list[tuple[float, float]]:
        """Return by how much malloc and devices grow beyond what is known by its place."""
        pairs = []
        for kind in (0, 1):
            explained = _growth([one.explained[kind] for one in self._readings])
            whole = _growth([one.native[kind] for one in self._readings])
            if native is not None:
                whole = (native[kind],) * 2 if min(whole) > 0 else (0.0, 0.0)
            rest = min(whole) - max(explained)
            clear = rest >= _UNEXPLAINED and rest >= _UNEXPLAINED_SHARE * min(whole)
            pairs.append((rest, rest) if clear else (0.0, 0.0))
        return pairs

    def _read(self, native: tuple[int, int]) -> _Reading:
        alive: dict[str, int] = {}
        large = on_device = 0
        for trace in tracemalloc.take_snapshot().traces:
            place = self._place(trace.traceback)
            if place is not None:
                alive[place] = alive.get(place, 0) + trace.size
                large += trace.size if trace.size > _SMALL else 0
        for place, tensor, nbytes in self._tensors():
            alive[place] = alive.get(place, 0) + nbytes + _TENSOR_BYTES
            large += _TENSOR_BYTES + (nbytes if tensor.is_cpu else 0)
            on_device += 0 if tensor.is_cpu else nbytes
        return _Reading(places=alive, explained=(large, on_device), native=native)

    def _tensors(self) -> Iterator[tuple[str, Any, int]]:
        """Yield the tensors made meanwhile, their places, and the bytes of storages that are not shared."""
        torch: Any = sys.modules.get("torch")
        if torch is None:
            return
        seen: set[int] = set()
        older = 0
        for one in reversed(gc.get_objects()):
            if not issubclass(type(one), torch.Tensor):
                continue
            place = self._places_of(one)
            older = 0 if place is not None else older + 1
            if older > _SAMPLES:
                return
            if place is not None:
                with no_overrides():
                    storage = storage_of(one)
                    known = storage is None or storage.data_ptr() in seen
                    if not known:
                        seen.add(storage.data_ptr())
                    yield place, one, 0 if known else storage.nbytes()

    def _places_of(self, one: object) -> str | None:
        traceback = _traceback_of(one)
        return None if traceback is None else self._place(traceback)

    def _place(self, traceback: tracemalloc.Traceback) -> str | None:
        """Return the line that allocated something, None for what the counting itself has."""
        try:
            return self._known[traceback]
        except KeyError:
            inner = traceback[-1]
            own = inner.filename.startswith((_HERE, tracemalloc.__file__))
            stack = [(frame.filename, frame.lineno) for frame in traceback]
            place = None if own else self._places.innermost(stack) or self._places.shortened(*stack[-1])
            self._known[traceback] = place
            return place

    def _own_modules(self) -> list[dict[str, object]]:
        modules = [one for one in list(sys.modules.values()) if isinstance(one, ModuleType)]
        files = [(one, str(getattr(one, "__file__", None))) for one in modules]
        return [vars(one) for one, file in files if file.startswith(self._root) and self._places.is_own(file)]


# Python 3.11 does not look for an object before its dictionary and weak references.
_OFFSET = 4 * tuple.__itemsize__


def _traceback_of(one: object) -> tracemalloc.Traceback | None:
    found = tracemalloc.get_object_traceback(one)
    if found is not None or not gc.is_tracked(one):
        return found
    raw = _reader()(0, id(one) - _OFFSET)
    return None if raw is None else tracemalloc.Traceback(raw)


@functools.cache
def _reader() -> Callable[[int, int], Any]:
    read: Any = getattr(ctypes.pythonapi, "_PyTraceMalloc_GetTraceback", None)
    if read is None:
        return lambda *_: None
    read.restype, read.argtypes = ctypes.py_object, (ctypes.c_uint, ctypes.c_size_t)
    found: Callable[[int, int], Any] = read
    return found


class _Kept:
    """Finds the objects that were allocated at growing places, and what holds them."""

    def __init__(
        self,
        place_of: Callable[[object], str | None],
        places: Collection[str],
        modules: Sequence[Mapping[str, object]],
    ) -> None:
        self._place_of, self._places, self._modules = place_of, places, modules
        self._holders: dict[int, object] = {}
        self._at: dict[str, dict[int, object]] = collections.defaultdict(dict)

    def named(self) -> dict[str, str | None]:
        """Return the type of most of the bytes at each place; None where a limit bounds what is held."""
        if self._places:
            # What the tree's own modules hold comes first, then what was made last, oldest first.
            self._walk(self._modules)
            self._walk(gc.get_objects()[-_MOST_OBJECTS:])
        return {place: self._name(list(found.values())) for place, found in self._at.items()}

    def _walk(self, roots: Sequence[object]) -> None:
        waiting = collections.deque(roots)
        seen = {id(self), id(vars(self)), id(self._holders), id(self._at), id(waiting), id(roots)}
        left = 5 * _MOST_OBJECTS
        while waiting and left > 0:
            one = waiting.popleft()
            if id(one) in seen:
                continue
            seen.add(id(one))
            self._note(one)
            parts = gc.get_referents(one)
            left -= 1 + min(len(parts), _MOST_PARTS)
            for part in parts if len(parts) <= _MOST_PARTS else (*parts[:_HALF], *parts[-_HALF:]):
                if id(part) in self._holders or self._is_elsewhere(part):
                    continue
                self._holders[id(part)] = one
                # A dictionary or tuple of texts and numbers alone is not tracked.
                if gc.is_tracked(part) or issubclass(type(part), (dict, tuple)):
                    waiting.append(part)
                else:
                    self._note(part)

    def _is_elsewhere(self, one: object) -> bool:
        """Return whether something is code of a library, through which all else could be reached."""
        # `isinstance` would ask each object for its `__class__`, which may raise.
        if issubclass(type(one), (type, FunctionType)):
            return all(one.__module__ != module.get("__name__") for module in self._modules)
        return issubclass(type(one), ModuleType)

    def _note(self, one: object) -> None:
        place = self._place_of(one)
        if place in self._places:
            self._at[place][id(one)] = one  # type: ignore[index]

    def _name(self, found: Sequence[object]) -> str | None:
        if sum(map(self._is_bounded, found[-_SAMPLES:])) * 2 > min(len(found), _SAMPLES):
            return None
        sizes: collections.Counter[str] = collections.Counter()
        for one in found:
            sizes[_type_name(one)] += _size(one)
        return sizes.most_common(1)[0][0]

    def _is_bounded(self, one: object) -> bool:
        for _ in range(_MOST_HOLDERS):
            with contextlib.suppress(Exception):
                if _has_limit(one):
                    return True
            holder = self._holders.get(id(one))
            if holder is None:
                return False
            one = holder
        return False


_LRU_CACHE = type(functools.lru_cache(len))


def _has_limit(one: object) -> bool:
    if isinstance(one, collections.deque):
        return one.maxlen is not None
    if isinstance(one, _LRU_CACHE):
        return one.cache_parameters()["maxsize"] is not None
    attributes = getattr(one, "__dict__", None) if not isinstance(one, (dict, list, tuple)) else None
    return isinstance(attributes, dict) and any(
        isinstance(name, str) and name.endswith(_LIMITS) and isinstance(value, int) and value > 0
        for name, value in attributes.items()
    )


def _type_name(one: object) -> str:
    if _is_tensor(one):
        return _GRAPH if getattr(one, "grad_fn", None) is not None else type(one).__name__
    return type(one).__qualname__


def _is_tensor(one: object) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and issubclass(type(one), torch.Tensor)


def _size(one: object) -> int:
    with contextlib.suppress(Exception):
        storage = storage_of(one) if _is_tensor(one) else None
        return sys.getsizeof(one) + (storage.nbytes() if storage is not None else 0)
    return 0
