"""Profiles as files for speedscope and for the Firefox Profiler, which show flame graphs in any browser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.model.readings import FunctionKind, FunctionTime, Reading
from perfkit.profiling.diff.flames import known_stacks

_SPEEDSCOPE_SCHEMA = "https://www.speedscope.app/file-format-schema.json"
# The version of the "processed profile format" that the file is written in: the profiler turns an older one
# into its own when it loads it, and refuses a newer one.
_FIREFOX_VERSION = 70
_GECKO_VERSION = 36
# The first grey category is the one of functions that have none.
_CATEGORIES: Mapping[FunctionKind | None, tuple[str, str]] = {
    None: ("Other", "grey"),
    "own": ("Own code", "orange"),
    "library": ("Libraries", "blue"),
    "builtin": ("Built-in functions", "purple"),
}
_CATEGORY_OF = {kind: place for place, kind in enumerate(_CATEGORIES)}


def speedscope_file(readings: Sequence[Reading]) -> str:
    """Return the text of a file with a flame graph of each profile, in seconds (speedscope's file format)."""
    frames: dict[tuple[str, str, int], int] = {}
    profiles = []
    for reading in readings:
        stacks = known_stacks(reading)
        numbers = [
            frames.setdefault((one.function, one.file, one.line), len(frames)) for one in reading.functions
        ]
        profiles.append(
            {
                "type": "sampled",
                "name": reading.name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(stack.seconds for stack in stacks),
                "samples": [[numbers[function] for function in stack.functions] for stack in stacks],
                "weights": [stack.seconds for stack in stacks],
            }
        )
    shared = [{"name": name, **({"file": file, "line": line} if file else {})} for name, file, line in frames]
    return json.dumps(
        {
            "$schema": _SPEEDSCOPE_SCHEMA,
            "exporter": "perfkit",
            "profiles": profiles,
            "shared": {"frames": shared},
        }
    )


def firefox_file(readings: Sequence[Reading]) -> str:
    """Return the text of a file in which each profile is a thread of its own, in milliseconds.

    The format is version 70 of the Firefox Profiler's processed profile format (firefox-devtools/profiler,
    src/types/profile.ts). Each stack is one sample with its own time as weight.
    """
    shared = _Shared()
    threads = [_thread(reading, place, shared) for place, reading in enumerate(readings)]
    end_ms = max((sum(thread["samples"]["weight"]) for thread in threads), default=0.0)
    meta = {
        "product": "perfkit",
        "importedFrom": "perfkit",
        "version": _GECKO_VERSION,
        "preprocessedProfileVersion": _FIREFOX_VERSION,
        "processType": 0,
        "interval": 1,
        "startTime": 0,
        "profilingStartTime": 0,
        "profilingEndTime": end_ms,
        "stackwalk": 0,
        "symbolicated": True,
        "symbolicationNotSupported": True,
        "sourceCodeIsNotOnSearchfox": True,
        "usesOnlyOneStackType": True,
        "keepProfileThreadOrder": True,
        "initialVisibleThreads": [*range(len(threads))],
        "initialSelectedThreads": [0],
        "categories": [
            {"name": name, "color": color, "subcategories": ["Other"]} for name, color in _CATEGORIES.values()
        ],
        "markerSchema": [],
    }
    return json.dumps({"meta": meta, "libs": [], "shared": shared.tables(), "threads": threads})


class _Shared:
    """The tables that all threads point into; each entry stands in them once."""

    def __init__(self) -> None:
        # A frame would be a line at which a function stood; cProfile knows none, so each function has one.
        self._functions: dict[tuple[str, str, int, FunctionKind], int] = {}
        # A stack is its caller's stack, or None, and its innermost function.
        self._stacks: dict[tuple[int | None, int], int] = {}

    def stack(self, functions: Sequence[FunctionTime]) -> int | None:
        """Return the number of a stack, given from the outermost function on; callers come before callees."""
        found: int | None = None
        for one in functions:
            key = (one.function, one.file, one.line, one.kind)
            function = self._functions.setdefault(key, len(self._functions))
            found = self._stacks.setdefault((found, function), len(self._stacks))
        return found

    def tables(self) -> dict[str, Any]:
        strings: dict[str, int] = {}
        sources: dict[str, int] = {}

        def numbered(known: dict[str, int], text: str) -> int:
            return known.setdefault(text, len(known))

        functions = [*self._functions]
        names = [numbered(strings, name) for name, _, _, _ in functions]
        places = [numbered(sources, file) if file else None for _, file, _, _ in functions]
        files = [numbered(strings, file) for file in sources]
        offsets = [0 if caller is None else place - caller for place, (caller, _) in enumerate(self._stacks)]
        return {
            "stackTable": _table(
                len(offsets), frame=[function for _, function in self._stacks], prefixOffset=offsets
            ),
            "frameTable": _table(
                len(functions),
                address=-1,
                lib=-1,
                inlineDepth=0,
                category=[_CATEGORY_OF[kind] for _, _, _, kind in functions],
                subcategory=0,
                func=[*range(len(functions))],
                nativeSymbol=None,
                innerWindowID=None,
                line=None,
                column=None,
                originalLocation=None,
            ),
            "funcTable": _table(
                len(functions),
                name=names,
                isJS=False,
                relevantForJS=False,
                resource=-1,
                source=places,
                lineNumber=[line if file else None for _, file, line, _ in functions],
                columnNumber=None,
                originalLocation=None,
            ),
            "resourceTable": _table(0, name=None, host=None, type=None),
            "nativeSymbols": _table(0, libIndex=None, address=None, name=None, functionSize=None),
            "sources": _table(
                len(files),
                id=None,
                filename=files,
                startLine=1,
                startColumn=1,
                sourceMapURL=None,
                content=None,
            ),
            "sourceLocationTable": _table(0, source=None, line=None, column=None),
            "stringArray": [*strings],
        }


def _table(length: int, **columns: object) -> dict[str, Any]:
    filled = {name: value if isinstance(value, list) else [value] * length for name, value in columns.items()}
    return {**filled, "length": length}


def _thread(reading: Reading, place: int, shared: _Shared) -> dict[str, Any]:
    stacks = known_stacks(reading)
    numbers = [shared.stack([reading.functions[function] for function in one.functions]) for one in stacks]
    weights = [one.seconds * 1e3 for one in stacks]
    times, end_ms = [], 0.0
    for weight in weights:
        times.append(end_ms)
        end_ms += weight
    return {
        "processType": "default",
        "processName": reading.name,
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "name": reading.name,
        "isMainThread": True,
        "pid": str(place),
        "tid": place,
        "samples": _table(len(stacks), stack=numbers, time=times, weight=weights)
        | {"weightType": "tracing-ms"},
        "markers": _table(0, data=None, name=None, startTime=None, endTime=None, phase=None, category=None),
    }
