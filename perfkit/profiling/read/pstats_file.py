"""Reads what cProfile or profile of any Python wrote: ``marshal`` data, which are checked before use."""

from __future__ import annotations

import itertools
import marshal
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfkit.errors import UsageError
from perfkit.model.readings import Call, FunctionKind, FunctionTime, Reading, StepTimes
from perfkit.profiling.diff.attribution import fold_waits
from perfkit.profiling.read.names import CodeNames, is_absolute, printable

_Function = tuple[str, int, str]
_BUILTIN = "~"
# No real profile comes near these limits; without them a small file of marshal could fill any memory.
_MOST_EDGES = 5_000_000
_LONGEST_NAME = 10_000
# No profile has this many seconds or calls, and a float still holds each whole number up to here.
_LARGEST_AMOUNT = 1e15
_NUMBERS = frozenset({int, float})
_TIMING_PARTS = 5
_CALLER_PARTS = 4
_NO_OPTIMIZERS = ("optimizer.py", "lr_scheduler.py", "swa_utils.py", "__init__.py")


def read_pstats(data: bytes, name: str, code: CodeNames) -> Reading:
    """Return the reading of a cProfile's file."""
    functions = _functions(_checked(_loaded(data, name), name), code)
    steps = steps_of_functions(functions)
    return Reading(
        name=name,
        origin="cProfile",
        total_s=math.fsum(one.own_s for one in functions),
        calls=sum(one.calls for one in functions),
        steps=steps,
        functions=functions,
        waits=fold_waits(functions),
        warnings=() if functions else ("the profile holds no function",),
    )


def _loaded(data: bytes, name: str) -> object:
    try:
        return marshal.loads(data)  # noqa: S302 (in a process that may do nothing else; the result is checked)
    except (EOFError, ValueError, TypeError) as error:
        raise UsageError(
            f"{name} is cut short or no cProfile ({error}); profile again to replace it"
        ) from None


@dataclass(frozen=True)
class _Timing:
    primitive_calls: int
    calls: int
    own_s: float
    cumulative_s: float
    callers: Mapping[_Function, tuple[int, float, float]]


def _checked(loaded: object, name: str) -> dict[_Function, _Timing]:
    """Return the functions with their times, once the data are known to be what cProfile writes."""
    if not isinstance(loaded, dict):
        raise UsageError(
            f"{name} is no cProfile: expected a table of functions, found a {type(loaded).__name__}"
        )
    found: dict[_Function, _Timing] = {}
    edges = 0
    for key, value in loaded.items():
        if not (_is_function(key) and _is_timing(value)):
            raise UsageError(
                f"{name} is no cProfile: entry {len(found) + 1} is not a function with its times"
            )
        edges += len(value[4])
        if edges > _MOST_EDGES:
            raise UsageError(f"{name} lists more than {_MOST_EDGES:,} calls between functions; it is damaged")
        primitive_calls, calls, own_s, cumulative_s, callers = value
        if not all(caller in loaded or _is_function(caller) for caller in callers):
            raise UsageError(f"{name} is no cProfile: a caller is not a function")
        counts = _caller_counts(callers, name)
        found[key] = _Timing(primitive_calls, calls, own_s, cumulative_s, counts)
    return found


def _caller_counts(callers: Mapping[_Function, Any], name: str) -> dict[_Function, tuple[int, float, float]]:
    # A caller has all calls before the primitive ones, where a function has the primitive ones first. The
    # module ``profile`` writes the number of calls alone.
    counted = [(counts, 0, 0.0, 0.0) if type(counts) is int else counts for counts in callers.values()]
    if not (
        all(isinstance(counts, tuple) and len(counts) == _CALLER_PARTS for counts in counted)
        and _are_amounts(tuple(itertools.chain.from_iterable(counted)))
    ):
        raise UsageError(f"{name} is no cProfile: the times of a caller are no times")
    return {
        caller: (int(calls), float(own_s), float(cumulative_s))
        for caller, (calls, _, own_s, cumulative_s) in zip(callers, counted, strict=True)
    }


def _is_function(key: object) -> bool:
    return (
        isinstance(key, tuple)
        and list(map(type, key)) == [str, int, str]
        and max(len(key[0]), len(key[2])) <= _LONGEST_NAME
        and _are_amounts(key[1:2])
    )


def _is_timing(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == _TIMING_PARTS
        and _are_amounts(value[:4])
        and isinstance(value[4], dict)
    )


def _are_amounts(values: tuple[Any, ...]) -> bool:
    """Return whether the values can be times or counts; a time can lie just below zero.

    The profiler subtracts its own overhead, which may be more than a short call took.
    """
    try:
        return _NUMBERS.issuperset(map(type, values)) and sum(map(abs, values)) <= _LARGEST_AMOUNT
    except OverflowError:
        return False


def _functions(found: Mapping[_Function, _Timing], code: CodeNames) -> tuple[FunctionTime, ...]:
    places = {key: place for place, key in enumerate(found)}
    files = {file for file, _, _ in found} - {_BUILTIN}
    portable = not any(map(is_absolute, files))
    known: dict[str, tuple[str, FunctionKind]] = {
        file: (code.shown(file), code.kind(file, portable=portable)) for file in files
    }
    known[_BUILTIN] = ("", "builtin")
    return tuple(
        FunctionTime(
            file=known[file][0],
            line=line,
            function=_shown_function(file, function),
            kind=known[file][1],
            calls=int(timing.calls),
            primitive_calls=int(timing.primitive_calls),
            own_s=float(timing.own_s),
            cumulative_s=float(timing.cumulative_s),
            callers=tuple(
                Call(caller=places[caller], calls=calls, own_s=own_s, cumulative_s=cumulative_s)
                for caller, (calls, own_s, cumulative_s) in timing.callers.items()
                if caller in places
            ),
        )
        for (file, line, function), timing in found.items()
    )


def _shown_function(file: str, function: str) -> str:
    is_builtin = file == _BUILTIN and function.startswith("<")
    return printable(f"{{{function[1:-1]}}}" if is_builtin else function)


def steps_of_functions(functions: Sequence[FunctionTime]) -> StepTimes | None:
    """Return how often an optimizer's ``step``, or else the backward pass, was called; None without both."""
    for sign, counts in (
        ("optimizer.step", [one.calls for one in functions if _is_optimizer_step(one)]),
        ("optimizer.step", [one.calls for one in functions if _is_optimizer_wrapper(one)]),
        ("run_backward", [one.calls for one in functions if "run_backward" in one.function]),
    ):
        # Where a loop has two optimizers, the one that steps most often counts.
        if counts and max(counts) > 0:
            return StepTimes(count=max(counts), sign=sign)
    return None


def _is_optimizer_step(one: FunctionTime) -> bool:
    file = one.file.rpartition("/")
    return one.function == "step" and file[0].endswith("torch/optim") and file[2] not in _NO_OPTIMIZERS


def _is_optimizer_wrapper(one: FunctionTime) -> bool:
    return one.function == "wrapper" and one.file.endswith("torch/optim/optimizer.py")
