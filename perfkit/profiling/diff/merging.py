"""Adds up the profiles of several processes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from perfkit.model.readings import Call, FunctionTime, Reading

_Key = tuple[str, int, str]


def merged(readings: Sequence[Reading], name: str) -> Reading:
    """Return the sum of several cProfiles; functions are the same where file, line and name are."""
    functions: dict[_Key, FunctionTime] = {}
    for reading in readings:
        for one in reading.functions:
            known = functions.get(_key(one))
            functions[_key(one)] = one if known is None else _added(known, one)
    places = {key: place for place, key in enumerate(functions)}
    calls = _calls(readings, places)
    return Reading(
        name=name,
        origin="cProfile",
        total_s=sum(reading.total_s for reading in readings),
        calls=sum(reading.calls or 0 for reading in readings),
        functions=tuple(
            replace(one, callers=tuple(calls[place].values())) for place, one in enumerate(functions.values())
        ),
    )


def _key(one: FunctionTime) -> _Key:
    return one.file, one.line, one.function


def _added(left: FunctionTime, right: FunctionTime) -> FunctionTime:
    return replace(
        left,
        calls=left.calls + right.calls,
        primitive_calls=left.primitive_calls + right.primitive_calls,
        own_s=left.own_s + right.own_s,
        cumulative_s=left.cumulative_s + right.cumulative_s,
    )


def _calls(readings: Sequence[Reading], places: dict[_Key, int]) -> dict[int, dict[int, Call]]:
    """Return the calls that each function got from its callers, added up over all readings."""
    calls: dict[int, dict[int, Call]] = defaultdict(dict)
    for called, call in _all_calls(readings, places):
        known = calls[called].get(call.caller)
        calls[called][call.caller] = (
            call
            if known is None
            else Call(
                caller=call.caller,
                calls=known.calls + call.calls,
                own_s=known.own_s + call.own_s,
                cumulative_s=known.cumulative_s + call.cumulative_s,
            )
        )
    return calls


def _all_calls(readings: Sequence[Reading], places: dict[_Key, int]) -> Iterator[tuple[int, Call]]:
    for reading in readings:
        for one in reading.functions:
            for call in one.callers:
                caller = places[_key(reading.functions[call.caller])]
                yield places[_key(one)], replace(call, caller=caller)
