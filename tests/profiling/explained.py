"""These builders make small readings to be explained, by hand or by cProfile with a clock of its own."""

from __future__ import annotations

import cProfile
import marshal
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from perfkit.model.profiles import Difference, Part
from perfkit.model.readings import Call, FunctionKind, FunctionTime, Reading, StepTimes
from perfkit.profiling.diff.attribution import Blame, blame, sink_of
from perfkit.profiling.read.names import CodeNames
from perfkit.profiling.read.pstats_file import read_pstats

ITEM = "{method 'item' of 'torch._C.TensorBase' objects}"
TO = "{method 'to' of 'torch._C.TensorBase' objects}"
LOCK = "{method 'acquire' of '_thread.lock' objects}"


def call(caller: int, seconds: float = 1.0, calls: int = 1) -> Call:
    """Return the part of one caller."""
    return Call(caller=caller, calls=calls, own_s=seconds, cumulative_s=seconds)


def function(
    name: str,
    *callers: Call,
    own_s: float = 0.0,
    calls: int | None = None,
    file: str = "train.py",
    line: int = 1,
    kind: FunctionKind | None = None,
) -> FunctionTime:
    """Return a function of one's own, or a builtin where its name stands in braces."""
    known: FunctionKind = "builtin" if name.startswith("{") else "own"
    made = sum(one.calls for one in callers) or 1 if calls is None else calls
    return FunctionTime(
        file="" if known == "builtin" else file,
        line=0 if known == "builtin" else line,
        function=name,
        kind=kind or known,
        calls=made,
        primitive_calls=made,
        own_s=own_s,
        cumulative_s=own_s,
        callers=callers,
    )


def library(name: str, *callers: Call, own_s: float = 0.0) -> FunctionTime:
    """Return a function of a library."""
    return function(name, *callers, own_s=own_s, file="lib/net.py", kind="library")


def reading(*functions: FunctionTime, steps: int | None = 1, name: str = "x.stat") -> Reading:
    """Return the cProfile of functions, over some steps."""
    return Reading(
        name=name,
        origin="cProfile",
        total_s=sum(one.own_s for one in functions),
        steps=None if steps is None else StepTimes(count=steps, sign="optimizer.step"),
        functions=functions,
    )


def blamed(functions: Sequence[FunctionTime]) -> list[Blame]:
    """Return who answers for what, where what stands still is a wait."""
    return blame(functions, [sink_of(one) for one in functions])


def seconds_by_name(blames: Sequence[Blame]) -> dict[str, float]:
    """Return the seconds of each function, those of nobody under an empty name."""
    return {one.function.function if one.function else "": one.seconds for one in blames}


class TickClock:
    """A clock that goes on by what is put on it alone, so that a real cProfile is the same everywhere."""

    def __init__(self) -> None:
        self._ticks: list[None] = []

    def spend(self, milliseconds: int) -> Callable[[], None]:
        """Return a call that takes so long."""
        ticks, taken = self._ticks, [None] * milliseconds
        return lambda: ticks.extend(taken)

    def profile(self, run: Callable[[], object]) -> dict[Any, Any]:
        """Return the table that cProfile makes of a call."""
        profiler = cProfile.Profile(timer=self._ticks.__len__, timeunit=1e-3)
        profiler.runcall(run)
        profiler.create_stats()
        table: dict[Any, Any] = vars(profiler)["stats"]
        return table


def read_table(table: dict[Any, Any], *, steps: int | None = None, name: str = "x.stat") -> Reading:
    """Return what a table of cProfile holds, over so many steps."""
    found = read_pstats(marshal.dumps(table), name, CodeNames())
    return found if steps is None else replace(found, steps=StepTimes(count=steps, sign="optimizer.step"))


def part(difference: Difference, name: str, title: str = "functions") -> Part:
    """Return the one part of this name."""
    (section,) = (one for one in difference.sections if one.title == title)
    (found,) = (one for one in section.parts if one.name == name)
    return found
