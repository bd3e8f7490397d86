"""Stacks of calls from profiles that only know who called whom, and the tree of calls of two profiles."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfkit.errors import UsageError
from perfkit.model import SIDES, Side
from perfkit.model.profiles import Amount, FlameFrame
from perfkit.model.readings import FunctionTime, Reading
from perfkit.profiling.diff.attribution import Key, Work, blame, equal_work, pair_functions, sink_of

# A smaller part of the whole stays with its caller: a program has more paths than anyone reads.
_LEAST_SHARE = 1e-4
_DEEPEST = 200
# A frame whose time is a smaller part of the longer side's belongs to its caller: nobody could see it.
LEAST_SHARE = 0.002
WHOLE = "all"
_Shown = Mapping[Key, FunctionTime]


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Functions that called one another, the outermost first, and the seconds in the innermost itself."""

    functions: tuple[int, ...]
    seconds: float


def known_stacks(reading: Reading) -> tuple[Stack, ...]:
    """Return the stacks of a profile, whose functions are indices into its own."""
    if not reading.functions:
        raise UsageError(
            f"{reading.name} does not know which function called which: only a .stat or .prof file does;"
            " a trace of torch.profiler opens in speedscope, Perfetto and the Firefox Profiler as it is"
        )
    return stacks_of(reading.functions)


def stacks_of(functions: Sequence[FunctionTime]) -> tuple[Stack, ...]:
    """Return stacks, as indices, whose seconds add up to all own times of the functions.

    What a function spends in a callee is taken to be the same share for each caller, as gprof takes it
    (Graham, Kessler and McKusick 1982). Recursion stands once; paths below a ten-thousandth end at their
    caller.
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
    """Return the paths with the times of each function scaled so that they add up to its own time."""
    given_s: dict[int, float] = defaultdict(float)
    for path, given in seconds.items():
        given_s[path[-1]] += given
    found = {
        # The quotient comes first, since a product of the smallest floats would be rounded.
        path: functions[path[-1]].own_s * (given / given_s[path[-1]])
        for path, given in seconds.items()
        if given_s[path[-1]] > 0
    }
    for number, one in enumerate(functions):
        if one.own_s > 0 and given_s[number] <= 0:
            found[(number,)] = one.own_s
    return {path: given for path, given in found.items() if given > 0}


def flames_of(base: Reading, head: Reading) -> FlameFrame | None:
    """Return the frame of all time, with two profiles' calls in it, in seconds per unit of equal work."""
    if not base.functions or not head.functions:
        return None
    work = equal_work(base, head)
    names = _names_on_head(base, head, work)
    root = _Node()
    _add(root, "base", base.functions, work.base, names)
    _add(root, "head", head.functions, work.head, {})
    shown = dict((*_by_key(base.functions, names), *_by_key(head.functions, {})))
    was = {new: f"{old.function}  {old.file}" for old, new in names.items() if old != new}
    root.add_up()
    least_s = LEAST_SHARE * max(root.all_s.values())
    return _frame(Key("", WHOLE), root, _Names(shown=shown, was=was, least_s=least_s))


@dataclass
class _Node:
    """A function on one path, with the seconds spent there on each side, in itself and in all."""

    own_s: dict[Side, float] = field(default_factory=lambda: dict.fromkeys(SIDES, 0.0))
    all_s: dict[Side, float] = field(default_factory=lambda: dict.fromkeys(SIDES, 0.0))
    inner: dict[Key, _Node] = field(default_factory=dict)

    def add_up(self) -> None:
        for node in self.inner.values():
            node.add_up()
        for side in SIDES:
            self.all_s[side] = math.fsum(
                (self.own_s[side], *(node.all_s[side] for node in self.inner.values()))
            )


@dataclass(frozen=True, kw_only=True)
class _Names:
    """How functions are shown, what they were called before, and the seconds below which none is drawn."""

    shown: _Shown
    was: Mapping[Key, str]
    least_s: float


def _names_on_head(base: Reading, head: Reading, work: Work) -> Mapping[Key, Key]:
    olds, news = (
        blame(one.functions, [sink_of(function) for function in one.functions]) for one in (base, head)
    )
    return {
        _key(pair.base.function): _key(pair.head.function)
        for pair in pair_functions(olds, news, work)
        if pair.base and pair.head and pair.base.function and pair.head.function
    }


def _add(
    root: _Node, side: Side, functions: Sequence[FunctionTime], units: float, names: Mapping[Key, Key]
) -> None:
    keys = [names.get(_key(one), _key(one)) for one in functions]
    for stack in stacks_of(functions):
        node = root
        for function in stack.functions:
            node = node.inner.setdefault(keys[function], _Node())
        node.own_s[side] += stack.seconds / units


def _by_key(
    functions: Sequence[FunctionTime], names: Mapping[Key, Key]
) -> Iterator[tuple[Key, FunctionTime]]:
    for one in functions:
        yield names.get(_key(one), _key(one)), one


def _key(one: FunctionTime) -> Key:
    return Key(one.file, one.function)


def _frame(key: Key, node: _Node, names: _Names) -> FlameFrame:
    large = {one: inner for one, inner in node.inner.items() if max(inner.all_s.values()) >= names.least_s}
    small = [inner for one, inner in node.inner.items() if one not in large]
    own = {side: math.fsum((node.own_s[side], *(inner.all_s[side] for inner in small))) for side in SIDES}
    function = names.shown.get(key)
    return FlameFrame(
        name=key.function,
        place=f"{function.file}:{function.line}" if function and function.file else "",
        was=names.was.get(key, ""),
        amount=_amount(node.all_s),
        own=_amount(own),
        inner=tuple(_frame(one, inner, names) for one, inner in large.items()),
    )


def _amount(seconds: Mapping[Side, float]) -> Amount:
    return Amount(base_s=seconds["base"], head_s=seconds["head"])
