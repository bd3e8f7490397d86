"""A gate times only the benchmarks that run changed code, and names changed functions that none runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from forked_commands import run_perfkit
from gating import CONFIGURATION, SLOWER, GitProject, benchmark, git_project, work

from perfkit.commands.text_files import replace_text
from perfkit.ledger.store import Ledger
from perfkit.model.policies import JudgedPolicy

BENCH = "benchmarks/test_it.py"
BENCHMARKS = "import pytest\nfrom app import near, far\n" + "".join(
    benchmark(name, name) for name in ("near", "far")
)
CACHED = """
from functools import lru_cache

@lru_cache
def vocabulary():
    return spin(20)

class Net:
    def __init__(self):
        self.size = spin(1)

    def run(self):
        return vocabulary()
"""
FIRST = """
import time
from functools import lru_cache

@lru_cache
def vocabulary():
    time.sleep(SECONDS)

def order(numbers):
    MORE
    for place in range(1, len(numbers)):
        number = numbers[place]
        while place and numbers[place - 1] > number:
            numbers[place] = numbers[place - 1]
            place -= 1
        numbers[place] = number
"""
FIRST_BENCHMARKS = """
from app import order, vocabulary

def test_vocabulary(benchmark):
    benchmark(vocabulary)

def test_order(benchmark):
    benchmark(order, list(range(400, 0, -1)))
"""
FAST = ("--budget", "60")
# A launch without a decision: what is traced needs none.
ONE_LAUNCH = ("--budget", "0.01")
# Each is called in another way; "..." is what a change replaces.
CALLED = (
    work(near=20, far=20)
    + """
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

@dataclass
class Row:
    values: list

class Net:
    def __init__(self, size, *, bias=None):
        self.weights = [size] * size

    def forward(self, row, *more, scale=1):
        ...
        return [scale * weight for weight in self.weights]

    @classmethod
    def small(cls):
        ...
        return cls(3)

    @property
    def width(self):
        ...
        return len(self.weights)

@lru_cache
def cached(number):
    ...
    return number

def pairs(rows):
    ...
    yield from zip(rows, rows[1:])

def plain_only(value):
    ...
    return value

def fit(net):
    ...

@contextmanager
def opened(number):
    ...
    yield number

def nan(value):
    ...
    assert value != value

def drain(items):
    ...
    assert items
    items.clear()

def spread(floats, integers):
    ...
    assert len({*floats.tolist()}) > 50
    assert {*range(5)} == {*integers.tolist()}

async def wait():
    ...

def unused(): ...
"""
)
TESTS = """
import asyncio
import os

import numpy
import pytest
from app import Net, Row, cached, drain, nan, opened, pairs, plain_only, spread, wait

@pytest.mark.parametrize("scale", [2, 3])
def test_net(scale):
    net = Net.small()
    assert 3 == net.width == len(net.forward(Row(values=[1.5, "a"]), None, scale=scale))

def test_functions():
    class Local:
        pass

    assert 1 == cached(1)
    assert [(1, 2)] == [*pairs([1, 2])]
    with pytest.raises(AttributeError):
        plain_only(Local()).missing

def test_arguments():
    os.kill(os.getpid(), 0)
    asyncio.run(wait())
    with opened(1):
        nan(float("nan"))
    drain([*range(20)])
    spread(numpy.linspace(0, 1, 100), numpy.arange(100) % 5)
"""
SCRIPT = """
from app import Net, fit

if __name__ == "__main__":
    fit(Net(2))
    open("written", "w")
    # optimizer.step()
