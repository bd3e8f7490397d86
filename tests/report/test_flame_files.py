"""A profile is written as the Firefox Profiler loads it (its processed profile format, version 70)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_here

from perfkit.commands.show import read_profiles
from perfkit.config import load_project
from perfkit.errors import UsageError
from perfkit.model.readings import Call, FunctionTime, Reading
from perfkit.report.flame_files import firefox_file

PROFILES = Path(__file__).parents[2] / "profiles"
HOSTILE = '</script><b>"\\\u2028\ud800'
# The columns that each table of the format has besides its length.
SHARED = {
    "stackTable": {"frame", "prefixOffset"},
    "frameTable": {
        *("address", "lib", "inlineDepth", "category", "subcategory", "func", "nativeSymbol"),
        *("innerWindowID", "line", "column", "originalLocation"),
    },
    "funcTable": {
        *("name", "isJS", "relevantForJS", "resource", "source", "lineNumber", "columnNumber"),
        "originalLocation",
    },
    "resourceTable": {"name", "host", "type"},
    "nativeSymbols": {"libIndex", "address", "name", "functionSize"},
    "sources": {"id", "filename", "startLine", "startColumn", "sourceMapURL", "content"},
    "sourceLocationTable": {"source", "line", "column"},
}
SAMPLES = {"stack", "time", "weight"}
MARKERS = {"data", "name", "startTime", "endTime", "phase", "category"}
THREAD = {
    *("processType", "processName", "processStartupTime", "processShutdownTime", "registerTime"),
    *("unregisterTime", "pausedRanges", "name", "isMainThread", "pid", "tid", "samples", "markers"),
}
COLOURS = {
    *("transparent", "purple", "green", "orange", "yellow", "lightblue", "blue", "brown", "magenta", "red"),
    *("lightred", "darkgrey", "grey"),
}


@pytest.fixture(scope="module")
def readings() -> Sequence[Reading]:
    files = [PROFILES / "naive_form.stat", PROFILES / "tensor_losses.stat"]
    return read_profiles(files, project=load_project(PROFILES.parent))


def _check_table(table: Mapping[str, Any], columns: set[str]) -> int:
    """Check that a table has these columns, all of its length, and return that."""
    assert columns == {name for name, value in table.items() if isinstance(value, list)}
    assert {table["length"]} == {len(table[name]) for name in columns}
    return int(table["length"])


def _check_indices(values: Sequence[int | None], count: int, none: int | None = None) -> None:
    """Check that indices are within a table, or that there is none."""
    assert all(value == none or (isinstance(value, int) and 0 <= value < count) for value in values)


def _check(written: Mapping[str, Any]) -> None:
    """Check a file against all that the profiler relies on: columns, lengths, indices, order and types."""
    shared, meta = written["shared"], written["meta"]
    lengths = {name: _check_table(shared[name], columns) for name, columns in SHARED.items()}
    strings = shared["stringArray"]
    assert len(strings) == len(set(strings))
    assert all(isinstance(text, str) for text in strings)
    _check_indices(shared["stackTable"]["frame"], lengths["frameTable"])
    # A caller's stack stands before its callee's; the offset of an outermost one is 0.
    assert all(0 <= offset <= place for place, offset in enumerate(shared["stackTable"]["prefixOffset"]))
    frames, functions = shared["frameTable"], shared["funcTable"]
    _check_indices(frames["func"], lengths["funcTable"])
    _check_indices(frames["category"], len(meta["categories"]))
    assert {0} == {*frames["subcategory"], *frames["inlineDepth"]}
    assert {-1} == {*frames["address"], *frames["lib"], *functions["resource"]}
    _check_indices(functions["name"], len(strings))
    _check_indices(functions["source"], lengths["sources"])
    _check_indices(shared["sources"]["filename"], len(strings))
    assert (70, [], 0) == (meta["preprocessedProfileVersion"], meta["markerSchema"], meta["processType"])
    assert "grey" in {category["color"] for category in meta["categories"]} <= COLOURS
    assert {"Other"} == {category["subcategories"][0] for category in meta["categories"]}
    _check_indices(meta["initialVisibleThreads"], len(written["threads"]))
    assert len(written["threads"]) == len({thread["pid"] for thread in written["threads"]})
    for thread in written["threads"]:
        assert set(thread) == THREAD
        assert isinstance(thread["pid"], str)
        assert 0 == _check_table(thread["markers"], MARKERS)
        _check_table(thread["samples"], SAMPLES)
        _check_indices(thread["samples"]["stack"], lengths["stackTable"])
        assert "tracing-ms" == thread["samples"]["weightType"]
        assert thread["samples"]["time"] == sorted(thread["samples"]["time"])
        assert meta["profilingEndTime"] >= thread["samples"]["time"][-1]


def _own_ms(written: Mapping[str, Any], thread: int) -> dict[str, float]:
    """Return each function's own milliseconds in a thread, as the profiler adds them up."""
    shared, samples = written["shared"], written["threads"][thread]["samples"]
    found: dict[str, float] = {}
    for stack, weight in zip(samples["stack"], samples["weight"], strict=True):
        function = shared["frameTable"]["func"][shared["stackTable"]["frame"][stack]]
        name = shared["stringArray"][shared["funcTable"]["name"][function]]
        found[name] = found.get(name, 0.0) + weight
    return found


