"""Calls for callgrind are made in turns of a known number, or a reason is given, and its dumps are read."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable

import pytest

from perfkit.agent.benchmark_fixture import Work
from perfkit.agent.callgrind import instructions_by_function
from perfkit.agent.counted import OTHER_PROCESSES
from perfkit.agent.counting.counting import OWN_THREADS, TOO_FEW_CALLS
from perfkit.agent.instructed import TURNS, WITH_SETUP, make_counted_calls

# Nobody has to be told to begin counting where nobody counts.
NO_CONTROL = ("true",)


def work(call: Callable[[], object], *, loops: int | None = None, rounds: int | None = None) -> Work:
    """Return a benchmark of a call, as a conductor is given it."""
    return Work(
        node="test_it",
        block=lambda _: 0.0,
        call=call,
        keep=lambda _loops, _seconds: None,
        loops=loops,
        rounds=rounds,
    )


def test_a_short_call_is_made_often() -> None:
    """Each turn has a thousand calls; two more tell how long a call takes."""
    made: list[None] = []
    answer = make_counted_calls(work(lambda: made.append(None)), control=NO_CONTROL, most_calls=math.inf)

    assert {"calls": 1000} == answer
    assert 2 + TURNS * 1000 == len(made)


def test_no_more_calls_are_made_than_allowed() -> None:
    """A benchmark that asks for twenty rounds is called at most as often."""
    made: list[None] = []
    short = work(lambda: made.append(None), loops=1, rounds=20)
    answer = make_counted_calls(short, control=NO_CONTROL, most_calls=20)

    assert {"calls": 6} == answer
    assert 20 >= len(made)


def _start_thread() -> None:
    thread = threading.Thread(target=sum, args=([1, 2],))
    thread.start()
    thread.join()


def _fork() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.parametrize(
    ("call", "loops", "rounds", "problem"),
    [
        (_start_thread, None, None, OWN_THREADS),
        (_fork, None, None, OTHER_PROCESSES),
        (int, 1, 3, TOO_FEW_CALLS),
        (int, 1, None, WITH_SETUP),
    ],
)
def test_what_cannot_be_counted_says_why(
    call: Callable[[], object], loops: int | None, rounds: int | None, problem: str
) -> None:
    """Callgrind counts one thread of one process, and all that happens in it between two marks."""
    most_calls = math.inf if rounds is None else rounds
    answer = make_counted_calls(
        work(call, loops=loops, rounds=rounds), control=NO_CONTROL, most_calls=most_calls
    )

    assert {"problem": problem} == answer


DUMP = """
events: Ir
fl=(1) values.c
fn=(1) outer
10 5
cfn=(2) inner
calls=3 20
11 900
+1 7
fn=(2)
20 600
* 300
fn=(1)
15 1
"""


def test_a_dump_is_read_by_function() -> None:
    """What a call costs belongs to the function that was called, under the name it was first given."""
    assert {"outer": 13, "inner": 900} == instructions_by_function(DUMP.splitlines())
