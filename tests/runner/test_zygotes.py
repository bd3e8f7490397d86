"""Servers of a side import and collect once, and every launch of a generation is forked from them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from processes_seen import gone, wait_until
from two_trees import FILE, SIDES, TwoTrees, nodes

from perfkit.gating.run import LockstepLaunches
from perfkit.runner.lockstep import collection
from perfkit.runner.lockstep.launch import LaunchRecord, LaunchRules, Slot, schedule
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.tracing import trace_sides

# Reports what its process is like, once when it is imported and once in each launch.
PROGRAM = """
import json, os, sys, tempfile
state = {"calls": 0}
def emit(what):
    found = {"what": what, "pid": os.getpid(), "parent": os.getppid(), "hash": hash("word")}
    tools = map(sys.monitoring.get_tool, range(6)) if hasattr(sys, "monitoring") else ()
    found["traced"] = any(tools) or sys.getprofile() is not None or hasattr(os.stat, "__code__")
    found |= {"temporary": tempfile.gettempdir(), "calls": state["calls"]}
    with open("seen.txt", "a") as file:
        print(json.dumps(found), file=file)
emit("imported")
def test_it(benchmark, tmp_path):
    emit("launched")
    (tmp_path / "mine").write_text("mine")
    state["calls"] += 1
    benchmark(sum, [])
"""
# Reports where its stack is, as the kernel sees it while it reads this file for it.
STACK = """
import json, os
def place():
    file = os.open("/proc/self/syscall", os.O_RDONLY)
    found = os.read(file, 1000).split()
    os.close(file)
    return int(found[7], 16)
def test_it(benchmark):
    found = {"what": "called", "stack": benchmark.pedantic(place, rounds=1)}
    with open("seen.txt", "a") as file:
        print(json.dumps(found), file=file)
"""
THREADED = """
import threading, time
threading.Thread(target=time.sleep, args=[60], daemon=True, name="mine").start()
"""
PLAIN = "def test_it(benchmark): benchmark(sum, [])\n"
RULES = LaunchRules(launch_s=0.02, limit_s=lambda _: 20.0)


@pytest.fixture
def trees(tmp_path: Path) -> TwoTrees:
    """Return trees whose benchmarks record what their processes are like."""
    made = TwoTrees(tmp_path)
    made.benchmarks(PROGRAM)
    return made


def launch(launcher: Launcher, slot: Slot | None = None) -> LaunchRecord:
    return launcher.launch(slot or next(iter(schedule(seed=1))), nodes("test_it"), plans={}, rules=RULES)


def output(trees: TwoTrees, what: str) -> list[dict[str, Any]]:
    """Return what base's processes reported of their import, or of their launches."""
    found = [json.loads(line) for line in trees.lines("base", "seen.txt")]
    return [one for one in found if one["what"] == what]


def test_launches_are_forked_after_the_import(trees: TwoTrees, shared: Launcher) -> None:
    with trees.borrow(shared) as launcher:
        listed = launcher.survey()
        records = [launch(launcher) for _ in range(3)]

        assert launcher.serves
        assert launcher.why_not_served is None
        assert trees.processes()
    assert wait_until(lambda: not trees.processes())
    assert [set(nodes("test_it"))] * 2 == [set(listed[side].found) for side in SIDES]
    assert [()] * 3 == [record.failures for record in records]
    assert [{}, {}] == [dict(records[0].reports[side].foreign) for side in SIDES]
    assert [True, True] == [FILE in records[0].reports[side].loaded for side in SIDES]
    (imported,), launched = output(trees, "imported"), output(trees, "launched")
    assert {imported["pid"]} == {one["parent"] for one in launched}
    assert 3 == len({one["pid"] for one in launched}) == len({one["temporary"] for one in launched})
    assert [0, 0, 0] == [one["calls"] for one in launched]


@pytest.mark.parametrize(
    ("name", "expected"),
    [(None, [True, False]), ("test_plain.py", [False, True]), ("bench_plain.py", [True, True, False])],
)
def test_launches_are_no_forks_of_what_traced_the_import_of_benchmarks(
    trees: TwoTrees, shared: Launcher, name: str | None, expected: list[bool]
) -> None:
    if name is not None:
        trees.write({f"benchmarks/{name}": "def test_plain(): pass\n"})
    with trees.borrow(shared) as launcher:
        launcher.trace_imports(trees.roots)
        launcher.survey()
        traces = trace_sides(launcher, nodes("test_it"), trees.roots, seconds=20, limit_s=20)
        record = launch(launcher)

    assert () == record.failures
    assert f"benchmarks/{name}" not in {file for file, _, _ in traces["head"].imported.codes}
    # Where it is foreseen, the process that lists the benchmarks does not trace, and serves the launches.
    imported, (*traced, timed) = output(trees, "imported"), output(trees, "launched")
    assert expected == [one["traced"] for one in imported]
    assert (imported[expected.index(False)]["pid"], False) == (timed["parent"], timed["traced"])
    if name is None:
        # Tracing has imported nothing once more.
        assert nodes("test_it") == [*traces["base"].ran]
        assert traced
        assert [True] * len(traced) == [one["traced"] for one in traced]


