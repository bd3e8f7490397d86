"""What a gate measures of odd benchmarks: of those that run nothing, draw inputs at random, or use pools."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_perfkit
from gating import CONFIGURATION, SLOWER, Gated, GitProject, git_project, work

LAZY = """

async def fetch():
    return work()


def batches():
    yield work()


async def stream():
    yield work()


class Untyped:
    @property
    def __class__(self):
        raise RuntimeError("no class")


class Client:
    async def __call__(self):
        return work()
"""
LAZY_BENCHMARKS = """
import functools

import pytest
from lazy import Client, Untyped, batches, fetch, stream

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("made", [fetch, batches, stream, Client(), functools.partial(fetch)])
def test_function(benchmark, made):
    benchmark(made)


@pytest.mark.parametrize("made", [fetch, batches, stream])
def test_lambda(benchmark, made):
    benchmark(lambda: made())


@pytest.mark.parametrize("made", [fetch, batches])
def test_pedantic(benchmark, made):
    benchmark.pedantic(made, rounds=3, iterations=2)


def test_run(benchmark):
    benchmark.pedantic(lambda: list(batches()) and Untyped(), rounds=3, iterations=2)
"""
WITH_LOOP = """
from lazy import fetch


def test_fetch(benchmark):
    assert benchmark.pedantic(fetch, rounds=5, iterations=20) is not None
"""
# The name by which pytest-asyncio is known to pytest.
LOOP = "def pytest_configure(config):\n    config.pluginmanager.register(object(), 'asyncio')\n"


def _gate_lazy(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str], *arguments: str) -> Gated:
    project = git_project(
        tmp_path_factory.mktemp("lazy"),
        {"pyproject.toml": CONFIGURATION, "lazy.py": work(work=20) + LAZY, **files},
    )
    project.commit({"lazy.py": work(work=20 * SLOWER) + LAZY}, "Do more")
    return project.gate("--base", "HEAD^", "--head", "HEAD", *arguments)


def test_what_is_made_and_never_run_has_failed(tmp_path_factory: pytest.TempPathFactory) -> None:
    gated = _gate_lazy(tmp_path_factory, {"benchmarks/test_lazy.py": LAZY_BENCHMARKS}, "--budget", "0.01")

    verdicts = gated.verdicts
    assert "FAILED" != verdicts.pop("test_run")
    assert ["FAILED"] * 10 == list(verdicts.values())
    shown = {name: one["message"] for name, one in gated.comparisons.items()}
    assert all("made and never run" in shown[name] for name in verdicts)
    assert "benchmark(lambda: list(batches()))" in shown["test_pedantic[batches]"]
    assert 4 == gated.exit_code


def test_a_coroutine_function_is_run_where_there_is_a_loop(tmp_path_factory: pytest.TempPathFactory) -> None:
    files = {"benchmarks/test_lazy.py": WITH_LOOP, "conftest.py": LOOP}

    gated = _gate_lazy(tmp_path_factory, files)

    assert {"test_fetch": "REGRESSED"} == gated.verdicts


# Numbers of all three generators, drawn at import, in a fixture, and before the call.
RANDOM_BENCHMARKS = """
import random

import numpy as np
import pytest
import torch

SIZE = random.randint(1, 400) + np.random.randint(1, 400) + int(torch.randint(1, 400, (1,)))


def one(number):
    return number + 1


def add(size):
    return [one(number) for number in range(size)]


def rows(size):
    return [torch.ones(2) for _ in range(size)]


@pytest.fixture
def drawn():
    return np.random.randint(1, 400)


def test_import(benchmark):
    benchmark(add, SIZE)


def test_fixture(benchmark, drawn):
    benchmark(add, drawn + random.randint(1, 400))


def test_tensors(benchmark):
    benchmark(rows, random.randint(1, 40))
"""
RANDOM = "[tool.perfkit]\nmargin = '50%'\n[tool.perfkit.gate]\nsame_code = false\n"
# Of a size that no seed can set, so that the sides draw differently.
UNSEEDED = """
import random

import numpy as np
import torch

SIZE = np.random.default_rng().integers(1, 10_000)


def test_rows(benchmark):
    benchmark(lambda: [torch.ones(2) for _ in range(SIZE % 50)])


def test_call(benchmark):
    benchmark.pedantic(lambda: sum(range(SIZE * 10)), rounds=5, iterations=2)