def test_two_profiles_are_two_threads_of_one_file(readings: Sequence[Reading]) -> None:
    written = json.loads(firefox_file(readings))

    _check(written)
    assert ["naive_form.stat", "tensor_losses.stat"] == [thread["name"] for thread in written["threads"]]
    for reading, thread in zip(readings, written["threads"], strict=True):
        assert pytest.approx(1e3 * reading.total_s, rel=1e-6) == math.fsum(thread["samples"]["weight"])


def test_each_function_has_its_own_time(readings: Sequence[Reading]) -> None:
    written = json.loads(firefox_file(readings[1:]))

    wanted: dict[str, float] = {}
    for one in readings[1].functions:
        wanted[one.function] = wanted.get(one.function, 0.0) + 1e3 * one.own_s
    assert pytest.approx({name: ms for name, ms in wanted.items() if ms}, rel=1e-6) == _own_ms(written, 0)


def test_a_stack_leads_from_caller_to_callee() -> None:
    inner = FunctionTime(
        file="",
        line=0,
        function=HOSTILE,
        kind="builtin",
        calls=1,
        primitive_calls=1,
        own_s=2.0,
        cumulative_s=2.0,
        callers=(Call(caller=1, calls=1, own_s=2.0, cumulative_s=2.0),),
    )
    outer = FunctionTime(
        file="train.py",
        line=7,
        function="main",
        kind="own",
        calls=1,
        primitive_calls=1,
        own_s=1.0,
        cumulative_s=3.0,
    )

    written = json.loads(
        firefox_file([Reading(name=HOSTILE, origin="cProfile", total_s=3.0, functions=(inner, outer))])
    )

    _check(written)
    shared, samples = written["shared"], written["threads"][0]["samples"]
    deepest = samples["stack"][samples["weight"].index(2000.0)]
    caller = deepest - shared["stackTable"]["prefixOffset"][deepest]
    names = [
        shared["stringArray"][shared["funcTable"]["name"][shared["stackTable"]["frame"][stack]]]
        for stack in (caller, deepest)
    ]
    assert ["main", HOSTILE] == names
    assert 0 == shared["stackTable"]["prefixOffset"][caller]
    assert {None, 7} == set(shared["funcTable"]["lineNumber"])


def test_a_trace_is_refused() -> None:
    with pytest.raises(UsageError, match="the Firefox Profiler as it is"):
        firefox_file([Reading(name="trace.json", origin="torch trace", total_s=1.0)])


@pytest.mark.parametrize("verb", ["show", "explain"])
def test_commands_write_both_formats(verb: str, tmp_path: Path) -> None:
    files = [PROFILES / "tensor_losses.stat", PROFILES / "whole_tensors.stat"]
    firefox, speedscope = tmp_path / "firefox.json", tmp_path / "speedscope.json"

    done = run_here(verb, *files, "--firefox", firefox, "--speedscope", speedscope, cwd=tmp_path)

    assert (0, "") == (done.returncode, done.stderr)
    assert "whole_tensors.stat" in done.stdout
    written = json.loads(firefox.read_text())
    _check(written)
    names = ["tensor_losses.stat", "whole_tensors.stat"]
    assert names == [thread["name"] for thread in written["threads"]]
    assert names == [profile["name"] for profile in json.loads(speedscope.read_text())["profiles"]]
