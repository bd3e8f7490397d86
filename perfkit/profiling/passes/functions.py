"""cProfile and line_profiler: their texts for people, and what of them is kept."""

from __future__ import annotations

import copy
import functools
import gc
import io
import linecache
import operator
import pstats
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from perfkit.errors import UsageError
from perfkit.model import LineTime, ProfileEntry
from perfkit.profiling.passes.target_code import OwnCode, is_harness
from perfkit.profiling.passes.targets import Target
from perfkit.runner.targets import load_function, without_cell
from perfkit.units import human_percent

_Function = tuple[str, int, str]
_Callers = Mapping[_Function, tuple[float, ...]]
_Kind = Literal["wait", "own", "library"]
_BUILTIN = "~"
_OWN_ENTRIES = 200
_LIBRARY_ENTRIES = 50
_LOADER = "torch/utils/data/dataloader.py"
_WAITING_FUNCTIONS = {
    _LOADER: {"__next__", "_next_data", "_get_data", "_try_get_data"},
    "threading.py": {"wait", "join", "acquire"},
    "queue.py": {"get"},
    "selectors.py": {"select"},
    "multiprocessing/queues.py": {"get"},
    "multiprocessing/connection.py": {"poll", "_poll", "wait", "recv", "recv_bytes", "_recv", "_recv_bytes"},
}
_WAITING_BUILTINS = {
    "<method 'acquire' of '_thread.lock' objects>",
    "<method 'acquire' of '_thread.RLock' objects>",
    "<method 'poll' of 'select.poll' objects>",
    "<method 'poll' of 'select.epoll' objects>",
    "<built-in method select.select>",
    "<built-in method time.sleep>",
}
_MOST_FUNCTIONS = 5
_IsWanted = Callable[[types.CodeType], bool]


class _Timing(NamedTuple):
    primitive_calls: int
    calls: int
    own_s: float
    cumulative_s: float
    callers: _Callers


def portable(stats: pstats.Stats, own: OwnCode) -> pstats.Stats:
    """Return the profile with files named relative to the project or the library, to show anywhere."""
    named: dict[_Function, tuple[Any, ...]] = {}
    for (file, line, name), timing in _functions(stats).items():
        callers: dict[_Function, tuple[float, ...]] = {}
        for (caller_file, *rest), counts in timing.callers.items():
            caller: Any = (own.shown(caller_file), *rest)
            callers[caller] = (
                tuple(map(operator.add, callers[caller], counts)) if caller in callers else counts
            )
        shown, function = tuple(timing._replace(callers=callers)), (own.shown(file), line, name)
        add: Any = pstats.add_func_stats  # type: ignore[attr-defined]
        named[function] = add(named[function], shown) if function in named else shown
    renamed = copy.copy(stats)
    vars(renamed).update(stats=named)
    return renamed


def full_text(stats: pstats.Stats, own: OwnCode) -> str:
    """Return all functions by cumulative time, files named relative to the project or the library."""
    return _text(portable(stats, own))


def filtered_text(stats: pstats.Stats, own: OwnCode) -> str:
    """Return the user's own functions by cumulative time, with the header and totals of the whole profile."""
    kept = {(own.shown(file), line, name) for file, line, name in _functions(stats) if own.owns(file)}
    count = f"{len(kept)} of {len(_functions(stats))} functions"
    note = f"Own code only: {count}. The totals are of the whole profile."
    return f"{note}\n{_text(portable(stats, own), kept)}"


def read_entries(stats: pstats.Stats, own: OwnCode) -> tuple[ProfileEntry, ...]:
    """Return the entries worth keeping, by cumulative time: own code, waits, the costliest library code."""
    entries = [
        _entry(function, timing, own)
        for function, timing in _functions(stats).items()
        if not is_harness(function[0])
    ]
    entries.sort(key=lambda entry: -entry.cumulative_s)
    own_code, waits, library = (
        [entry for entry in entries if entry.kind == kind] for kind in ("own", "wait", "library")
    )
    library.sort(key=lambda entry: -entry.own_s)
    kept = own_code[:_OWN_ENTRIES] + waits + library[:_LIBRARY_ENTRIES]
    return tuple(sorted(kept, key=lambda entry: -entry.cumulative_s))


def _entry(function: _Function, timing: _Timing, own: OwnCode) -> ProfileEntry:
    file, line, name = function
    return ProfileEntry(
        file=own.shown(file),
        line=line,
        function=f"{{{name[1:-1]}}}" if file == _BUILTIN else name,
        calls=timing.calls,
        own_s=timing.own_s,
        cumulative_s=timing.cumulative_s,
        kind=_kind(file, name, own),
    )


def _kind(file: str, name: str, own: OwnCode) -> _Kind:
    if own.owns(file):
        return "own"
    if name in _WAITING_BUILTINS:
        return "wait"
    path = Path(file).as_posix()
    waits = any(path.endswith(f"/{tail}") and name in names for tail, names in _WAITING_FUNCTIONS.items())
    return "wait" if waits else "library"


def _functions(stats: pstats.Stats) -> Mapping[_Function, _Timing]:
    raw = cast("Mapping[_Function, tuple[int, int, float, float, _Callers]]", vars(stats)["stats"])
    return {function: _Timing(*timing) for function, timing in raw.items()}


def _text(stats: pstats.Stats, kept: Iterable[_Function] | None = None) -> str:
    stream = io.StringIO()
    vars(stats).update(stream=stream)
    stats.sort_stats("cumulative")
    if kept is not None:
        chosen = set(kept)
        vars(stats).update(fcn_list=[function for function in vars(stats)["fcn_list"] if function in chosen])
    stats.print_stats()
    return f"{stream.getvalue().strip()}\n"


