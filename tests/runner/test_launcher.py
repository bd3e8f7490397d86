"""Children have the right environment, import what they share once, and never outlive their run."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from processes_seen import DEADLY, gone, wait_until
from two_trees import SIDES, TwoTrees, nodes

from perfkit.errors import NotMeasuredError
from perfkit.model import Side
from perfkit.runner.commands import ALLOCATOR
from perfkit.runner.lockstep.collection import Listing, expected_imports, list_benchmarks
from perfkit.runner.lockstep.launch import LaunchRules, Slot, schedule
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.turns import LoopPlan

# Reports, when it is collected, what its process is like.
PROGRAM = """
import gc, json, os, sys
found = {"collects": gc.isenabled(), "frozen": gc.get_freeze_count()}
found |= {"hash": hash("word"), "environment": dict(os.environ), "loaded": sorted(sys.modules)}
found["parent"] = os.getppid()
with open("seen.txt", "a") as file:
    print(json.dumps(found), file=file)
def test_it(benchmark): benchmark(sum, [])
"""
RULES = LaunchRules(launch_s=0.02, limit_s=lambda _: 20.0)
PLAIN = {name: text for name, text in os.environ.items() if name not in (*ALLOCATOR, "PYTHONHASHSEED")}


@pytest.fixture
def trees(tmp_path: Path) -> TwoTrees:
    """Return trees whose benchmarks record what their processes are like."""
    made = TwoTrees(tmp_path)
    made.benchmarks(PROGRAM)
    return made


def visit(trees: TwoTrees, launcher: Launcher, side: Side) -> tuple[dict[str, Any], Listing]:
    """Return what a child of a side reports of itself, and what it found."""
    listing = list_benchmarks(launcher.start(side, nodes=None))
    return json.loads(trees.lines(side, "seen.txt")[-1]), listing


def test_fork_servers_have_hash_seeds_of_their_own_and_temporary_files_go_away(trees: TwoTrees) -> None:
    trees.benchmarks(
        PROGRAM
        + """
def test_writes(benchmark, tmp_path):
    (tmp_path / "much").write_bytes(bytes(1000))
    benchmark(len, [])
    with open("places.txt", "a") as file:
        file.write(f"{tmp_path}\\n")
