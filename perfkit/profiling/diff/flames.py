"""Joins the stacks of two profiles in one tree of calls, in which each frame has its time on both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfkit.model import SIDES, Side
from perfkit.model.differences import Amount, FlameFrame
from perfkit.model.readings import FunctionTime, Reading
from perfkit.profiling.diff.blame import blame
from perfkit.profiling.diff.pairing import Key, pair_functions
from perfkit.profiling.diff.stacks import stacks_of
from perfkit.profiling.diff.waits import sink_of
from perfkit.profiling.diff.work import Work, equal_work

# A frame whose time is a smaller part of the longer side's belongs to its caller: nobody could see it.
LEAST_SHARE = 0.002
WHOLE = "all"
_Shown = Mapping[Key, FunctionTime]


def flames_of(base: Reading, head: Reading) -> FlameFrame | None:
    """Return the frame of all time, with two profiles' calls in it, in seconds per unit of equal work.

    It is None where a profile does not know who called whom. Functions are paired as in a table of
    functions, so that a renamed one is one frame.

    Raises:
        UsageError: the two cannot be compared.
    """
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
        """Compute the seconds in all, here and below."""
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
    """Return for each own function of base that head has too its file and name there."""
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
    """Return a node as a frame; callees too small to be seen are taken for its own time."""
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