"""


def _app(**doses: int) -> dict[str, str]:
    return {"app.py": work(**{"near": 20, "far": 20, "other": 20, **doses})}


def _project(place: Path, files: dict[str, str]) -> GitProject:
    return git_project(place, {"pyproject.toml": CONFIGURATION.replace("same_code = false", ""), **files})


@pytest.fixture
def project(tmp_path: Path) -> GitProject:
    notes = f"with open({str(tmp_path / 'imports')!r}, 'a') as file:\n    file.write('x')\n"
    return _project(tmp_path, {BENCH: notes + BENCHMARKS, **_app()})


def test_a_benchmark_without_changed_code_is_not_timed(project: GitProject) -> None:
    project.commit(_app(near=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", *FAST)

    assert {"test_near": "REGRESSED", "test_far": "SAME CODE"} == gated.verdicts
    assert 1 == gated.exit_code
    # The error is shared among the benchmarks that are timed.
    assert 1 == gated.report["policy"]["family"]
    assert 1 == gated.report["coverage"]["same"]
    assert "1 of 2 benchmarks runs no changed code" in " ".join(gated.stderr.split())
    found = {
        row.outcome.benchmark.name.rpartition("::")[2]: row.policy.verdict
        for row in Ledger(project.ledger).rows()
        if isinstance(row.policy, JudgedPolicy)
    }
    assert {"test_near": "REGRESSED", "test_far": "SAME CODE"} == found
    same = Ledger(project.ledger).ask(
        'SELECT DISTINCT benchmark, "commit", same_as, length(ran) FROM ledger WHERE same_as IS NOT NULL'
    )
    base, head = (gated.report[side]["sha"] for side in ("base", "head"))
    assert [(f"{BENCH}::test_far", head, base, 16)] == same
    judged = project.judge(gated.run_id)
    assert gated.verdicts == judged.verdicts
    assert gated.exit_code == judged.exit_code
    # All that changed is measured, so that there is nothing to write.
    done = _init_for_change(project)
    assert 0 == done.returncode, done.stderr
    assert "" == project.repository.git.git.status("--porcelain")


def test_where_nothing_changed_runs_the_gate_passes_or_fails_or_times_all_as_asked(
    project: GitProject, tmp_path: Path
) -> None:
    project.commit(_app(other=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", *ONE_LAUNCH)

    # Each side was imported once.
    assert "xx" == (tmp_path / "imports").read_text()
    assert {"SAME CODE"} == {*gated.verdicts.values()}
    assert 0 == gated.exit_code
    (one,) = gated.report["coverage"]["functions"]
    assert ("other", "app.py", "never") == (one["name"], one["file"], one["runs"])
    # A comment in a file of benchmarks changes none.
    commented = (project.root / BENCH).read_text().replace("import pytest", "# Why\n\nimport pytest")
    project.commit({BENCH: commented})
    failed = project.gate("--base", "HEAD~2", "--uncovered", "fail", *ONE_LAUNCH)
    assert (4, {"SAME CODE"}) == (failed.exit_code, {*failed.verdicts.values()})
    everything = project.gate("--base", "HEAD~2", "--time-all", *ONE_LAUNCH)
    assert not {"SAME CODE"} & {*everything.verdicts.values()}
    assert 2 == everything.report["coverage"]["same"]


def test_what_is_not_measured_is_called_as_tests_and_scripts_do(project: GitProject) -> None:
    project.commit({"app.py": CALLED, "tests/test_app.py": TESTS, "train.py": SCRIPT})
    project.commit({"app.py": CALLED.replace("...", "int(1)")})

    gated = project.gate("--base", "HEAD^", *ONE_LAUNCH)
    done = _init_for_change(project)

    assert "perfkit init --for-change" in gated.stderr
    assert 4 == done.returncode, done.stderr
    planned = json.loads(done.stdout)
    assert ["benchmarks/test_for_change.py"] == [file["path"] for file in planned["files"]]
    assert ["`unused`", "`wait`"] == sorted(remark.split()[0] for remark in planned["remarks"])
    # The reason is that of its own call, and not of the test as a whole.
    assert "PermissionError" not in str(planned["remarks"])
    written = (project.root / "benchmarks/test_for_change.py").read_text()
    assert 1 == written.count("benchmark.pedantic(drain, ")
    assert 1 == written.count("with random numbers in place of the data")
    assert f"next: {planned['next_commands'][0]}" in done.stderr
    assert not (project.root / "written").exists()
    # What was written measures them, and is not written over.
    again = _init_for_change(project)
    assert 4 == again.returncode, again.stderr
    left = json.loads(again.stdout)
    assert [] == left["files"]
    assert ["`unused`", "`wait`"] == sorted(remark.split()[0] for remark in left["remarks"])


def _init_for_change(project: GitProject) -> subprocess.CompletedProcess[str]:
    arguments = ("init", "--for-change", "HEAD^", "--json", "-")
    return run_perfkit(*arguments, cwd=project.root, env=project.environment())


def test_variants_that_shared_a_process_are_traced_alone(tmp_path: Path) -> None:
    variants = (
        "import app, pytest\n"
        "@pytest.mark.parametrize('number', range(101))\n"
        "def test_it(benchmark, number):\n"
        "    benchmark(app.near if number % 16 == 3 else app.far)\n"
    )
    project = _project(tmp_path, {BENCH: variants, **_app()})
    project.commit(_app(near=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", "--budget", "60", "--fail-fast")

    timed = {name for name, verdict in gated.verdicts.items() if verdict != "SAME CODE"}
    assert {f"test_it[{number}]" for number in range(3, 101, 16)} == timed


def test_equal_trees_are_timed(project: GitProject) -> None:
    project.repository.git.git.commit("--allow-empty", "-m", "Nothing")

    gated = project.gate("--base", "HEAD^", *ONE_LAUNCH)

    assert not {"SAME CODE"} & {*gated.verdicts.values()}
    assert gated.report["coverage"] is None


def test_a_commit_of_nothing_but_what_perfkit_wrote_is_not_timed(project: GitProject) -> None:
    project.commit({"perf_log.md": "| mean | sd |\n", "profiles/train.stat": "0"})

    gated = project.gate("--base", "HEAD^", *ONE_LAUNCH)

    assert {"SAME CODE"} == {*gated.verdicts.values()}


def test_a_report_of_perfkit_in_the_tree_affects_no_benchmark(project: GitProject) -> None:
    replace_text(project.root / "gate.json", '{"exit_code": 0}\n', option="--json")
    (project.root / "app.py").write_text(_app(near=20 * SLOWER)["app.py"])

    gated = project.gate(*ONE_LAUNCH)

    assert ("SAME CODE", None) == (gated.verdicts["test_far"], gated.report["coverage"]["everything"])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the trace is no trace function there")
def test_a_lost_trace_leaves_the_gate_as_it_is(project: GitProject) -> None:
    traced = "getattr(sys, 'monitoring', None) and sys.monitoring.get_tool(4) or sys.getprofile()"
    ends = f"\n\ndef far():\n    import os\n    import sys\n\n    if {traced}:\n        os._exit(3)\n"
    project.commit({"app.py": work(near=20 * SLOWER) + ends + "\n\ndef other():\n    return spin(20)\n"})

    gated = project.gate("--base", "HEAD^", *ONE_LAUNCH)

    assert "NOT REACHED" == gated.verdicts["test_near"]
    why = gated.report["coverage"]["affected"]["benchmarks/test_it.py::test_far"]
    assert "it did not pass while it was traced" == why


def test_where_functions_run_is_reported(tmp_path: Path) -> None:
    text = "from app import Net\n" + benchmark("net", "Net().run")
    project = _project(tmp_path, {BENCH: text, "app.py": work() + CACHED})
    project.commit({"app.py": work() + CACHED.replace("spin(20)", "spin(21)").replace("spin(1)", "spin(2)")})

    gated = project.gate("--base", "HEAD^", *ONE_LAUNCH)

    runs = {one["name"]: one["runs"] for one in gated.report["coverage"]["functions"]}
    assert {"vocabulary": "first call", "Net.__init__": "set-up"} == runs
    assert "SAME CODE" != gated.verdicts["test_net"]


def test_a_first_call_is_compared_that_later_ones_do_not_repeat(tmp_path: Path) -> None:
    fast = FIRST.replace("SECONDS", "0.001").replace("MORE", "pass")
    project = _project(tmp_path, {BENCH: FIRST_BENCHMARKS, "app.py": fast})
    project.commit({"app.py": FIRST.replace("SECONDS", "0.2").replace("MORE", "place = 0")})

    gated = project.gate("--base", "HEAD^", "--budget", "20")

    assert 1 == gated.exit_code
    assert "REGRESSED" != gated.verdicts["test_vocabulary"]
    (found,) = (one for one in gated.report["exact"] if one["verdict"] == "REGRESSED")
    assert ("cold start", True) == (found["metric"]["name"], found["gating"])
    assert found["head"] - found["base"] > 0.15
    first = gated.comparisons["test_vocabulary"]["first_call"]
    assert (True, found["base"], found["head"]) == (first["slower"], first["base_s"], first["head_s"])
    # Fewer launches, or those of one zygote alone, would accuse nothing.
    assert first["launches"] >= 6
    assert "a later one runs 0 of its 1 function" in first["unlike"]
    sorted_ = gated.comparisons["test_order"]["first_call"]
    assert "times as long as a later one" in sorted_["unlike"]
    assert not sorted_["slower"]
    judged = project.judge(gated.run_id)
    assert (1, gated.verdicts) == (judged.exit_code, judged.verdicts)

    accepted = run_perfkit(
        *("accept", "test_vocabulary", "--reason", "It must wait", "--ledger", str(project.ledger)),
        cwd=project.root,
    )

    assert 0 == accepted.returncode
    assert 0 == project.judge(gated.run_id).exit_code


ASV = """
from app import *

def time_near():
    near()

def time_far():
    far()

def no_network():
    raise NotImplementedError("no network")

def time_lacking():
    pass

time_lacking.setup = no_network
"""


def test_a_suite_of_asv_is_traced(tmp_path: Path) -> None:
    suite = {
        "asv.conf.json": '{"version": 1, "project": "x", "benchmark_dir": "bench"}',
        "bench/__init__.py": "",
        "bench/suite.py": ASV,
    }
    project = _project(tmp_path, {**suite, **_app()})
    project.commit(_app(near=20 * SLOWER))

    gated = project.gate("--base", "HEAD^", "--benchmarks", "bench", *ONE_LAUNCH)

    assert ["NOT REACHED", "SAME CODE", "SKIPPED"] == sorted(gated.verdicts.values())
    assert 1 == gated.report["policy"]["family"]
