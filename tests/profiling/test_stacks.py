"""Stacks of calls are made of who called whom, and lose no time."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.model.readings import Call, FunctionTime
from perfkit.profiling.diff.flames import stacks_of


def _function(
    name: str, own_s: float, cumulative_s: float, callers: Mapping[int, float] | None = None
) -> FunctionTime:
    return FunctionTime(
        file="train.py",
        line=1,
        function=name,
        kind="own",
        calls=1,
        primitive_calls=1,
        own_s=own_s,
        cumulative_s=cumulative_s,
        callers=tuple(
            Call(caller=caller, calls=1, own_s=0.0, cumulative_s=seconds)
            for caller, seconds in (callers or {}).items()
        ),
    )


def test_a_callee_stands_below_each_of_its_callers() -> None:
    functions = [
        _function("main", 1.0, 10.0),
        _function("forward", 2.0, 5.0, {0: 5.0}),
        _function("backward", 3.0, 4.0, {0: 4.0}),
        _function("matmul", 4.0, 4.0, {1: 3.0, 2: 1.0}),
    ]

    found = {stack.functions: stack.seconds for stack in stacks_of(functions)}

    assert {(0,): 1.0, (0, 1): 2.0, (0, 1, 3): 3.0, (0, 2): 3.0, (0, 2, 3): 1.0} == pytest.approx(found)


def test_what_is_called_within_a_cycle_alone_is_not_lost() -> None:
    functions = [_function("a", 1.0, 2.0, {1: 2.0}), _function("b", 1.0, 2.0, {0: 2.0})]

    assert math.fsum(stack.seconds for stack in stacks_of(functions)) == pytest.approx(2.0)
    assert () == stacks_of([])


def test_the_smallest_times_are_not_rounded_up() -> None:
    found = stacks_of([_function("main", 1.5, 5e-324)])

    assert [(stack.functions, stack.seconds) for stack in found] == [((0,), 1.5)]


_SECONDS = st.floats(min_value=0, max_value=1e3)


@given(st.data(), st.integers(1, 6))
def test_all_own_times_are_in_some_stack(data: st.DataObject, count: int) -> None:
    functions = [
        _function(
            f"f{number}",
            data.draw(_SECONDS),
            data.draw(_SECONDS),
            data.draw(st.dictionaries(st.integers(0, count - 1), _SECONDS, max_size=3)),
        )
        for number in range(count)
    ]

    found = stacks_of(functions)

    shown = math.fsum(stack.seconds for stack in found)
    assert shown == pytest.approx(math.fsum(one.own_s for one in functions), rel=1e-6, abs=1e-9)
    assert all(stack.seconds > 0 for stack in found)
