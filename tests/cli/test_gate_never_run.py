"""A gate fails benchmarks whose calls only make a coroutine or a generator, and runs coroutine functions."""

from __future__ import annotations

import pytest
from gating import CONFIGURATION, SLOWER, Gated, git_project, work

LAZY = """

async def fetch():
    return work()


def batches():
    yield work()


async def stream():
    yield work()


class Client:
    async def __call__(self):
        return work()
"""
BENCHMARKS = """
import functools

import pytest
from lazy import Client, batches, fetch, stream

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
    benchmark.pedantic(lambda: list(batches()), rounds=3, iterations=2)
"""
WITH_LOOP = """
from lazy import fetch


def test_fetch(benchmark):
    assert benchmark.pedantic(fetch, rounds=5, iterations=20) is not None
"""
# The name by which pytest-asyncio is known to pytest.
LOOP = "def pytest_configure(config):\n    config.pluginmanager.register(object(), 'asyncio')\n"


def _gate(tmp_path_factory: pytest.TempPathFactory, files: dict[str, str], *arguments: str) -> Gated:
    project = git_project(
        tmp_path_factory.mktemp("lazy"),
        {"pyproject.toml": CONFIGURATION, "lazy.py": work(work=20) + LAZY, **files},
    )
    project.commit({"lazy.py": work(work=20 * SLOWER) + LAZY}, "Do more")
    return project.gate("--base", "HEAD^", "--head", "HEAD", *arguments)


def test_what_is_made_and_never_run_has_failed(tmp_path_factory: pytest.TempPathFactory) -> None:
    gated = _gate(tmp_path_factory, {"benchmarks/test_lazy.py": BENCHMARKS}, "--budget", "10")

    verdicts = gated.verdicts
    assert "FAILED" != verdicts.pop("test_run")
    assert ["FAILED"] * 10 == list(verdicts.values())
    shown = {name: one["message"] for name, one in gated.comparisons.items()}
    assert all("made and never run" in shown[name] for name in verdicts)
    assert "benchmark(lambda: list(batches()))" in shown["test_pedantic[batches]"]
    assert gated.exit_code in {1, 4}


def test_a_coroutine_function_is_run_where_there_is_a_loop(tmp_path_factory: pytest.TempPathFactory) -> None:
    files = {"benchmarks/test_lazy.py": WITH_LOOP, "conftest.py": LOOP}

    gated = _gate(tmp_path_factory, files)

    assert {"test_fetch": "REGRESSED"} == gated.verdicts
