"""Calls of Python functions are counted, and without torch also the memory of Python objects."""

from __future__ import annotations

import cProfile
import json
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from counting_code import Own, causes, metric

from perfkit.agent.counters.calls import PROFILER_IN_USE, TOO_FEW_CALLS, TRACING_IN_USE
from perfkit.agent.counters.model import NO_TORCH

PROGRAM = """
import json, sys
from pathlib import Path
from perfkit.agent.counters.calls import count_calls
from perfkit.agent.counters.model import as_message
{body}
counts = count_calls(run, root=Path({root!r}), most_calls={most})
print(json.dumps([as_message(counts), "torch" in sys.modules]))
"""


def counted_without_torch(folder: Path, body: str, most: str = "10") -> tuple[dict[str, Any], dict[str, str]]:
    """Return the counts by metric, and what was not counted, of a process of its own."""
    script = folder / "script.py"
    script.write_text(PROGRAM.format(body=textwrap.dedent(body), root=str(folder), most=most))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    message, has_torch = json.loads(done.stdout)
    assert not has_torch
    return {count["metric"]: count for count in message["counts"]}, message["not_counted"]


def test_python_functions_are_counted_with_where_they_begin(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        class Sum:
            def add(self, number):
                return sum([number, 1])
        def run():
            total = Sum()
            return [total.add(number) for number in range(5)], sorted([2, 1], key=lambda number: number)
        """,
    )

    counts = own.counts()

    lines = "def add", "def run", "lambda"
    add, run, key = (own.place(line) for line in lines)
    found = causes(counts, "python_calls")
    assert (5, 1) == (found["Sum.add", add], found["run", run])
    assert 2 == found["run.<locals>.<lambda>", key]
    assert metric(counts, "python_calls").exact


def test_calls_of_another_thread_do_not_count(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import threading
        def run():
            theirs = threading.Thread(target=other)
            theirs.start()
            theirs.join()
        def other(): return mine()
        def mine(): return None
        """,
    )

    functions = {what for what, _ in causes(own.counts(), "python_calls")}

    assert "run" in functions
    assert {"other", "mine"}.isdisjoint(functions)


def test_another_profiler_is_left_alone(tmp_path: Path) -> None:
    own = Own(tmp_path, "def run(): pass")
    profile = cProfile.Profile()
    profile.enable()
    try:
        counts = own.counts()
    finally:
        profile.disable()

    assert PROFILER_IN_USE == counts.not_counted["python_calls"]
    assert any("run" in str(entry.code) for entry in profile.getstats())


def test_a_call_that_profiles_itself_is_not_counted(tmp_path: Path) -> None:
    own = Own(
        tmp_path,
        """
        import cProfile
        def run():
            with cProfile.Profile():
                sorted([1])
        """,
    )

    assert PROFILER_IN_USE == own.counts().not_counted["python_calls"]


def test_without_torch_there_is_python_memory_and_no_torch(tmp_path: Path) -> None:
    counts, not_counted = counted_without_torch(
        tmp_path, "def run():\n    block = bytearray(1_000_000)\n    return len(block)"
    )

    assert {"python_calls", "python_peak"} == set(counts)
    assert 1_000_000 <= counts["python_peak"]["values"][-1] < 1_010_000
    assert 2 == len(counts["python_peak"]["values"])
    tensors = "operators", "syncs", "allowed_syncs", "allocated", "peak", "saved", "flops"
    assert dict.fromkeys(tensors, NO_TORCH) == not_counted


@pytest.mark.parametrize(("most", "calls", "peaks"), [("2", 1, 0), ("3", 2, 0), ("4", 2, 1)])
def test_without_torch_calls_go_to_functions_first(tmp_path: Path, most: str, calls: int, peaks: int) -> None:
    counts, not_counted = counted_without_torch(tmp_path, "def run(): pass", most)

    assert calls == len(counts["python_calls"]["values"])
    if peaks:
        assert peaks == len(counts["python_peak"]["values"])
    else:
        assert TOO_FEW_CALLS == not_counted["python_peak"]


def test_memory_that_is_traced_already_is_left_alone(tmp_path: Path) -> None:
    counts, not_counted = counted_without_torch(
        tmp_path, "import tracemalloc\ntracemalloc.start()\ndef run(): assert tracemalloc.is_tracing()"
    )

    assert TRACING_IN_USE == not_counted["python_peak"]
    assert "python_calls" in counts
    assert not tracemalloc.is_tracing()
