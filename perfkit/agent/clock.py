"""The clock of timed blocks: it waits for the accelerator once at both ends, and asks for the device's time.

Everything goes through the parts of torch that all accelerators share, so that CUDA, ROCm, XPU, MPS and
backends that register themselves are timed alike.
"""

from __future__ import annotations

import functools
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

# Dynamo's own part, the backend and what that calls are inside of these two.
_COMPILING = ("_compile.compile_inner", "backward._backward_impl")
# Kernels are tried when they first run, after compiling, or for templates such as matrix products within it.
_TUNING_AFTER = (
    "CachingAutotuner.benchmark_all_configs",
    "CachingAutotuner.coordinate_descent_tuning",
    "CachingAutotuner.combo_sequential_autotune",
)
_TUNING_WITHIN = ("_template_autotuning", "_template_precompiling")
_GRAPHS = "unique_graphs"
UNREPORTED = "time of compiling not told"


@dataclass(frozen=True, kw_only=True)
class ColdStart:
    """A first call in seconds, and torch.compile's account of its compiling and autotuning.

    Both parts are None where torch.compile does not report them; tuning by libraries such as cuDNN is in the
    rest.
    """

    total_s: float
    compiling_s: float | None = None
    autotuning_s: float | None = None
    graphs: int = 0

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks of its row: whether it compiled for a time that torch does not report."""
        return (UNREPORTED,) if self.graphs and self.compiling_s is None else ()


@dataclass(frozen=True, kw_only=True)
class CompileTimes:
    """What torch.compile has spent in this process, in seconds by name, and how many graphs it compiled."""

    seconds: Mapping[str, float]
    graphs: int


def read_compile_times() -> CompileTimes | None:
    """Return what torch.compile has spent so far; None where it is not loaded, or does not report it."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    if dynamo is None:
        return None
    try:
        names, seconds = dynamo.compile_times(repr="csv", aggregate=True)
        graphs = int(dynamo.counters["stats"][_GRAPHS])
        return CompileTimes(seconds=dict(zip(names, map(float, seconds), strict=True)), graphs=graphs)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def cold_start(first: Callable[[], float]) -> ColdStart:
    """Make a first call by a function that returns its seconds, and return what it was made of."""
    before = read_compile_times()
    return cold_start_since(before, first())


def cold_start_since(before: CompileTimes | None, total_s: float) -> ColdStart:
    """Return what a first call of this many seconds was made of, which ended just now."""
    before = before or CompileTimes(seconds={}, graphs=0)
    after = read_compile_times()
    if after is None:
        return ColdStart(total_s=total_s)
    spent = {name: seconds - before.seconds.get(name, 0.0) for name, seconds in after.seconds.items()}
    whole_s = sum(spent.get(name, 0.0) for name in _COMPILING)
    graphs = max(after.graphs - before.graphs, 0)
    if graphs and not whole_s:
        # This torch compiles, and keeps its times under names that are not known here.
        return ColdStart(total_s=total_s, graphs=graphs)
    within_s = sum(seconds for name, seconds in spent.items() if name.endswith(_TUNING_WITHIN))
    after_s = sum(spent.get(name, 0.0) for name in _TUNING_AFTER)
    return ColdStart(
        total_s=total_s,
        compiling_s=max(whole_s - within_s, 0.0),
        autotuning_s=within_s + after_s,
        graphs=graphs,
    )


Timer = Callable[[], float]

# The marks of a row, about how its values were measured.
LAUNCH_BOUND = "launch-bound"
UNSYNCHRONISED = "unsynchronised"
L2_FLUSHED = "L2 flushed"
NOT_WARM = "not settled"
ALONE = "alone on the device"
# A block whose calls return only after this share of the device's time is bound by the host.
_HOST_SHARE = 0.9
# Rounds of a benchmark are some thousands; the oldest blocks of a clock that nobody asks are dropped.
_MOST_SPANS = 200_000
_MS = 1e-3
_OF_MEMORY = ("mem_get_info", "memory_reserved", "max_memory_reserved")
# A buffer of this size replaces what the second-level cache of any present device holds.
_LEAST_FLUSHED_BYTES = 256 << 20
_FLUSHED_CACHES = 4