class FunctionLines:
    """The functions named as "package.module:function", in a line profiler."""

    def __init__(self, places: Sequence[str], target: Target, entries: Sequence[ProfileEntry] = ()) -> None:
        from line_profiler import LineProfiler

        self.profiler: Any = LineProfiler()
        self._places = tuple(places)
        self._entries = tuple(entries)
        self._script = Path(target.place) if target.is_script else None

    def watch(self, code: types.CodeType) -> types.CodeType:
        """Return the script's code with its named functions made known to the profiler."""
        for place in filter(self._is_in_script, self._places):
            name, before = place.partition(":")[2], code
            code = self._with_watched(code, functools.partial(_is_named, name))
            if code is before:
                raise UsageError(
                    f'"{place}": the script {self._script} defines no function "{name}"; check the spelling'
                )
        for entry in self._entries:
            if self._script is not None and Path(without_cell(entry.file)).name == self._script.name:
                code = self._with_watched(code, functools.partial(_is_entry, entry))
        return code

    def watch_imported(self) -> None:
        """Import the other named functions and make them known to the profiler."""
        for place in self._places:
            if not self._is_in_script(place):
                self.profiler.add_callable(load_function(place))

    def watch_profiled(self, own: OwnCode) -> None:
        """Make the functions of the earlier profile known that imported modules define."""
        wanted = {(entry.file, entry.line) for entry in self._entries}
        begins = {line for _, line in wanted}
        # `isinstance` would ask each object for its `__class__`, and a dead weak proxy raises then.
        for function in [one for one in gc.get_objects() if type(one) is types.FunctionType]:
            code = function.__code__
            if code.co_firstlineno in begins and (own.shown(code.co_filename), code.co_firstlineno) in wanted:
                self.profiler.add_function(function)

    def _is_in_script(self, place: str) -> bool:
        return self._script is not None and place.partition(":")[0] in (self._script.stem, "__main__")

    def _with_watched(self, code: types.CodeType, is_wanted: _IsWanted) -> types.CodeType:
        constants = tuple(
            self._marked(constant, is_wanted) if isinstance(constant, types.CodeType) else constant
            for constant in code.co_consts
        )
        same = all(new is old for new, old in zip(constants, code.co_consts, strict=True))
        return code if same else code.replace(co_consts=constants)

    def _marked(self, code: types.CodeType, is_wanted: _IsWanted) -> types.CodeType:
        if not is_wanted(code):
            return self._with_watched(code, is_wanted)
        cells = tuple(types.CellType() for _ in code.co_freevars) or None
        function = types.FunctionType(code, {}, closure=cells)
        self.profiler.add_function(function)
        return function.__code__


def _is_named(name: str, code: types.CodeType) -> bool:
    return code.co_qualname == name


def _is_entry(entry: ProfileEntry, code: types.CodeType) -> bool:
    # A function in the first line of a file begins where the file's own code does.
    is_in_file = code.co_name != "<module>" and Path(code.co_filename).name == Path(entry.file).name
    return is_in_file and code.co_firstlineno == entry.line


def choose_functions(entries: Sequence[ProfileEntry]) -> tuple[ProfileEntry, ...]:
    """Return the own functions with the most own time, those worth looking into line by line."""
    own = [entry for entry in entries if entry.kind == "own" and not entry.function.startswith("<")]
    return tuple(sorted(own, key=lambda entry: -entry.own_s)[:_MOST_FUNCTIONS])


def line_times(profiler: Any, own: OwnCode) -> tuple[LineTime, ...]:  # noqa: ANN401 (line_profiler has no types)
    """Return every line that ran, by its time."""
    stats = profiler.get_stats()
    found = [
        LineTime(
            file=own.shown(file),
            line=line,
            text=linecache.getline(file, line).strip(),
            hits=hits,
            seconds=ticks * stats.unit,
        )
        for (file, _, _), timings in stats.timings.items()
        for line, hits, ticks in timings
    ]
    return tuple(sorted(found, key=lambda one: -one.seconds))


def lines_text(profiler: Any, own: OwnCode, *, steps: int) -> str:  # noqa: ANN401 (line_profiler has no types)
    """Return a table for each function with the times of its lines in milliseconds, a step and a hit."""
    stats = profiler.get_stats()
    return "\n".join(
        _function_text(
            function, [(line, hits, ticks * stats.unit) for line, hits, ticks in timings], own, steps
        )
        for function, timings in sorted(stats.timings.items())
    )


def _function_text(
    function: tuple[str, int, str], timings: Sequence[tuple[int, int, float]], own: OwnCode, steps: int
) -> str:
    """Return the table of one function, from its first line to the last one that ran."""
    file, begin, name = function
    if not timings:
        return f"Function: {name}, {own.shown(file)}:{begin}, did not run\n"
    whole_s = sum(seconds for _, _, seconds in timings)
    each, divisor = ("a step", steps) if steps else ("in all", 1)
    numbers = {
        line: f"{hits:>9}{_milliseconds(seconds / divisor):>12}{_milliseconds(seconds / hits):>12}"
        f"{human_percent(seconds / whole_s if whole_s else None):>9}"
        for line, hits, seconds in timings
    }
    found = [
        f"Function: {name}, {_milliseconds(whole_s / divisor)} ms {each}",
        f"{'file and line':<40}{'hits':>9}{f'ms {each}':>12}{'ms a hit':>12}{'share':>9}  text",
    ]
    for line in range(begin, max(numbers) + 1):
        text = linecache.getline(file, line).rstrip()
        found.append(f"{f'{own.shown(file)}:{line}':<40}{numbers.get(line, ''):<42}  {text}".rstrip())
    return "\n".join(found) + "\n"


def _milliseconds(seconds: float) -> str:
    return f"{seconds / 1e-3:.4g}"
