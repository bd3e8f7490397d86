"""Profiles as a file for the Firefox Profiler, which shows them in any browser (https://profiler.firefox.com)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from perfkit.model.readings import FunctionKind, FunctionTime, Reading
from perfkit.profiling.diff.stacks import known_stacks

# The version of the "processed profile format" that this file is written in: the profiler turns an older one
# into its own when it loads it, and refuses a newer one.
_VERSION = 70
_GECKO_VERSION = 36
_MILLISECONDS = 1e3
# The first grey category is the one of functions that have none.
_CATEGORIES: Mapping[FunctionKind | None, tuple[str, str]] = {
    None: ("Other", "grey"),
    "own": ("Own code", "orange"),
    "library": ("Libraries", "blue"),
    "builtin": ("Built-in functions", "purple"),
}
_CATEGORY_OF = {kind: place for place, kind in enumerate(_CATEGORIES)}
_FunctionKey = tuple[str, str, int, FunctionKind]
_Table = dict[str, object]


def firefox_file(readings: Sequence[Reading]) -> str:
    """Return the text of a file in which each profile is a thread of its own, in milliseconds.

    The format is version 70 of the Firefox Profiler's processed profile format, as its types define it
    (firefox-devtools/profiler, src/types/profile.ts). A thread has one sample for each stack, with the time
    in the stack's innermost function as its weight, one after the other; so the weights of a thread add up to
    all own times of its profile.

    Raises:
        UsageError: a profile does not know who called whom.
    """
    shared = _Shared()
    threads = [_thread(reading, place, shared) for place, reading in enumerate(readings)]
    return json.dumps(
        {
            "meta": _meta(threads),
            "libs": [],
            "shared": shared.tables(),
            "threads": [thread for thread, _ in threads],
        }
    )


class _Shared:
    """The tables that all threads point into; each entry stands in them once."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {}
        self._sources: dict[str, int] = {}
        # A frame would be a line at which a function stood; cProfile knows none, so each function has one.
        self._functions: dict[_FunctionKey, int] = {}
        # A stack is its caller's stack, or None, and its innermost function.
        self._stacks: dict[tuple[int | None, int], int] = {}

    def stack(self, functions: Sequence[FunctionTime]) -> int:
        """Return the number of a stack, given from the outermost function on; callers come before callees."""
        found: int | None = None
        for one in functions:
            found = self._stacks.setdefault((found, self._function(one)), len(self._stacks))
        assert found is not None  # noqa: S101 (a stack has at least one function)
        return found

    def tables(self) -> _Table:
        """Return the tables."""
        functions, frames = self._function_table(), self._frame_table()
        stacks = [
            (function, 0 if caller is None else number - caller)
            for (caller, function), number in self._stacks.items()
        ]
        sources = self._source_table()
        return {
            "stackTable": {
                "frame": [function for function, _ in stacks],
                "prefixOffset": [offset for _, offset in stacks],
                "length": len(stacks),
            },
            "frameTable": frames,
            "funcTable": functions,
            "resourceTable": {"name": [], "host": [], "type": [], "length": 0},
            "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
            "sources": sources,
            "sourceLocationTable": {"source": [], "line": [], "column": [], "length": 0},
            "stringArray": [*self._strings],
        }

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def _function(self, one: FunctionTime) -> int:
        key = (one.function, one.file, one.line, one.kind)
        return self._functions.setdefault(key, len(self._functions))

    def _source(self, file: str) -> int | None:
        return self._sources.setdefault(file, len(self._sources)) if file else None

    def _function_table(self) -> _Table:
        count = len(self._functions)
        return {
            "name": [self._string(name) for name, _, _, _ in self._functions],
            "isJS": [False] * count,
            "relevantForJS": [False] * count,
            "resource": [-1] * count,
            "source": [self._source(file) for _, file, _, _ in self._functions],
            "lineNumber": [line if file else None for _, file, line, _ in self._functions],
            "columnNumber": [None] * count,
            "originalLocation": [None] * count,
            "length": count,
        }

    def _frame_table(self) -> _Table:
        count = len(self._functions)
        return {
            "address": [-1] * count,
            "lib": [-1] * count,
            "inlineDepth": [0] * count,
            "category": [_CATEGORY_OF[kind] for _, _, _, kind in self._functions],
            "subcategory": [0] * count,
            "func": [*range(count)],
            "nativeSymbol": [None] * count,
            "innerWindowID": [None] * count,
            "line": [None] * count,
            "column": [None] * count,
            "originalLocation": [None] * count,
            "length": count,
        }

    def _source_table(self) -> _Table:
        count = len(self._sources)
        return {
            "id": [None] * count,
            "filename": [self._string(file) for file in self._sources],
            "startLine": [1] * count,
            "startColumn": [1] * count,
            "sourceMapURL": [None] * count,
            "content": [None] * count,
            "length": count,
        }


def _thread(reading: Reading, place: int, shared: _Shared) -> tuple[_Table, float]:
    """Return a profile as the main thread of a process of its own, and its end in milliseconds."""
    numbers, times, weights = [], [], []
    end_ms = 0.0
    for stack in known_stacks(reading):
        numbers.append(shared.stack([reading.functions[function] for function in stack.functions]))
        weights.append(stack.seconds * _MILLISECONDS)
        times.append(end_ms)
        end_ms += weights[-1]
    thread: _Table = {
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
        "samples": {
            "stack": numbers,
            "time": times,
            "weight": weights,
            "weightType": "tracing-ms",
            "length": len(numbers),
        },
        "markers": {
            **{column: [] for column in ("data", "name", "startTime", "endTime", "phase", "category")},
            "length": 0,
        },
    }
    return thread, end_ms


def _meta(threads: Sequence[tuple[_Table, float]]) -> _Table:
    return {
        "product": "perfkit",
        "importedFrom": "perfkit",
        "version": _GECKO_VERSION,
        "preprocessedProfileVersion": _VERSION,
        "processType": 0,
        "interval": 1,
        "startTime": 0,
        "profilingStartTime": 0,
        "profilingEndTime": max((end_ms for _, end_ms in threads), default=0.0),
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
