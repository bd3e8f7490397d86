"""A cProfile as text for people and as typed entries."""

from __future__ import annotations

import copy
import io
import pstats
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, cast

from perfkit.errors import UsageError
from perfkit.model import ProfileEntry
from perfkit.profiling.passes.own_code import OwnCode, is_harness

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


class _Timing(NamedTuple):
    primitive_calls: int
    calls: int
    own_s: float
    cumulative_s: float
    callers: _Callers


def load_stats(file: Path) -> pstats.Stats:
    """Return the cProfile saved in a file that this machine wrote itself: the format is not safe to share.

    Raises:
        UsageError: the file is missing or holds no cProfile.
    """
    try:
        return pstats.Stats(str(file))
    except (OSError, EOFError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{file} is not a cProfile ({error}); profile again to write a new one") from error


def portable(stats: pstats.Stats, own: OwnCode) -> pstats.Stats:
    """Return the profile with files named relative to the project or the library, to show anywhere.

    Functions that get the same name in this way become one.
    """
    named: dict[_Function, _Timing] = {}
    for function, timing in _functions(stats).items():
        name = _portable_name(function, own)
        shown = timing._replace(callers=_portable_callers(timing.callers, own))
        named[name] = _merged(named[name], shown) if name in named else shown
    renamed = copy.copy(stats)
    vars(renamed).update(stats={name: tuple(timing) for name, timing in named.items()})
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
    by_kind = {
        kind: [entry for entry in entries if entry.kind == kind] for kind in ("own", "wait", "library")
    }
    kept = (
        sorted(by_kind["own"], key=_cumulative)[:_OWN_ENTRIES]
        + by_kind["wait"]
        + sorted(by_kind["library"], key=lambda entry: -entry.own_s)[:_LIBRARY_ENTRIES]
    )
    return tuple(sorted(kept, key=_cumulative))


def _cumulative(entry: ProfileEntry) -> float:
    return -entry.cumulative_s


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


def _portable_name(function: _Function, own: OwnCode) -> _Function:
    file, line, name = function
    return own.shown(file), line, name


def _portable_callers(callers: _Callers, own: OwnCode) -> _Callers:
    named: dict[_Function, tuple[float, ...]] = {}
    for caller, counts in callers.items():
        name = _portable_name(caller, own)
        named[name] = _added(named[name], counts) if name in named else counts
    return named


def _merged(left: _Timing, right: _Timing) -> _Timing:
    callers = dict(left.callers)
    for caller, counts in right.callers.items():
        callers[caller] = _added(callers[caller], counts) if caller in callers else counts
    return _Timing(
        left.primitive_calls + right.primitive_calls,
        left.calls + right.calls,
        left.own_s + right.own_s,
        left.cumulative_s + right.cumulative_s,
        callers,
    )


def _added(left: tuple[float, ...], right: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(one + other for one, other in zip(left, right, strict=True))


def _text(stats: pstats.Stats, kept: Iterable[_Function] | None = None) -> str:
    stream = io.StringIO()
    vars(stats).update(stream=stream)
    stats.sort_stats("cumulative")
    if kept is not None:
        chosen = set(kept)
        vars(stats).update(fcn_list=[function for function in vars(stats)["fcn_list"] if function in chosen])
    stats.print_stats()
    return f"{stream.getvalue().strip()}\n"