"""
    )
    with trees.launcher(environment=PLAIN) as launcher:
        output = []
        for slot in itertools.islice(schedule(seed=1), 2):
            launcher.renew()
            output.append([visit(trees, launcher, side)[0] for side in ("base", "head")])
            record = launcher.launch(slot, nodes("test_writes"), plans={}, rules=RULES)
            assert nodes("test_writes") == list(record.timings)
        left = {path.suffix for path in trees.folder.rglob("*")}

    assert all(base["hash"] == head["hash"] for base, head in output)
    assert 2 == len({base["hash"] for base, _ in output})
    assert 2 == len({base["environment"]["PYTHONHASHSEED"] for base, _ in output})
    assert all(base["parent"] == head["parent"] for base, head in output)
    places = {Path(line) for line in trees.lines("head", "places.txt")}
    assert 2 == len(places)
    assert all(place.is_relative_to(trees.folder) for place in places)
    assert {".log"} == left


@pytest.mark.parametrize(("cores", "raised"), [(1.5, 1), (2, 2)])
def test_a_second_fork_server_is_started_where_a_core_is_free(
    trees: TwoTrees, cores: float, raised: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfkit.runner.lockstep.launcher._STARTED_TOGETHER", 2)
    with trees.launcher(environment=PLAIN, cores=cores) as launcher:
        first = visit(trees, launcher, "head")[0]
        logs = [*trees.folder.glob("fork-server-*.log")]
        launcher.renew()
        second = visit(trees, launcher, "head")[0]
        later = [*trees.folder.glob("fork-server-*.log")]

    assert (raised, 2) == (len(logs), len(later))
    assert first["hash"] != second["hash"]


def test_a_launch_that_collects_for_itself_runs_no_git(trees: TwoTrees, tmp_path: Path) -> None:
    asked, tools = tmp_path / "asked", tmp_path / "tools"
    tools.mkdir()
    (tools / "git").write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    (tools / "git").chmod(0o755)
    environment = {**PLAIN, "PATH": f"{tools}{os.pathsep}{PLAIN['PATH']}"}
    with trees.launcher(preload=None, environment=environment) as launcher:
        record = launcher.launch(schedule_first(), nodes("test_it"), plans={}, rules=RULES)

    assert nodes("test_it") == list(record.timings)
    assert not asked.exists()


def test_children_find_what_is_shared_and_a_place_of_their_own(trees: TwoTrees) -> None:
    environment = {**PLAIN, "MINE": "kept"}
    with trees.launcher(preload=["wave", "no_such_library"], environment=environment) as launcher:
        children = [visit(trees, launcher, side)[0] for side in ("base", "head", "base")]

        assert launcher.allocator_kept is True
        assert launcher.why_no_fork is None
    places = {child["environment"]["TMPDIR"] for child in children}
    assert 3 == len(places)
    assert 1 == len(set(map(len, places)))
    assert {trees.folder} == {Path(place).parent for place in places}
    for child in children:
        assert ALLOCATOR.items() | {("MINE", "kept")} <= child["environment"].items()
        assert "wave" in child["loaded"]
        assert "no_such_library" not in child["loaded"]
        assert child["collects"]
        assert child["frozen"] > 10_000


PYPROJECT_WITH = """[tool.pytest.ini_options]
python_files = ["bench_*.py"]
addopts = "{addopts}"
"""
WITHOUT_HYPOTHESIS = """[tool.pytest.ini_options]
python_files = ["bench_*.py"]
filterwarnings = ["error"]
addopts = "-p no:hypothesispytest"
"""


@pytest.mark.parametrize(
    ("variable", "value", "loaded"),
    [
        ("PYTEST_ADDOPTS", "-p no:anyio", {"_hypothesis_pytestplugin"}),
        ("PYTEST_ADDOPTS", "-p no:hypothesispytest -p no:anyio", set()),
        ("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1", set()),
    ],
)
def test_plugins_of_pytest_are_loaded_before_the_fork(
    trees: TwoTrees, variable: str, value: str, loaded: set[str]
) -> None:
    trees.write({"pyproject.toml": WITHOUT_HYPOTHESIS})
    environment = {**os.environ, variable: value}
    with trees.launcher(environment=environment) as launcher:
        output, listing = visit(trees, launcher, "head")

    assert loaded == {"_hypothesis_pytestplugin"} & set(output["loaded"])
    assert {} == listing.errors


def test_a_marker_that_has_tests_run_again_is_overruled_and_named(trees: TwoTrees, shared: Launcher) -> None:
    trees.benchmarks(
        "import pytest\n@pytest.mark.flaky(reruns=2)\ndef test_it(benchmark): benchmark(sum, [])\n"
    )

    with trees.borrow(shared) as launcher:
        listing = list_benchmarks(launcher.start("head", nodes=None))

    assert (nodes("test_it"), ("@pytest.mark.flaky",)) == (list(listing.found), listing.overruled)


@pytest.mark.parametrize(("addopts", "overruled"), [("-p no:xdist", ()), ("-n 2", ("-n",))])
def test_options_of_other_plugins_are_undone_where_these_are_loaded(
    trees: TwoTrees, shared: Launcher, addopts: str, overruled: tuple[str, ...]
) -> None:
    trees.write({"pyproject.toml": PYPROJECT_WITH.format(addopts=addopts)})
    with trees.borrow(shared) as launcher:
        _, listing = visit(trees, launcher, "head")

    assert 1 == len(listing.found)
    assert overruled == listing.overruled
    assert {} == listing.errors


def test_the_sides_own_modules_are_not_preloaded(trees: TwoTrees, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "thing.py").write_text("SIDE = 'installed'\n")
    trees.write({"thing.py": "SIDE = 'own'\n"}, "head")
    trees.benchmarks(PROGRAM.replace("found |= {", "import thing\nfound |= {'side': thing.SIDE, "))

    with trees.launcher(preload=["thing"], environment={**os.environ, "PYTHONPATH": str(site)}) as launcher:
        output, listing = visit(trees, launcher, "head")

    assert "own" == output["side"]
    assert ({}, True) == (listing.report.foreign, "thing.py" in listing.report.loaded)


def test_what_a_session_imports_from_elsewhere_is_learned(trees: TwoTrees) -> None:
    trees.write({"thing.py": "def make():\n    import wave\nmake()\n"})
    trees.benchmarks(PROGRAM + "import thing\n")
    with trees.launcher(preload=None) as launcher:
        before, listing = visit(trees, launcher, "head")
        launcher.warm_up(listing.report.libraries)
        after, _ = visit(trees, launcher, "head")

    assert ("wave" in before["loaded"], "wave" in after["loaded"]) == (False, True)
    assert {"thing", "wave"} & set(listing.report.libraries) == {"wave"}


EXPECTS = """
import wave, json.tool
from sndhdr import what
from . import nothing
import thing
try:
    import chunk
except ImportError:
    pass