class DeviceEvent(Protocol):
    """A point in a device's queue, as ``torch.Event`` is one."""

    def record(self) -> None:
        """Put the point behind all work that is in the queue now."""

    def elapsed_time(self, other: Any, /) -> float:  # noqa: ANN401 (another event of the same device)
        """Return how many milliseconds later the device reached the other event; both must be reached."""


class Accelerator(Protocol):
    """What a clock needs of an accelerator that this process uses."""

    def synchronise(self) -> None:
        """Wait until the devices have done all their work."""

    def event(self) -> DeviceEvent | None:
        """Return a new event that can be timed; None where the device has none."""

    def flush(self) -> None:
        """Queue work that replaces what the device's second-level cache holds."""


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """A device's memory in bytes: all, what is free, and what this process reserves now and did at most."""

    index: int
    total: int
    free: int
    reserved: int
    peak: int


class TorchAccelerator:
    """An accelerator by the functions that torch has for all kinds of them, such as "cuda" or "xpu"."""

    def __init__(self, torch: Any, kind: str) -> None:  # noqa: ANN401 (the module, which this one never imports)
        self._torch, self.kind = torch, kind
        self._module = getattr(torch, kind, None) or torch.get_device_module(kind)
        self._has_events = True
        self._buffer: Any = None

    @property
    def module(self) -> Any:  # noqa: ANN401 (torch.cuda, torch.xpu and the like)
        """The functions of this kind alone."""
        return self._module

    def is_initialised(self) -> bool:
        """Return whether this process has used it; looking must not begin to."""
        ask = getattr(self._module, "is_initialized", None) or self._module.is_available
        return bool(ask())

    def is_capturing(self) -> bool:
        """Return whether a graph is captured at present, in which nothing may be waited for."""
        ask = getattr(self._module, "is_current_stream_capturing", None)
        try:
            return bool(ask and ask())
        except RuntimeError:
            # A torch that was built without this kind cannot capture.
            return False

    def synchronise(self) -> None:
        """Wait for the present device, and for each other one that holds memory of this process."""
        wait = getattr(self._module, "synchronize", None) or self._torch.accelerator.synchronize
        others = self._others()
        wait()
        for index in others:
            wait(index)

    def event(self) -> DeviceEvent | None:
        """Return a new event that can be timed; None where this kind has none."""
        if not self._has_events:
            return None
        try:
            event: DeviceEvent = self._torch.Event(self.kind, enable_timing=True)
        except (RuntimeError, NotImplementedError):
            self._has_events = False
            return None
        return event

    def flush(self) -> None:
        """Queue a write of more bytes than the second-level cache has."""
        if self._buffer is None:
            properties = getattr(self._module, "get_device_properties", lambda *_: None)(None)
            cache = getattr(properties, "L2_cache_size", 0)
            size = max(_FLUSHED_CACHES * cache, _LEAST_FLUSHED_BYTES)
            self._buffer = self._torch.empty(size, dtype=self._torch.int8, device=self.kind)
        self._buffer.zero_()

    def memory(self) -> tuple[DeviceMemory, ...] | None:
        """Return the memory of each device that this process holds any of; None where that is not known."""
        ask = [getattr(self._module, name, None) for name in _OF_MEMORY]
        if None in ask:
            return None
        free_and_total, reserved, peak = (one for one in ask if one is not None)
        found = []
        for index in range(getattr(self._module, "device_count", lambda: 1)()):
            if peak(index):
                free, total = free_and_total(index)
                found.append(
                    DeviceMemory(
                        index=index, total=total, free=free, reserved=reserved(index), peak=peak(index)
                    )
                )
        return tuple(found)

    def reserved(self) -> int | None:
        """Return the bytes that the present device's allocator has reserved; None where that is not known."""
        ask = getattr(self._module, "memory_reserved", None)
        return None if ask is None else int(ask())

    def clock_mhz(self) -> float | None:
        """Return the present device's clock; None where it, or a missing library, does not report it."""
        ask = getattr(self._module, "clock_rate", None)
        try:
            return None if ask is None else float(ask())
        except Exception:  # noqa: BLE001 (torch raises what the driver's library has, or that it lacks it)
            return None

    def _others(self) -> tuple[int, ...]:
        count = getattr(self._module, "device_count", lambda: 1)()
        reserved = getattr(self._module, "memory_reserved", None)
        if count <= 1 or reserved is None:
            return ()
        present = self._module.current_device()
        return tuple(index for index in range(count) if index != present and reserved(index))


