"""Divides the time of a cProfile among the user's own functions and what the thread waited for.

A library's time belongs to whoever called it. So each function's own time is handed from caller to caller, up
to the nearest functions of the user's own, in proportion to the time that each caller spent in it. Its calls
are handed up in proportion to their numbers. Time in which a thread stands still is a wait, for which no
function answers. The parts add up to the whole, and each names code that can be changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from perfkit.model.readings import Call, FunctionTime
from perfkit.stats.graph import strong_components


@dataclass
class Blame:
    """The time that one own function answers for, its calls, and the library functions that took the time."""

    function: FunctionTime | None
    seconds: float = 0.0
    calls: int = 0
    through: dict[str, Through] = field(default_factory=dict)

    def added(self, other: Blame) -> Blame:
        """Return the sum of both, as of this one's function."""
        names = dict.fromkeys([*self.through, *other.through])
        through = {
            name: Through(
                seconds=sum(one.through[name].seconds for one in (self, other) if name in one.through),
                calls=sum(one.through[name].calls for one in (self, other) if name in one.through),
                whom=next((one.through[name].whom for one in (self, other) if name in one.through), None),
            )
            for name in names
        }
        return Blame(self.function, self.seconds + other.seconds, self.calls + other.calls, through)


@dataclass
class Through:
    """The part of an own function's time that one callee took, its calls, and for whom it stands still."""

    seconds: float = 0.0
    calls: float = 0.0
    whom: str | None = None


def blame(functions: Sequence[FunctionTime], sinks: Sequence[str | None]) -> list[Blame]:
    """Return the time that each own function answers for, without waits; last that of no own function.

    ``sinks`` says of each function for whom it waits, None where it works.
    """
    by_time, by_calls = _Owners(functions, _seconds_of), _Owners(functions, _calls_of)
    blames: dict[int | None, Blame] = {}
    for place, function in enumerate(functions):
        # Time and calls are divided apart: who waits first pays for all, yet how often each called is known.
        time_shares, call_shares = by_time.of(place), by_calls.of(place)
        for owner in dict.fromkeys([*time_shares, *call_shares]):
            one = blames.setdefault(owner, Blame(None if owner is None else functions[owner]))
            if owner == place:
                one.seconds += function.own_s
                one.calls = function.calls
                continue
            seconds = function.own_s * time_shares.get(owner, 0.0)
            if sinks[place] is None:
                one.seconds += seconds
            through = one.through.setdefault(callee_name(function), Through(whom=sinks[place]))
            through.seconds += seconds
            through.calls += function.calls * call_shares.get(owner, 0.0)
    return sorted(blames.values(), key=lambda one: (one.function is None, -one.seconds))


def callee_name(function: FunctionTime) -> str:
    """Return a callee's short name: ``lock.acquire`` for "{method 'acquire' of '_thread.lock' objects}"."""
    words = function.function.strip("{}").split("'")
    if function.kind == "builtin" and len(words) >= 4:  # noqa: PLR2004 ("method 'x' of 'y' objects")
        # torch 2 names the type TensorBase, torch 1 _TensorBase.
        return f"{words[3].rpartition('.')[2].removeprefix('_').replace('TensorBase', 'Tensor')}.{words[1]}"
    if function.kind == "builtin":
        return function.function.strip("{}").removeprefix("built-in method ")
    return f"{function.function} ({function.file.rpartition('/')[2]})"


def _seconds_of(call: Call) -> float:
    return max(call.cumulative_s, 0.0)


def _calls_of(call: Call) -> float:
    return float(max(call.calls, 0))


# Up to 3.11 Python gives these parts of a function a frame of their own; the function answers for them.
_PARTS_OF_FUNCTIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})


def _answers(function: FunctionTime) -> bool:
    """Tell whether a function answers for what it calls."""
    return function.kind == "own" and function.function not in _PARTS_OF_FUNCTIONS


class _Owners:
    """Finds for each function the own functions that answer for it, with shares that add up to one.

    A caller's share is by what ``weight`` says of its calls; where that is nothing, by how many they are.
    Library functions that call each other in a circle count as one, which its callers answer for.
    """

    def __init__(self, functions: Sequence[FunctionTime], weight: Callable[[Call], float]) -> None:
        self._weight = weight
        library = [
            (place, call)
            for place, function in enumerate(functions)
            if not _answers(function)
            for call in function.callers
        ]
        circles = [(place, call.caller) for place, call in library if not _answers(functions[call.caller])]
        self._circle = strong_components(len(functions), circles)
        self._found: dict[int, dict[int | None, float]] = {
            self._circle[place]: {place: 1.0}
            for place, function in enumerate(functions)
            if _answers(function)
        }
        entering: dict[int, list[Call]] = defaultdict(list)
        for place, call in library:
            if self._circle[place] != self._circle[call.caller]:
                entering[self._circle[place]].append(call)
        callers = {
            circle: {self._circle[call.caller] for call in calls} for circle, calls in entering.items()
        }
        for circle in TopologicalSorter(callers).static_order():
            if circle not in self._found:
                self._found[circle] = self._among(entering.get(circle, []))

    def of(self, place: int) -> dict[int | None, float]:
        """Return the owners of a function; None stands for nobody."""
        return self._found.get(self._circle[place], {None: 1.0})

    def _among(self, calls: Sequence[Call]) -> dict[int | None, float]:
        weights = [self._weight(call) for call in calls]
        if not sum(weights):
            weights = [_calls_of(call) for call in calls]
        whole = sum(weights)
        owners: dict[int | None, float] = defaultdict(float)
        for call, weight in zip(calls, weights, strict=True):
            if weight > 0:
                for owner, share in self.of(call.caller).items():
                    owners[owner] += share * (weight / whole)
        return dict(owners) or {None: 1.0}
