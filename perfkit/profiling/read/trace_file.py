"""Reads a trace of torch.profiler (Kineto), of the old schema or the new."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from perfkit.errors import UsageError
from perfkit.model.readings import DeviceTime, Reading, StepTimes
from perfkit.profiling.read.names import printable
from perfkit.profiling.read.timeline import DEVICE, RUNTIME, Event, Timeline, window_of
from perfkit.profiling.read.trace_parts import devices_of, phases_of, waits_of

_MICROSECOND = 1e-6
# Kineto writes such numbers, which JSON does not allow.
_NO_NUMBER = re.compile(rb"([:,\[]\s*)-?(?:nan|inf|NaN|Infinity)\b")
# A number of microseconds beyond the year 3000 is no time stamp.
_LARGEST_TIME = 1e17
_NOTHING = msgspec.Raw(b"")
# What is launched, and what launches it.
_CORRELATED = DEVICE | RUNTIME


class _Event(msgspec.Struct, gc=False):
    """An event as it stands in the file; times in microseconds, ids as numbers or words."""

    ph: str = ""
    name: str | None = ""
    cat: str | None = None
    ts: float | None = 0.0
    dur: float | None = 0.0
    pid: int | str | None = None
    tid: int | str | None = None
    args: msgspec.Raw = _NOTHING


class _Arguments(msgspec.Struct, gc=False):
    """The arguments of an event that are asked for; others may be whatever they are."""

    correlation: int | None = None


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 (the format's own word)
    distributedInfo: _Distributed | None = None  # noqa: N815 (likewise)


def read_trace(data: bytes, name: str) -> Reading:
    """Return what a trace says of its steps, or of its whole length where it has no steps."""
    trace = _decoded(data, name)
    timed = [
        (one, one.ts or 0.0, max(one.dur or 0.0, 0.0))
        for one in trace.traceEvents
        if one.ph == "X" and _is_time(one.ts) and _is_time(one.dur)
    ]
    # A float that counts from 1970 has no digits left for parts of a microsecond.
    origin = min((begin for _, begin, _ in timed), default=0.0)
    timeline = Timeline.of(
        Event(
            name=printable(one.name or ""),
            category=one.cat or "",
            thread=f"{one.pid}/{one.tid}",
            begin_s=(begin - origin) * _MICROSECOND,
            end_s=(begin - origin + lasting) * _MICROSECOND,
            correlation=_correlation(one) if one.cat in _CORRELATED else None,
        )
        for one, begin, lasting in timed
    )
    if not timeline.events and not timeline.device:
        raise UsageError(f"{name} is a trace without a single timed event; profile again, with active steps")
    return _reading(timeline, trace, name)


def _correlation(one: _Event) -> int | None:
    """Return what ties a launch and what it launched together, None where it is missing or no number."""
    try:
        return msgspec.json.decode(one.args, type=_Arguments, strict=False).correlation
    except msgspec.DecodeError:
        return None


def _is_time(microseconds: float | None) -> bool:
    """Tell whether a number can be a time: it is finite and no date of the far future."""
    return microseconds is None or abs(microseconds) <= _LARGEST_TIME


def _reading(timeline: Timeline, trace: _Trace, name: str) -> Reading:
    window = window_of(timeline)
    begin_s, end_s = window.begin_s, window.end_s
    operators = timeline.operators(begin_s, end_s)
    device_s = timeline.device_busy_s(begin_s, end_s)
    devices = devices_of(timeline, window)
    return Reading(
        name=name,
        origin="torch trace",
        total_s=end_s - begin_s,
        calls=sum(one.calls for one in operators if one.place == "cpu"),
        steps=StepTimes(count=len(window.steps), sign=window.sign, seconds=window.seconds)
        if window.steps
        else None,
        operators=operators,
        phases=phases_of(timeline, window),
        waits=waits_of(timeline, window),
        device_busy_s=device_s if timeline.has_device else None,
        devices=devices,
        rank=trace.distributedInfo.rank if trace.distributedInfo else None,
        world_size=trace.distributedInfo.world_size if trace.distributedInfo else None,
        warnings=tuple(_warnings(window.steps, devices)),
    )


def _warnings(steps: Sequence[Event], devices: Sequence[DeviceTime]) -> Iterator[str]:
    if not steps:
        yield (
            "the trace has no steps: call profiler.step() after each, or step an optimizer; times are totals"
        )
    for one in devices:
        if one.launches_without_kernel or one.kernels_without_launch:
            yield (
                f"INCOMPLETE: {one.launches_without_kernel} of {one.launches} launches have no kernel in the"
                f" trace, {one.kernels_without_launch} of {one.kernels} kernels no launch: the profiler lost"
                " events, and times on the device are wrong; profile fewer steps at once"
            )


def _decoded(data: bytes, name: str) -> _Trace:
    try:
        return msgspec.json.decode(data, type=_Trace, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} is JSON, but no trace of torch.profiler ({error})") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _decoded_without_no_numbers(data, name)


def _decoded_without_no_numbers(data: bytes, name: str) -> _Trace:
    # A name that was cut at a number of bytes may end in a part of a letter.
    readable = data.decode(errors="replace").encode()
    try:
        return msgspec.json.decode(_NO_NUMBER.sub(rb"\1null", readable), type=_Trace, strict=False)
    except msgspec.ValidationError as error:
        raise UsageError(f"{name} is JSON, but no trace of torch.profiler ({error})") from None
    except msgspec.DecodeError as error:
        raise UsageError(f"{name} is damaged or cut short ({error}); export the trace again") from None
