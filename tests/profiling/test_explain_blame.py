"""Each part of a cProfile's time belongs to own functions, to a wait, or to nobody."""

from __future__ import annotations

import math

import pytest
from explained import ITEM, LOCK, blamed, call, function, library, seconds_by_name
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.model.readings import FunctionTime
from perfkit.profiling.diff.attribution import callee_name, fold_waits


def test_a_library_is_paid_by_its_callers_in_proportion() -> None:
    found = blamed(
        [
            function("a", own_s=1.0),
            function("b", own_s=2.0),
            library("outer", call(0, 3.0), call(1, 1.0), own_s=0.0),
            library("inner", call(2, 4.0), own_s=4.0),
        ]
    )
    assert {"a": 4.0, "b": 3.0} == pytest.approx(seconds_by_name(found))


@pytest.mark.parametrize("name", ["<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>"])
def test_a_comprehension_is_a_part_of_its_function(name: str) -> None:
    found = blamed(
        [
            function("a", own_s=1.0),
            function("{built-in method builtins.sum}", call(0, 6.0), own_s=2.0),
            function(name, call(1, 4.0), own_s=3.0),
            library("inner", call(2, 1.0), own_s=1.0),
        ]
    )
    assert {"a": 7.0} == pytest.approx(seconds_by_name(found))


def test_a_circle_is_paid_by_who_enters_it() -> None:
    found = blamed(
        [
            function("x"),
            function("y"),
            library("a", call(0, 1.0), call(3, 50.0), own_s=2.0),
            library("b", call(2, 50.0), call(1, 3.0), own_s=2.0),
        ]
    )
    assert {"x": 1.0, "y": 3.0} == pytest.approx(seconds_by_name(found))


def test_what_modules_share_is_paid_by_the_one_that_called_it() -> None:
    found = blamed(
        [
            function("train"),
            function("net", call(3, 9.9)),
            function("block", call(3, 9.0)),
            library("_call_impl", call(0, 10.0), call(1, 9.5), call(2, 8.5), own_s=0.0),
            library("conv2d", call(3, 8.5), own_s=8.5),
        ]
    )
    assert seconds_by_name(found)["block"] > 0.9 * 8.5


def test_a_wait_is_shown_and_not_charged() -> None:
    (found,) = blamed([function("a", own_s=1.0), function(LOCK, call(0, 5.0, calls=3), own_s=5.0)])
    assert 1.0 == found.seconds
    assert (5.0, 3, "another thread") == (
        found.through["lock.acquire"].seconds,
        found.through["lock.acquire"].calls,
        found.through["lock.acquire"].whom,
    )


def test_a_chain_deeper_than_pythons_stack_is_followed() -> None:
    chain = [library(f"f{place}", call(place, 1.0), own_s=2.5e-4) for place in range(4_000)]
    assert {"main": 1.0} == pytest.approx(seconds_by_name(blamed([function("main"), *chain])))


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (LOCK, "lock.acquire"),
        (ITEM, "Tensor.item"),
        ("{method 'to' of 'torch._C._TensorBase' objects}", "Tensor.to"),
        ("{built-in method posix.read}", "posix.read"),
        ("step", "step (adam.py)"),
    ],
)
def test_a_callee_has_a_short_name(name: str, shown: str) -> None:
    assert shown == callee_name(function(name, file="torch/optim/adam.py"))


_NAMES = st.sampled_from(["main", "_get_data", LOCK, ITEM, "{built-in method len}", "<lambda>"])
_SECONDS = st.one_of(st.just(0.0), st.floats(1e-9, 1_000))


@st.composite
def call_graphs(draw: st.DrawFn) -> list[FunctionTime]:
    """Return functions that call each other, themselves, or in circles, own ones and libraries'."""
    size = draw(st.integers(1, 30))
    calls = st.builds(call, st.integers(0, size - 1), _SECONDS, st.integers(0, 9))
    return [
        function(
            name := draw(_NAMES),
            *draw(st.lists(calls, max_size=6, unique_by=lambda one: one.caller)),
            own_s=draw(_SECONDS),
            kind=None if name.startswith("{") else draw(st.sampled_from(["own", "library"])),
        )
        for _ in range(size)
    ]


@settings(max_examples=40)
@given(call_graphs())
def test_nothing_is_lost_or_charged_twice(functions: list[FunctionTime]) -> None:
    parts = [one.seconds for one in blamed(functions)]
    waits = [one.seconds for one in fold_waits(functions)]
    whole = math.fsum(one.own_s for one in functions)
    assert whole == pytest.approx(math.fsum((*parts, *waits)), rel=1e-9, abs=1e-12)
    assert min(parts, default=0.0) >= 0


@settings(max_examples=40)
@given(call_graphs())
def test_callees_and_own_time_make_a_function(functions: list[FunctionTime]) -> None:
    own = {id(one): one.own_s for one in functions}
    for one in blamed(functions):
        callees = math.fsum(callee.seconds for callee in one.through.values() if callee.whom is None)
        itself = own[id(one.function)] if one.function else 0.0
        assert one.seconds == pytest.approx(itself + callees, rel=1e-9, abs=1e-12)