"""


def test_what_the_benchmarks_files_of_both_sides_import_is_loaded_before_the_fork(trees: TwoTrees) -> None:
    trees.benchmarks(EXPECTS + "import aifc\ndef test_it(benchmark): ...\n", "base")
    trees.benchmarks(EXPECTS + "import sunau\ndef test_it(benchmark): ...\n", "head")
    trees.write({"benchmarks/bench_none.py": "import cgi\n", "benchmarks/bench_odd.py": "benchmark ("})
    trees.write({"benchmarks/local.py": "import tabnanny, package.part\n"})
    trees.write({"package/part.py": "import this_too\n"})
    trees.write(
        {"benchmarks/bench_local.py": "import local\ndef test_local(benchmark):\n    torch.optim.SGD\n"}
    )

    expected = ("wave", "json.tool", "sndhdr", "thing", "torch._dynamo", "tabnanny", "this_too")
    assert expected == expected_imports(trees.roots, ["benchmarks"])
    assert () == expected_imports(trees.roots, [])

    trees.write({"benchmarks/bench_local.py": ""})
    trees.benchmarks(PROGRAM + "import wave\n")
    with trees.launcher(preload=None) as launcher:
        output, _ = visit(trees, launcher, "head")

    assert "wave" in output["loaded"]


# Kills the fork server from within a launch, once.
TREACHEROUS = """
import os, pathlib, signal
FLAG = pathlib.Path({flag!r})
def test_it(benchmark):
    if FLAG.read_text():
        FLAG.write_text("")
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    benchmark(sum, [])
"""


def test_a_fork_server_that_died_between_launches_is_replaced(trees: TwoTrees) -> None:
    with trees.launcher() as launcher:
        before, _ = visit(trees, launcher, "base")
        os.kill(before["parent"], signal.SIGKILL)
        assert wait_until(lambda: gone(before["parent"]))
        record = launcher.launch(schedule_first(), nodes("test_it"), plans={}, rules=RULES)
        output = [json.loads(trees.lines(side, "seen.txt")[-1]) for side in SIDES]

    assert nodes("test_it") == list(record.timings)
    assert before["parent"] not in {one["parent"] for one in output}
    assert 1 == len({one["parent"] for one in output})
    assert 2 == launcher.group


def test_a_fork_server_that_dies_in_a_fork_is_replaced_once(trees: TwoTrees, tmp_path: Path) -> None:
    site, flag = tmp_path / "site", tmp_path / "flag"
    site.mkdir()
    flag.write_text("")
    (site / "deadly.py").write_text(DEADLY.format(flag=str(flag)))
    environment = {**os.environ, "PYTHONPATH": str(site)}
    with trees.launcher(preload=["deadly"], environment=environment) as launcher:
        launcher.renew()
        flag.write_text("x")
        output, _ = visit(trees, launcher, "base")
        assert ("", 2) == (flag.read_text(), launcher.group)
        assert output["parent"]

        flag.write_text("xxx")
        with pytest.raises(NotMeasuredError, match="two in a row were lost") as shown:
            launcher.start("base", nodes=None)

    assert str(shown.value).endswith("then run the command again")
    assert "failed to fork a child: it was killed by SIGKILL (out of memory?)" in str(shown.value)
    assert "x" == flag.read_text()


def test_a_launch_whose_fork_server_dies_is_made_again(trees: TwoTrees, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.write_text("once")
    trees.benchmarks(TREACHEROUS.format(flag=str(flag)))
    plans: dict[str, LoopPlan] = {}
    with trees.launcher() as launcher:
        record = launcher.launch(schedule_first(), nodes("test_it"), plans=plans, rules=RULES)

    assert "" == flag.read_text()
    assert ((), nodes("test_it"), set(SIDES)) == (record.failures, list(record.timings), set(record.reports))
    assert (nodes("test_it"), 2) == (list(plans), launcher.group)


def schedule_first() -> Slot:
    return next(iter(schedule(seed=1)))


# A whole run in a process of its own: it prints when both children stand at their benchmark, and waits.
COORDINATOR = """
import signal, sys
from pathlib import Path
from two_trees import TwoTrees
trees = TwoTrees.__new__(TwoTrees)
trees.__dict__.update(roots={side: Path(sys.argv[1], side) for side in ("base", "head")})
trees.folder = Path(sys.argv[1], "launches")
with trees.launcher() as launcher:
    children = trees.children(launcher, "test_it")
    for child in children:
        child.channel.receive(20.0)
    children[0].look()
    children[0].stop()
    print("ready", flush=True)
    signal.pause()
"""


# Leaves a child of its own and a daemon, both in sessions of their own, which know the tree by their folder.
FAMILY = """
import os, subprocess, sys
DAEMON = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True, stdout=-3)"
wait = [sys.executable, "-c", "import signal; signal.pause()"]
def test_it(benchmark):
    subprocess.Popen(wait, start_new_session=True)
    subprocess.run([sys.executable, "-c", DAEMON, *wait], check=True)
    benchmark(sum, [])
"""


@pytest.mark.parametrize(("code", "least"), [(PROGRAM, 4), (FAMILY, 8)], ids=["alone", "with strays"])
def test_nothing_outlives_a_coordinator_that_is_killed(trees: TwoTrees, code: str, least: int) -> None:
    """Fork servers and children end with it, the stopped ones too, though they get no order.

    Grandchildren in other sessions and daemons, stopped with their side, are no exception.
    """
    trees.benchmarks(code)
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    place = str(trees.folder.parent)
    with subprocess.Popen(
        [sys.executable, "-c", COORDINATOR, place], env=environment, stdout=subprocess.PIPE, text=True
    ) as coordinator:
        assert coordinator.stdout is not None
        assert "ready\n" == coordinator.stdout.readline()
        before = trees.processes()
        coordinator.kill()

    assert len(before) >= least
    assert wait_until(lambda: trees.processes() == [])