@functools.cache
def _of_kind(kind: str) -> TorchAccelerator:
    return TorchAccelerator(sys.modules["torch"], kind)


def accelerator_in_use() -> TorchAccelerator | None:
    """Return the accelerator that this process has used and may wait for, if any.

    Neither is torch imported nor a device initialised for this.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if torch.cuda.is_initialized():
        found = _of_kind("cuda")
    else:
        known = torch.accelerator.current_accelerator() if hasattr(torch, "accelerator") else None
        if known is None:
            return None
        found = _of_kind(known.type)
        if not found.is_initialised():
            return None
    return None if found.is_capturing() else found


def uses_accelerator() -> bool:
    """Return whether an accelerator is in use, which each reading of a clock has to wait for."""
    return accelerator_in_use() is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """One timed block on an accelerator, in seconds: until the device is done, and until the calls returned.

    ``device_s`` is from the first to the last of the block's work, gaps included; None where it has no
    events.
    """

    wall_s: float
    host_s: float
    device_s: float | None


@dataclass(frozen=True, kw_only=True)
class DeviceTimes:
    """The rounds of a benchmark on an accelerator, in seconds per iteration, and the marks of its values.

    Either is empty where it is not known.
    """

    host_s: tuple[float, ...] = ()
    device_s: tuple[float, ...] = ()
    marks: tuple[str, ...] = ()


class BlockClock:
    """Times blocks: each reading waits for the accelerator once, right before it.

    Two readings enclose a block. An event each lies between the first one and the wait of the second, so the
    block's time on the device is known with the second reading.
    """

    def __init__(
        self, timer: Timer, accelerator: Callable[[], Accelerator | None] = accelerator_in_use
    ) -> None:
        self._timer, self._accelerator = timer, accelerator
        self.spans: deque[Span] = deque(maxlen=_MOST_SPANS)
        self._begun_s: float | None = None
        self._begun: DeviceEvent | None = None
        self._flushes = False
        self._flushed: DeviceEvent | None = None
        self._returned_from_flush_s = 0.0

    def read(self) -> float:
        """Wait for the accelerator and return the time; it ends a block, and begins the next one."""
        # It makes few calls of its own, since rounds of a few microseconds begin and end with it.
        device = self._accelerator()
        if device is None:
            self._begun = None
            self._begun_s = self._returned_from_flush_s = now = self._timer()
            return now
        end, begin = device.event(), device.event()
        if end is not None:
            end.record()
        returned_s = self._timer()
        if self._flushes and begin is None:
            device.flush()
        device.synchronise()
        now = read_s = self._timer()
        if self._begun_s is not None:
            host_s, device_s = returned_s - self._returned_from_flush_s, _between(self._begun, end)
            if self._flushed is not None:
                flush_s = _between(self._flushed, self._begun) or 0.0
                read_s = self._begun_s + max(now - self._begun_s - flush_s, host_s)
            self.spans.append(Span(wall_s=read_s - self._begun_s, host_s=host_s, device_s=device_s))
        self._begun_s = self._returned_from_flush_s = now
        self._flushed, self._begun = None, begin
        if begin is not None:
            if self._flushes:
                self._queue_flush(device)
            begin.record()
        self._flushes = False
        return read_s

    def flush(self) -> None:
        """Empty the device's second-level cache at the next reading, where an accelerator is in use."""
        self._flushes = True

    def _queue_flush(self, device: Accelerator) -> None:
        """Queue the flush right before the block, so that the device does not idle until the first launch.

        Its own time is taken out of the block's, as ``do_bench`` of triton does.
        """
        self._flushed = device.event()
        if self._flushed is not None:
            self._flushed.record()
        device.flush()
        self._returned_from_flush_s = self._timer()

    def join(self, blocks: int) -> float | None:
        """Keep the last blocks as one, and return its seconds; None where they were on no accelerator."""
        if len(self.spans) < 2 * blocks - 1:
            return None
        newest = [self.spans.pop() for _ in range(2 * blocks - 1)]
        joined = _joined(newest[::-2])
        self.spans.append(joined)
        return joined.wall_s

    def times(self, walls_s: Iterable[float], *, loops: int = 1) -> DeviceTimes | None:
        """Return what is known of rounds that took this many seconds; None where nothing was waited for.

        A round without a block of this clock was timed by another one, perhaps while the device was busy: all
        are marked.
        """
        if not self.spans:
            return DeviceTimes(marks=(UNSYNCHRONISED,)) if self._accelerator() is not None else None
        spans = iter(self.spans)
        found = [next((one for one in spans if one.wall_s / loops == wall_s), None) for wall_s in walls_s]
        known = [one for one in found if one is not None]
        if len(known) < len(found):
            return DeviceTimes(marks=(UNSYNCHRONISED,))
        return device_times(known, loops=loops)


