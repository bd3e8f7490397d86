"""Stacks of calls from a profile that only knows who called whom, such as cProfile's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfkit.errors import UsageError
from perfkit.model.readings import FunctionTime, Reading

# A smaller part of the whole stays with its caller: a program has more paths than anyone reads.
_LEAST_SHARE = 1e-4
_DEEPEST = 200


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Functions that called one another, the outermost first, and the seconds in the innermost itself."""

    functions: tuple[int, ...]
    seconds: float


def known_stacks(reading: Reading) -> tuple[Stack, ...]:
    """Return the stacks of a profile, whose functions are indices into its own.

    Raises:
        UsageError: the profile does not know who called whom.
    """
    if not reading.functions:
        raise UsageError(
            f"{reading.name} does not say which function called which: only a .stat or .prof file does;"
            " a trace of torch.profiler opens in speedscope, Perfetto and the Firefox Profiler as it is"
        )
    return stacks_of(reading.functions)


def stacks_of(functions: Sequence[FunctionTime]) -> tuple[Stack, ...]:
    """Return stacks whose seconds add up to all own times of the functions; they are indices into these.

    A profile of calls does not keep paths: what a function spends in a callee is taken to be the same part of
    its time whoever called it, as gprof takes it (Graham, Kessler and McKusick 1982). Functions that call
    themselves, at once or by others, stand once in a stack. Paths of less than a ten-thousandth of the whole
    end at their caller.
    """
    whole = sum(one.own_s for one in functions)
    callees: dict[int, list[tuple[int, float]]] = defaultdict(list)
    called: dict[int, float] = defaultdict(float)
    for callee, one in enumerate(functions):
        for call in one.callers:
            if call.caller != callee and call.cumulative_s > 0:
                callees[call.caller].append((callee, call.cumulative_s))
                called[callee] += call.cumulative_s
    walk = _Walk(functions=functions, callees=callees, least_s=whole * _LEAST_SHARE)
    for number, one in enumerate(functions):
        # What nobody in the profile called begins a stack.
        if one.cumulative_s > called[number]:
            walk.descend((), number, one.cumulative_s - called[number])
    found = _scaled(walk.seconds, functions)
    return tuple(Stack(functions=path, seconds=seconds) for path, seconds in sorted(found.items()))


@dataclass
class _Walk:
    """Walks down from callers to callees, and adds up what each path is given."""

    functions: Sequence[FunctionTime]
    callees: dict[int, list[tuple[int, float]]]
    least_s: float

    def __post_init__(self) -> None:
        self.seconds: dict[tuple[int, ...], float] = defaultdict(float)

    def descend(self, above: tuple[int, ...], number: int, seconds: float) -> None:
        """Give a function, called along a path, so many seconds with all that it calls."""
        pending = [(above, number, seconds)]
        while pending:
            outer, function, given_s = pending.pop()
            path = (*outer, function)
            left_s = given_s
            for callee, part_s in self._shares(path, given_s):
                pending.append((path, callee, part_s))
                left_s -= part_s
            self.seconds[path] += max(left_s, 0.0)

    def _shares(self, path: tuple[int, ...], given_s: float) -> Iterator[tuple[int, float]]:
        """Yield the callees of a path's last function that get a part of its seconds."""
        if len(path) >= _DEEPEST:
            return
        one = self.functions[path[-1]]
        below = self.callees.get(path[-1], [])
        # Where times overlap, as those of recursion do, callees together get no more than there is.
        whole_s = max(one.cumulative_s, one.own_s + sum(seconds for _, seconds in below))
        for callee, seconds in below:
            part_s = given_s * (seconds / whole_s) if whole_s else 0.0
            if callee not in path and part_s > self.least_s:
                yield callee, part_s


def _scaled(
    seconds: dict[tuple[int, ...], float], functions: Sequence[FunctionTime]
) -> dict[tuple[int, ...], float]:
    """Return the paths with the times of each function scaled so that they add up to its own time.

    A function that is on no path, since it is called within a cycle alone, is one by itself.
    """
    told: dict[int, float] = defaultdict(float)
    for path, given in seconds.items():
        told[path[-1]] += given
    found = {
        # The quotient comes first, since a product of the smallest floats would be rounded.
        path: functions[path[-1]].own_s * (given / told[path[-1]])
        for path, given in seconds.items()
        if told[path[-1]] > 0
    }
    for number, one in enumerate(functions):
        if one.own_s > 0 and told[number] <= 0:
            found[(number,)] = one.own_s
    return {path: given for path, given in found.items() if given > 0}
