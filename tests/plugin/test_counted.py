"""The plugin counts within a test where that is cheap or asked for, and files counts beside times."""

from __future__ import annotations

import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from forked_commands import run, run_pytest
from repositories import Repository, create_repository

from perfkit.agent.benchmark_fixture import OutOfTimeError, Timed
from perfkit.ledger.store import Ledger
from perfkit.model import WALL_TIME, Row

SUITE = """
import asyncio
import sys
import time

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode


def is_watched():
    return sys.getprofile() is not None or _get_current_dispatch_mode() is not None


def test_product(benchmark):
    left = torch.ones(4, 3)
    benchmark(lambda: (left @ left.T).sum().item())


def test_setup_and_rounds(benchmark):
    made, over = [], []

    def setup():
        made.append(True)
        return (torch.ones(2), 1), {}

    def teardown(*_):
        over.append(True)

    benchmark.pedantic(torch.add, setup=setup, teardown=teardown, rounds=3, warmup_rounds=1)
    assert 4 == len(made) == len(over)


def test_used_up(benchmark):
    left = [torch.ones(1)] * 3
    benchmark.pedantic(left.pop, rounds=3)
    assert not left


def test_exactly_once(benchmark):
    calls = []
    benchmark.pedantic(calls.append, args=(1,))
    assert [1] == calls


AFTER = []


@pytest.fixture
def live():
    live = [True]
    yield live
    live.clear()


def test_while_it_lives(benchmark, live):
    benchmark(lambda: AFTER.append(live[0]) or torch.ones(2))
    AFTER.clear()


def test_not_called_after_its_test():
    assert [] == AFTER


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_loop(benchmark, loop):
    async def add():
        return torch.ones(1) + 1

    assert 2 == benchmark(lambda: loop.run_until_complete(add()))


def test_last_call_gives_the_result(benchmark):
    watched = []

    def call():
        watched.append(is_watched())
        return len(watched)

    assert benchmark(call) == len(watched)
    assert not watched[-1]
    # A timed round is never watched: the five calls at most that are come after all of them.
    assert not any(watched[: benchmark.stats["rounds"]])


def test_raises_when_watched(benchmark):
    def call():
        if is_watched():
            raise RuntimeError("somebody is watching")
        return 7

    assert 7 == benchmark(call)


def test_used_up_generator(benchmark):
    numbers = (number for number in range(3))
    assert [] == benchmark(list, numbers)


def test_arguments_of_any_name(benchmark):
    assert {"function", "use", "args"} == benchmark(lambda **given: set(given), function=1, use=2, args=3)


def test_clock_of_its_own(benchmark, monkeypatch):
    for name in ("time", "time_ns", "monotonic", "perf_counter"):
        monkeypatch.setattr(time, name, lambda: 0)
    benchmark(torch.ones, 2)


def test_asked_for_late(request):
    request.getfixturevalue("benchmark")(torch.ones, 2)


@pytest.fixture
def measured(benchmark):
    return benchmark(torch.ones, 2)


def test_measured_in_a_fixture(measured):
    assert [1, 1] == measured.tolist()

"""
# Libraries that perfkit calls may begin to warn of anything.
WARNING = """
import warnings

from perfkit.plugin import recorder


def warning(function):
    def warn(*arguments, **options):
        warnings.warn("of something in perfkit", DeprecationWarning)
        return function(*arguments, **options)

    return warn


for name in ("read_machine", "read_environment", "_identify", "after_rounds"):
    setattr(recorder, name, warning(getattr(recorder, name)))
"""
PEDANTIC = {"test_setup_and_rounds", "test_used_up", "test_exactly_once"}
COUNTED = {
    "test_product", "test_while_it_lives", "test_loop", "test_last_call_gives_the_result",
    "test_used_up_generator", "test_arguments_of_any_name", "test_clock_of_its_own", "test_asked_for_late",
    "test_measured_in_a_fixture",
}  # fmt: skip
CHEAP_AND_SLOW = """
import time

import pytest
import torch


@pytest.mark.benchmark(max_time=1.0)
def test_cheap(benchmark):
    benchmark(torch.ones, 2)


def test_slow(benchmark):
    benchmark(lambda: time.sleep(0.02) or torch.ones(2))


@pytest.mark.benchmark(cprofile=True)
def test_profiled(benchmark):
    benchmark(torch.ones, 2)
"""