def _between(begin: DeviceEvent | None, end: DeviceEvent | None) -> float | None:
    if begin is None or end is None:
        return None
    try:
        return begin.elapsed_time(end) * _MS
    except (RuntimeError, NotImplementedError):
        return None


def device_times(spans: Sequence[Span], *, loops: int = 1) -> DeviceTimes:
    """Return the times of blocks of ``loops`` iterations each, marked if they are launch-bound."""
    device_s = [one.device_s for one in spans if one.device_s is not None]
    whole = len(device_s) == len(spans)
    return DeviceTimes(
        host_s=tuple(one.host_s / loops for one in spans),
        device_s=tuple(seconds / loops for seconds in device_s) if whole else (),
        marks=(LAUNCH_BOUND,) if is_launch_bound(spans) else (),
    )


def is_launch_bound(spans: Sequence[Span]) -> bool:
    """Return whether the host's time dominates: the device has nothing left to do when the calls return.

    A benchmark that waits for the device itself, as by ``.item()``, looks like one that launches too slowly.
    """
    device_s = sum(one.wall_s if one.device_s is None else one.device_s for one in spans)
    return bool(spans) and sum(one.host_s for one in spans) >= _HOST_SHARE * device_s


_CLOCKS: dict[Timer, BlockClock] = {}


@functools.cache
def synchronised(timer: Timer) -> Timer:
    """Return a timer that synchronises the accelerator once, right before each reading.

    It is cached, since pytest-benchmark measures the precision of each new timer that it is given.
    """
    if timer in _CLOCKS:
        return timer
    clock = BlockClock(timer)

    @functools.wraps(timer)
    def read() -> float:
        return clock.read()

    _CLOCKS[read] = clock
    return read


def block_times(timer: Timer, walls_s: Sequence[float], *, loops: int) -> DeviceTimes | None:
    """Return what is known of rounds that a timer timed, as ``BlockClock.times`` does."""
    clock = _CLOCKS.get(timer)
    if clock is None:
        return DeviceTimes(marks=(UNSYNCHRONISED,)) if uses_accelerator() else None
    return clock.times(walls_s, loops=loops)


def clock_of(timer: Timer) -> BlockClock | None:
    """Return the clock behind a timer that ``synchronised`` made, None of any other."""
    return _CLOCKS.get(timer)


def _joined(spans: Sequence[Span]) -> Span:
    whole = [one.device_s for one in spans if one.device_s is not None]
    return Span(
        wall_s=math.fsum(one.wall_s for one in spans),
        host_s=math.fsum(one.host_s for one in spans),
        device_s=math.fsum(whole) if len(whole) == len(spans) else None,
    )
