"""Calls for callgrind are made in turns of a known number, or a reason is given, and its dumps are read."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from perfkit.agent.benchmark_fixture import Work
from perfkit.agent.counters.calls import OTHER_PROCESSES, OWN_THREADS, TOO_FEW_CALLS
from perfkit.agent.counters.instructions import (
    NO_REQUESTS,
    TURNS,
    WITH_SETUP,
    build_requests,
    instructions_by_function,
    make_counted_calls,
)

# No counter has to be started here.
NO_CONTROL = ("true",)


def work(call: Callable[[], object], *, loops: int | None = None, rounds: int | None = None) -> Work:
    """Return a benchmark of a call, as a runner is given it."""
    return Work(
        node="test_it",
        block=lambda _: 0.0,
        call=call,
        keep=lambda _loops, _seconds: None,
        loops=loops,
        rounds=rounds,
    )


def test_a_short_call_is_made_often() -> None:
    made: list[None] = []
    answer = make_counted_calls(
        work(lambda: made.append(None)), control=NO_CONTROL, library=None, most_calls=math.inf
    )

    assert {"calls": 1000} == answer
    assert 2 + TURNS * 1000 == len(made)


def test_no_more_calls_are_made_than_allowed() -> None:
    made: list[None] = []
    short = work(lambda: made.append(None), loops=1, rounds=20)
    answer = make_counted_calls(short, control=NO_CONTROL, library=None, most_calls=20)

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
def test_what_cannot_be_counted_gives_the_reason(
    call: Callable[[], object], loops: int | None, rounds: int | None, problem: str
) -> None:
    most_calls = math.inf if rounds is None else rounds
    answer = make_counted_calls(
        work(call, loops=loops, rounds=rounds), control=NO_CONTROL, library=None, most_calls=most_calls
    )

    assert {"problem": problem} == answer


@pytest.mark.skipif(not (shutil.which("valgrind") and shutil.which("cc")), reason="needs Valgrind and cc")
def test_without_torch_valgrind_is_asked_by_compiled_requests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    made: list[None] = []
    library = build_requests(tmp_path)
    counted = work(lambda: made.append(None))
    answer = make_counted_calls(counted, control=NO_CONTROL, library=library, most_calls=math.inf)

    assert {"calls": 1000} == answer
    assert 2 + TURNS * 1000 == len(made)


def test_without_torch_and_compiler_it_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    library = build_requests(tmp_path)
    answer = make_counted_calls(work(int), control=NO_CONTROL, library=library, most_calls=math.inf)

    assert library is None
    assert {"problem": NO_REQUESTS} == answer


COUNTED = """
import ctypes
import sys

requests = ctypes.PyDLL(sys.argv[1])
for _ in range(4):
    requests.toggle()
    sorted(range(1000, 0, -7))
    requests.toggle_and_dump()
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="Valgrind is not installed")
def test_compiled_requests_count_each_turn_by_itself(tmp_path: Path) -> None:
    library = build_requests(tmp_path)
    assert library is not None
    under = ("valgrind", "-q", "--tool=callgrind", "--collect-atstart=no")
    subprocess.run(
        [*under, f"--callgrind-out-file={tmp_path}/counted", sys.executable, "-S", "-c", COUNTED, library],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"},
    )
    dumps = [(tmp_path / f"counted.{turn}").read_text().splitlines(keepends=True) for turn in (1, 2, 3, 4)]
    turns = [instructions_by_function(lines) for lines in dumps]

    assert turns[2]["list_sort_impl"] == turns[3]["list_sort_impl"] > 0
    assert turns[2].total() == pytest.approx(turns[3].total(), rel=0.01)
    assert not (tmp_path / "counted.5").exists()


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
    assert {"outer": 13, "inner": 900} == instructions_by_function(DUMP.splitlines())