def _suite(root: Path, text: str) -> Repository:
    """Return a suite in a repository of its own."""
    root.mkdir()
    repository = Repository(root, create_repository(root))
    settings = "[pytest]\naddopts = --benchmark-max-time=0.01 -p no:cacheprovider\n"
    repository.commit(
        {"test_suite.py": text, "pytest.ini": settings, ".gitignore": "__pycache__/\n"}, "Begin"
    )
    return repository


def _session(root: Path, *options: str) -> str:
    done = run_pytest(f"--perfkit-ledger={root / 'ledger'}", *options, cwd=root)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def _rows(root: Path) -> dict[str, dict[str, Row]]:
    """Return what was filed, by test and metric."""
    found: dict[str, dict[str, Row]] = {}
    for row in Ledger(root / "ledger").rows():
        test = row.outcome.benchmark.name.rpartition("::")[2]
        found.setdefault(test, {})[row.outcome.metric.name] = row
    return found


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Row]]:
    """Return what a session filed that counted all it could, and in which each warning is an error."""
    root = _suite(tmp_path_factory.mktemp("counted") / "project", SUITE).root
    (root / "conftest.py").write_text(WARNING)
    # A fresh process: pytest warns of plugins that were imported before a session.
    options = (f"--perfkit-ledger={root / 'ledger'}", "--perfkit-counts", "-W", "error")
    output = run([sys.executable, "-m", "pytest", *options], cwd=root).stdout
    assert re.search(r"^=+ 14 passed in ", output, re.MULTILINE)
    assert "perfkit: 13 benchmarks, commit " in output
    return _rows(root)


def test_counts_lie_beside_the_times(rows: dict[str, dict[str, Row]]) -> None:
    product = rows["test_product"]
    operators = product["operators"].outcome

    assert WALL_TIME == product["time"].outcome.metric
    assert len(product["time"].outcome.values) >= 5
    assert operators.metric.exact
    assert 2 == len(operators.values)
    assert (1.0, 1.0) == product["syncs"].outcome.values
    assert (96.0, 96.0) == product["flops"].outcome.values
    (place,) = [cause.place for cause in product["syncs"].outcome.causes or ()]
    assert SUITE.splitlines()[int(place.removeprefix("test_suite.py:")) - 1].endswith(".item())")
    assert product["time"].outcome.benchmark == operators.benchmark
    assert {"python_calls", "resident"} <= product.keys()


def test_every_time_is_filed_and_nothing_else_than_what_was_counted(rows: dict[str, dict[str, Row]]) -> None:
    assert PEDANTIC | COUNTED | {"test_raises_when_watched"} == set(rows)
    assert {"ok"} == {row.outcome.status for found in rows.values() for row in found.values()}
    for test, found in rows.items():
        assert (test in COUNTED) is ("operators" in found), test
        assert test in COUNTED or {"time"} == found.keys()


def test_what_takes_long_is_counted_only_if_asked_for(tmp_path: Path) -> None:
    root = _suite(tmp_path / "project", CHEAP_AND_SLOW).root
    _session(root)
    rows = _rows(root)

    assert {"time", "operators", "python_calls"} <= rows["test_cheap"].keys()
    assert {"time"} == rows["test_slow"].keys() == rows["test_profiled"].keys()


def test_counting_can_be_switched_off(tmp_path: Path) -> None:
    repository = _suite(tmp_path / "project", "def test_sum(benchmark):\n    benchmark(sum, [])\n")
    found = []
    for settings, option in (
        ("", "--verbose"),
        ("", "--perfkit-no-counts"),
        ("[tool.perfkit.exact]\ncount = false\n", "--verbose"),
    ):
        (repository.root / "pyproject.toml").write_text(settings)
        _session(repository.root, "--perfkit-counts", option)
        found.append(_rows(repository.root)["test_sum"].keys())
        shutil.rmtree(repository.root / "ledger")

    assert ["python_calls" in metrics for metrics in found] == [True, False, False]
    assert found[1:] == [{"time"}, {"time"}]


def test_calls_end_where_their_time_is_over() -> None:
    calls: list[float] = []

    def function(seconds: float, *, twice: bool) -> float:
        calls.append(seconds)
        time.sleep(seconds * (1 + twice))
        return seconds

    timed = Timed(function=function, args=(0.01,), kwargs={"twice": True}, seconds=1.0, calls=1000)
    call = timed.within(0.0201)

    assert 0.01 == call()
    with pytest.raises(OutOfTimeError):
        call()
    with pytest.raises(OutOfTimeError):
        timed.within(0.0005)()
    assert [0.01] == calls
