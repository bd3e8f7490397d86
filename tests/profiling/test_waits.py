"""The time that a profiled thread waited is assigned to what it waited for."""

from __future__ import annotations

import math

import pytest
from explained import LOCK, call, function
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.model.readings import FunctionTime, WaitTime
from perfkit.profiling.diff.attribution import DEVICE, LOADER_WORKERS, fold_waits, sink_of

LOADER = "torch/utils/data/dataloader.py"


def seconds(waits: tuple[WaitTime, ...]) -> dict[str, float]:
    return {wait.whom: wait.seconds for wait in waits}


def test_a_lock_below_the_loader_waits_for_its_workers() -> None:
    waits = fold_waits(
        [
            function("_try_get_data", file=LOADER),
            function("wait", call(0), file="threading.py"),
            function(LOCK, call(1, 3.0, calls=4), own_s=3.0),
        ]
    )
    assert (WaitTime(whom=LOADER_WORKERS, seconds=3.0, calls=4, through=("lock.acquire",)),) == waits


def test_recursion_ends_and_does_not_hide_the_caller() -> None:
    waits = fold_waits(
        [
            function("_next_data", file=LOADER),
            function("a", call(0, 1.0), call(1, 50.0), call(2, 1.0)),
            function("b", call(1, 1.0)),
            function(LOCK, call(2), own_s=2.0),
        ]
    )
    assert {LOADER_WORKERS: pytest.approx(2.0)} == seconds(waits)


def test_a_circle_that_nobody_entered_waits_for_another_thread() -> None:
    waits = fold_waits([function("a", call(1)), function("b", call(0)), function(LOCK, call(0), own_s=2.0)])
    assert {"another thread": pytest.approx(2.0)} == seconds(waits)


def test_calls_nested_deeper_than_python_are_followed() -> None:
    chain = [function(f"f{place}", call(place)) for place in range(5_000)]
    waits = fold_waits([function("_get_data", file=LOADER), *chain, function(LOCK, call(5_000), own_s=1.0)])
    assert {LOADER_WORKERS: pytest.approx(1.0)} == seconds(waits)


def test_the_debt_of_a_device_is_one_however_it_is_paid() -> None:
    (wait,) = fold_waits(
        [
            function("main"),
            function("{method 'item' of 'torch._C.TensorBase' objects}", call(0), own_s=1.0),
            function("{method 'to' of 'torch._C._TensorBase' objects}", call(0), own_s=2.0),
        ]
    )
    assert (DEVICE, 3.0, 2) == (wait.whom, wait.seconds, wait.calls)
    assert ("Tensor.to", "Tensor.item") == wait.through


def test_a_file_with_a_similar_name_proves_nothing() -> None:
    waits = fold_waits(
        [
            function("_get_data", file=LOADER),
            function("join", call(0), file="src/multithreading.py"),
            function(LOCK, call(1), own_s=1.0),
        ]
    )
    assert {LOADER_WORKERS: pytest.approx(1.0)} == seconds(waits)


_NAMES = st.sampled_from(["main", "_get_data", LOCK, "{built-in method time.sleep}", "join", "synchronize"])
_FILES = st.sampled_from(["train.py", LOADER, "threading.py", "torch/cuda/__init__.py", "subprocess.py"])
_SECONDS = st.floats(0, 1_000, allow_nan=False)


@st.composite
def call_graphs(draw: st.DrawFn) -> list[FunctionTime]:
    """Return functions that call each other, themselves, or in circles."""
    size = draw(st.integers(1, 40))
    calls = st.builds(call, st.integers(0, size - 1), _SECONDS, st.integers(0, 9))
    return [
        function(
            draw(_NAMES),
            *draw(st.lists(calls, max_size=6, unique_by=lambda one: one.caller)),
            file=draw(_FILES),
            own_s=draw(_SECONDS),
        )
        for _ in range(size)
    ]


@settings(max_examples=30)
@given(call_graphs())
def test_nothing_is_lost_or_reported_twice(functions: list[FunctionTime]) -> None:
    whole = math.fsum(one.own_s for one in functions if sink_of(one) is not None)
    assert whole == pytest.approx(math.fsum(seconds(fold_waits(functions)).values()), rel=1e-9, abs=1e-12)
