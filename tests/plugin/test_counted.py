"""The plugin counts each benchmark once its timed rounds are over, and files the counts beside the times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from repositories import Repository, create_repository

from perfkit.ledger.store import Ledger
from perfkit.records import WALL_TIME, Row

SUITE = """
import pytest
import torch

def test_product(benchmark):
    left = torch.ones(4, 3)
    benchmark(lambda: (left @ left.T).sum().item())

def test_setup(benchmark):
    benchmark.pedantic(torch.add, setup=lambda: ((torch.ones(2), 1), {}), rounds=3)

def test_used_up(benchmark):
    left = [torch.ones(1)] * 3
    benchmark.pedantic(left.pop, rounds=3)

def test_once(benchmark):
    over = []
    def call():
        if over:
            raise ValueError("not again")
    benchmark(call)
    over.append(True)
"""


def _suite(root: Path) -> Repository:
    """Return a suite in a repository of its own."""
    root.mkdir()
    repository = Repository(root, create_repository(root))
    settings = "[pytest]\naddopts = --benchmark-max-time=0.01 -p no:cacheprovider\n"
    repository.commit(
        {"test_suite.py": SUITE, "pytest.ini": settings, ".gitignore": "__pycache__/\n"}, "Begin"
    )
    return repository


def _rows(root: Path) -> dict[str, dict[str, Row]]:
    """Record a session and return what it filed, by test and metric."""
    command = [sys.executable, "-m", "pytest", f"--perfkit-ledger={root / 'ledger'}"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout
    assert "perfkit: 4 benchmarks, commit " in done.stdout
    found: dict[str, dict[str, Row]] = {}
    for row in Ledger(root / "ledger").rows():
        test = row.outcome.benchmark.name.rpartition("::")[2]
        found.setdefault(test, {})[row.outcome.metric.name] = row
    return found


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Row]]:
    """Return what a recorded session filed."""
    return _rows(_suite(tmp_path_factory.mktemp("counted") / "project").root)


def test_counts_lie_beside_the_times(rows: dict[str, dict[str, Row]]) -> None:
    """Each is an exact row of two iterations, with the lines behind it; the times are as they were."""
    product = rows["test_product"]
    operators = product["operators"].outcome

    assert WALL_TIME == product["time"].outcome.metric
    assert len(product["time"].outcome.values) >= 5
    assert operators.metric.exact
    assert 2 == len(operators.values)
    assert (1.0, 1.0) == product["syncs"].outcome.values
    assert (96.0, 96.0) == product["flops"].outcome.values
    assert ["test_suite.py:7"] == [cause.place for cause in product["syncs"].outcome.causes or ()]
    assert product["time"].outcome.benchmark == operators.benchmark


def test_a_setup_is_made_for_each_counted_call(rows: dict[str, dict[str, Row]]) -> None:
    """What it allocates is counted with the call it is made for."""
    assert {"time", "operators", "allocated"} <= rows["test_setup"].keys()


def test_a_benchmark_that_uses_itself_up_is_not_called_again(rows: dict[str, dict[str, Row]]) -> None:
    """It says so in a row of its own, and its times count."""
    used_up = rows["test_used_up"]

    assert "ok" == used_up["time"].outcome.status
    assert {"skipped"} == {row.outcome.status for name, row in used_up.items() if name != "time"}
    assert all(
        "not counted: " in (row.outcome.message or "") for name, row in used_up.items() if name != "time"
    )


def test_what_raises_when_called_again_was_measured(rows: dict[str, dict[str, Row]]) -> None:
    """The test has passed; the reason is in the row."""
    once = rows["test_once"]

    assert "ok" == once["time"].outcome.status
    assert "not counted: called again it raised ValueError" == once["operators"].outcome.message


def test_counting_can_be_switched_off(tmp_path: Path) -> None:
    """Then only times are filed."""
    repository = _suite(tmp_path / "project")
    repository.commit({"pyproject.toml": "[tool.perfkit.exact]\ncount = false\n"}, "Count nothing")

    assert {"time"} == {name for found in _rows(repository.root).values() for name in found}