"""


def _random_project(tmp_path_factory: pytest.TempPathFactory, name: str, benchmarks: str) -> GitProject:
    files = {"pyproject.toml": RANDOM, "demo.py": "", "benchmarks/test_random.py": benchmarks}
    return git_project(tmp_path_factory.mktemp(name), files)


def _counts(gated: Gated, metric: str) -> dict[str, dict[str, Any]]:
    found = [one for one in gated.report["exact"] if one["metric"]["name"] == metric]
    return {one["benchmark"]["name"].rpartition("::")[2]: one for one in found}


def test_both_sides_draw_the_same_inputs(tmp_path_factory: pytest.TempPathFactory) -> None:
    project = _random_project(tmp_path_factory, "alike", RANDOM_BENCHMARKS)
    project.commit({"demo.py": "NEW = 1\n"}, "Change code that no benchmark runs")

    gated = project.gate("--exact-only", "--base", "HEAD^", "--head", "HEAD")
    again = project.gate("--exact-only", "--base", "HEAD^", "--head", "HEAD")

    assert 0 == gated.exit_code
    calls, others = (_counts(one, "python_calls") for one in (gated, again))
    assert {"test_import", "test_fixture", "test_tensors"} == calls.keys()
    assert all(one["base"] == one["head"] for one in [*calls.values(), *others.values()])
    assert all(calls[name]["base"] != others[name]["base"] for name in ("test_import", "test_fixture"))


@pytest.fixture(scope="module")
def unseeded(tmp_path_factory: pytest.TempPathFactory) -> GitProject:
    """Return a project whose inputs differ between the sides, with two commits after its first."""
    project = _random_project(tmp_path_factory, "unseeded", UNSEEDED)
    project.commit({"demo.py": "NEW = 1\n"}, "Change code that no benchmark runs")
    project.commit({"README.md": "A project\n"}, "Change no code")
    return project


def test_a_count_decides_only_where_other_processes_repeat_it(unseeded: GitProject) -> None:
    gated = unseeded.gate("--exact-only", "--base", "HEAD^^", "--head", "HEAD^")

    operators = _counts(gated, "operators")["test_rows"]
    assert 1 != gated.exit_code
    assert operators["verdict"] in {"INCONCLUSIVE", "UNCHANGED"}
    assert not operators["gating"] or operators["base"] == operators["head"]


def test_nothing_is_accused_where_no_code_differs(unseeded: GitProject) -> None:
    gated = unseeded.gate("--base", "HEAD^", "--head", "HEAD", "--budget", "10", "--alpha", "0.5")

    found = [one["verdict"] for one in (*gated.report["comparisons"], *gated.report["exact"])]
    assert found
    assert not {"REGRESSED", "IMPROVED"} & set(found)
    assert "no code differs between base and head" in gated.notes

    anew = unseeded.judge(gated.run_id)

    assert gated.verdicts == anew.verdicts


SUM = """
def spin(number=2000):
    return sum(one * one for one in range(number))
"""
# A call leaves four times the work to somebody else, for whose result nobody waits.
BACKGROUND = """
from concurrent import futures

pools = {}


def leave(kind):
    if kind not in pools:
        pools[kind] = getattr(futures, kind)(1)
    pools[kind].submit(spin, 8000)
"""
FOREGROUND = """

def leave(kind):
    spin()
"""
POOL_BENCHMARKS = """
import pytest

from demo import leave


@pytest.mark.parametrize("kind", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_leave(benchmark, kind):
    benchmark.pedantic(leave, args=(kind,), rounds=5, iterations=100, warmup_rounds=1)
"""


def test_work_that_was_moved_to_the_background_comes_first(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    files = {
        "pyproject.toml": CONFIGURATION.replace("50%", "20%"),
        "demo.py": SUM + FOREGROUND,
        "benchmarks/test_demo.py": POOL_BENCHMARKS,
    }
    project = git_project(tmp_path_factory.mktemp("cpu"), files)
    project.commit({"demo.py": SUM + BACKGROUND}, "Leave it to a pool")

    gated = project.gate("--base", "HEAD^", "--head", "HEAD", "--budget", "20")
    shown = run_perfkit(*project.judge_command(gated.run_id)[1:], cwd=project.root, env=project.environment())

    moved = [one for name, one in gated.comparisons.items() if name.startswith("test_leave")]
    assert ["IMPROVED"] * 2 == [one["verdict"] for one in moved]
    assert all(one["cpu_ratio"] > 1.2 for one in moved)
    assert "MORE CPU TIME" in next(line for line in shown.stdout.splitlines() if line.strip())


CALLS_BENCHMARK = """
import work


def test_work(benchmark):
    benchmark(work.work)


def test_other(benchmark):
    benchmark(work.other)
"""
PLAIN = """
def helper(number):
    return number * number


def work():
    return sum(helper(number) for number in range(100))


def other():
    return [number * number for number in range(100)]
"""


def test_python_calls_decide_without_torch(tmp_path: Path) -> None:
    project = git_project(tmp_path, {"pyproject.toml": "", "test_work.py": CALLS_BENCHMARK, "work.py": PLAIN})
    more = PLAIN.replace("helper(number) for", "helper(helper(number)) for").replace("[number *", "[number +")
    project.commit({"work.py": more}, "Do more")

    gated = project.gate("--exact-only")

    counted = {name: (one["verdict"], one["gating"]) for name, one in _counts(gated, "python_calls").items()}
    assert 1 == gated.exit_code, gated.stderr
    assert {"test_work": ("REGRESSED", True), "test_other": ("UNCHANGED", True)} == counted


SORTING = "\ndef total(values):\n    return sum(sorted(values))\n"
SORTING_BENCHMARK = """
from sorting import total

def test_total(benchmark):
    benchmark(total, list(range(1000, 0, -7)))
"""


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="Valgrind is not installed")
@pytest.mark.slow
def test_more_instructions_fail_a_gate_that_names_them(tmp_path: Path) -> None:
    named = CONFIGURATION.replace("count = false", 'count = false\ngate = ["instructions"]')
    files = {"pyproject.toml": named, "sorting.py": SORTING, "benchmarks/test_sorting.py": SORTING_BENCHMARK}
    project = git_project(tmp_path, files)
    project.commit({"sorting.py": SORTING.replace("sorted(values)", "sorted(sorted(values, key=abs))")})

    gated = project.gate("--instructions", "--exact-only", "--base", "HEAD~1", "--head", "HEAD")

    (total,) = (one for one in gated.report["exact"] if one["metric"]["name"] == "instructions")
    assert 1 == gated.exit_code, gated.stderr
    assert ("instructions", True) == (total["metric"]["unit"], total["metric"]["exact"])
    assert ("REGRESSED", True) == (total["verdict"], total["gating"])
    assert total["head"] > 1.5 * total["base"]
    assert {"list_sort_impl", "builtin_abs"} & {cause["what"] for cause in total["causes"]}
