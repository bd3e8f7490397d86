"""Reads a trace of torch.profiler (Kineto), of the old schema or the new."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from perfkit.errors import UsageError
from perfkit.reading.names import printable
from perfkit.reading.timeline import Event, Timeline, window_of
from perfkit.reading.trace_phases import phases_of, waits_of
from perfkit.records.readings import Reading, StepTimes

_MICROSECOND = 1e-6
# Kineto writes such numbers, which JSON does not allow.
_NO_NUMBER = re.compile(rb"([:,\[]\s*)-?(?:nan|inf|NaN|Infinity)\b")
# A number of microseconds beyond the year 3000 is no time stamp.
_LARGEST_TIME = 1e17


class _Event(msgspec.Struct, gc=False):
    """An event as it stands in the file; times in microseconds, ids as numbers or words."""

    ph: str = ""
    name: str | None = ""
    cat: str | None = None
    ts: float | None = 0.0
    dur: float | None = 0.0
    pid: int | str | None = None
    tid: int | str | None = None


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 (the format's own word)
    distributedInfo: _Distributed | None = None  # noqa: N815 (likewise)


def read_trace(data: bytes, name: str) -> Reading:
    """Return what a trace says of its steps, or of its whole length where it has no steps.

    Raises:
        UsageError: the data are damaged, or no trace.
    """
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
        )
        for one, begin, lasting in timed
    )
    if not timeline.events and not timeline.device:
        raise UsageError(f"{name} is a trace without a single timed event; profile again, with active steps")
    return _reading(timeline, trace, name)


def _is_time(microseconds: float | None) -> bool:
    """Tell whether a number can be a time: it is finite and no date of the far future."""
    return microseconds is None or abs(microseconds) <= _LARGEST_TIME


def _reading(timeline: Timeline, trace: _Trace, name: str) -> Reading:
    window = window_of(timeline)
    begin_s, end_s = window.begin_s, window.end_s
    operators = timeline.operators(begin_s, end_s)
    device_s = timeline.device_busy_s(begin_s, end_s)
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
        world_size=trace.distributedInfo.world_size if trace.distributedInfo else None,
        warnings=tuple(_warnings(window.steps)),
    )


def _warnings(steps: Sequence[Event]) -> list[str]:
    if not steps:
        return [
            "the trace has no steps: call profiler.step() after each, or step an optimizer; times are totals"
        ]
    return []


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