def test_groups_are_as_large_as_their_cost_allows(trees: TwoTrees, shared: Launcher) -> None:
    with trees.borrow(shared) as launcher:
        launcher.survey()
        launches = LockstepLaunches(launcher, limit_s=lambda _: 20.0)
        groups = []
        for cost_s, slot in zip([1e6] * 9 + [0.0] * 3, schedule(seed=1), strict=False):
            launches.prepare()
            launches.make(slot, nodes("test_it"))
            groups.append(launches.group)
            launcher.collected_s = cost_s

    assert [8, 2, 1, 1] == [groups.count(group) for group in dict.fromkeys(groups)]
    # A group of one launch has no server: the process that was launched has imported the code.
    imported, launched = ([one["pid"] for one in output(trees, what)] for what in ("imported", "launched"))
    assert launched[-2:] == imported[-2:]
    assert 4 == len(imported)
    assert set(imported[:2]).isdisjoint(launched)


def test_groups_that_differ_are_small(trees: TwoTrees, shared: Launcher) -> None:
    with trees.borrow(shared) as launcher:
        launcher.survey()
        launches = LockstepLaunches(launcher, limit_s=lambda _: 20.0)
        launches.expect(1e9)
        groups = []
        for slot in zip(range(3), schedule(seed=1), strict=False):
            launches.prepare()
            launches.make(slot[1], nodes("test_it"))
            groups.append(launches.group)
            launcher.collected_s = 1e6

    assert 3 == len(set(groups))


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="the kernel has no such file")
@pytest.mark.parametrize("served", [True, False])
def test_the_stack_is_elsewhere_in_each_launch_and_alike_on_both_sides(
    trees: TwoTrees, shared: Launcher, *, served: bool
) -> None:
    trees.benchmarks(STACK if served else THREADED + STACK)
    with trees.borrow(shared) as launcher:
        launcher.survey()
        for _ in range(4):
            assert () == launch(launcher).failures

        assert served == launcher.serves
        why = None if served else "threads were started when it was imported: mine"
        assert why == launcher.why_not_served
    base, head = (
        [json.loads(line)["stack"] for line in (trees.roots[side] / "seen.txt").read_text().splitlines()]
        for side in SIDES
    )
    assert base == head
    assert len(set(base)) > 2
    assert max(base) - min(base) < 1 << 14


def test_a_server_that_died_is_replaced(trees: TwoTrees, shared: Launcher) -> None:
    with trees.borrow(shared) as launcher:
        launcher.survey()
        (imported,) = output(trees, "imported")
        os.kill(imported["pid"], signal.SIGKILL)
        assert wait_until(lambda: gone(imported["pid"]))
        record = launch(launcher)

    assert ((), nodes("test_it")) == (record.failures, list(record.timings))
    assert 2 == len({one["pid"] for one in output(trees, "imported")})


SEEN = """
import pathlib, pytest
mark = pathlib.Path(__file__).with_suffix(".mark")
again = mark.exists()
mark.touch()
"""
FIRST = "def test_first(benchmark): benchmark(sum, [])\n"
# Ways in which what was collected at first is not collected later on, with what is reported of it.
VANISHING = {
    f"if not again:\n    {FIRST}": "its id may depend on the hash seed, the time or a listing of files",
    f"if again: raise OSError('not now')\n{FIRST}": "OSError: not now",
    f"if again: pytest.skip('not now', allow_module_level=True)\n{FIRST}": "not now",
}


@pytest.mark.parametrize("text", VANISHING, ids=["another id", "an error", "a skip"])
def test_a_benchmark_that_is_not_collected_again_is_reported(
    trees: TwoTrees, shared: Launcher, text: str
) -> None:
    trees.write({"benchmarks/bench_other.py": "def test_other(benchmark): benchmark(sum, [])\n"})
    trees.benchmarks(SEEN + text, "base")
    trees.benchmarks(FIRST, "head")
    wanted = [*nodes("test_first"), "benchmarks/bench_other.py::test_other"]
    with trees.borrow(shared) as launcher:
        assert [set(wanted)] * 2 == [set(one.found) for one in launcher.survey().values()]
        launcher.renew()
        record = launcher.launch(next(iter(schedule(seed=1))), wanted, plans={}, rules=RULES)

    (failure,) = record.failures
    assert (wanted[0], "base") == (failure.node, failure.side)
    assert f"was not collected again: {VANISHING[text]}" in failure.message
    assert wanted[1:] == list(record.timings)
    assert set(SIDES) == set(record.reports)


def test_a_library_that_brings_a_sides_own_code_is_not_preloaded(trees: TwoTrees, tmp_path: Path) -> None:
    trees.benchmarks(PLAIN)
    trees.write({"brought/__init__.py": ""})
    for name, text in (("brings.py", "import brought\n"), ("brought.py", "")):
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    with trees.launcher(preload=["brings"], environment=environment) as launcher:
        listed = launcher.survey()

        assert launcher.serves
    assert [{}, {}] == [dict(listed[side].report.foreign) for side in SIDES]


def test_a_collection_that_takes_long_states_where_it_is(
    trees: TwoTrees, shared: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "_FIRST_WORD_S", 0.5)
    trees.benchmarks("import time\ntime.sleep(2)\n" + PLAIN)
    output: list[str] = []
    with trees.borrow(shared) as launcher:
        listed = launcher.survey(log=output.append)

    assert nodes("test_it") == list(listed["head"].found)
    assert [] != [one for one in output if f"pytest is at {FILE} of " in one and " s so far" in one], output
