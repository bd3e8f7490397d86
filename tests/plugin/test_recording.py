"""The plugin records real pytest sessions, and refuses what it must before anything is measured."""

from __future__ import annotations

import dataclasses
import signal
from datetime import datetime, timedelta
from pathlib import Path

# After each test pytester forgets what it was first to import, and this cannot be imported twice.
import duckdb  # noqa: F401
import git
import pytest
from forked_commands import run_pytest
from repositories import create_repository

from perfkit.ledger.store import Ledger
from perfkit.model import WALL_TIME, Row
from perfkit.model.policies import PytestPolicy

SUITE = """
import pytest

@pytest.mark.parametrize("n", [10, 20])
def test_sum(benchmark, n):
    assert n * (n - 1) // 2 == benchmark(sum, range(n))
    assert benchmark.stats["rounds"] >= 5

@pytest.mark.benchmark(group="pedantic")
def test_pedantic(benchmark):
    calls = []
    benchmark.pedantic(calls.append, args=(1,), rounds=4, iterations=3)
    benchmark.extra_info["calls"] = len(calls)

def test_raises(benchmark):
    benchmark(lambda: 1 / 0)

@pytest.fixture
def broken():
    raise RuntimeError("no data\\nsecond line")

def test_broken_fixture(benchmark, broken):
    benchmark(sum, [])

def test_skipped(benchmark):
    pytest.skip("not here")

def test_no_benchmark():
    assert True
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Return a small suite in a repository of its own."""
    pytester.makepyfile(test_suite=SUITE)
    pytester.makeini("[pytest]\naddopts = --benchmark-max-time=0.01\n")
    repository = create_repository(pytester.path)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "Add a suite")
    return pytester


def run_session(folder: Path, *arguments: str) -> pytest.RunResult:
    """Run a session of pytest in a folder."""
    done = run_pytest(*arguments, cwd=folder)
    return pytest.RunResult(done.returncode, done.stdout.splitlines(), done.stderr.splitlines(), 0.0)


def _rows(folder: Path) -> dict[str, Row]:
    rows = (row for row in Ledger(folder).rows() if row.outcome.metric == WALL_TIME)
    return {row.outcome.benchmark.name: row for row in rows}


def test_autosave_adds_one_file_with_a_row_per_benchmark(suite: pytest.Pytester) -> None:
    result = run_session(suite.path, "--benchmark-autosave", "--benchmark-sort=name")

    result.assert_outcomes(passed=4, failed=1, errors=1, skipped=1)
    assert 1 == len(list(suite.path.glob(".benchmarks/*/*.json"))), "the host's own file"
    ledger = suite.path / "benchmarks/ledger"
    assert 1 == len(list(ledger.iterdir()))
    rows = _rows(ledger)
    # Without torch nothing is counted, and nothing mentions it.
    assert len(rows) == len(list(Ledger(ledger).rows()))
    assert {
        "test_suite.py::test_sum[10]": "ok",
        "test_suite.py::test_sum[20]": "ok",
        "test_suite.py::test_pedantic": "ok",
        "test_suite.py::test_raises": "error",
        "test_suite.py::test_broken_fixture": "error",
        "test_suite.py::test_skipped": "skipped",
    } == {name: row.outcome.status for name, row in rows.items()}
    result.stdout.fnmatch_lines(["perfkit: 6 benchmarks, 3 not measured, commit *.parquet"])

    pedantic = rows["test_suite.py::test_pedantic"].outcome
    ten = rows["test_suite.py::test_sum[10]"]
    assert (4, 3, "pedantic", None) == (
        len(pedantic.values),
        pedantic.loops,
        pedantic.benchmark.group,
        pedantic.warmup,
    )
    assert {"n": "10"} == ten.outcome.benchmark.params
    assert rows["test_suite.py::test_sum[20]"].outcome.benchmark.version == ten.outcome.benchmark.version
    assert pedantic.benchmark.version != ten.outcome.benchmark.version
    assert all(0 < value < 1 for value in ten.outcome.values)
    assert ("Add a suite", False) == (ten.commit.subject, ten.commit.dirty)
    assert isinstance(ten.policy, PytestPolicy)
    assert (0.01, 5, False) == (ten.policy.max_time_s, ten.policy.min_rounds, ten.policy.disable_gc)
    assert {"python", "torch"} <= set(ten.environment.facts)
    assert float(ten.machine.facts["python_loop_ms"]) > 0


def test_a_session_that_is_killed_loses_no_benchmark_that_was_over(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_deadly="""
        import os

        def test_first(benchmark):
            benchmark(sum, range(10))

        def test_fails(benchmark):
            benchmark(lambda: 1 / 0)

        def test_dies(benchmark):
            benchmark(sum, range(10))
            os.kill(os.getpid(), 9)
        """
    )
    killed = run_session(suite.path, "--perfkit-ledger=rows", "test_deadly.py")
    after = run_session(suite.path, "--perfkit-ledger=rows", "-k", "pedantic")

    assert -9 == killed.ret
    after.stderr.fnmatch_lines(["perfkit: a pytest session of * was cut off; its * rows are recovered in *"])
    after.assert_outcomes(passed=1, deselected=9)
    rows = [row for row in Ledger(suite.path / "rows").rows() if row.partial]
    assert {("test_deadly.py::test_first", "ok"), ("test_deadly.py::test_fails", "error")} == {
        (row.outcome.benchmark.name, row.outcome.status) for row in rows
    }
    assert 1 == len({row.run_id for row in rows})
    assert 2 == len(Ledger(suite.path / "rows").files())


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
def test_a_session_that_is_asked_to_end_keeps_what_is_complete(suite: pytest.Pytester, number: str) -> None:
    suite.makepyfile(
        test_ended=f"""
        import os, signal

        def test_first(benchmark):
            benchmark(sum, range(10))

        def test_ended(benchmark):
            os.kill(os.getpid(), signal.{number})
            signal.pause()
        """
    )
    done = run_session(suite.path, "--perfkit-ledger=rows", "test_ended.py")

    assert pytest.ExitCode.INTERRUPTED == done.ret
    assert ["test_ended.py::test_first"] == list(_rows(suite.path / "rows"))
    done.stdout.fnmatch_lines(["perfkit: 1 benchmarks, commit *.parquet"])


# A conftest.py in whose session somebody interrupts the filing of the rows.
INTERRUPTED = """
import os, signal
from perfkit.plugin.recorder import Recorder

finish = Recorder._finish

def finish_late(self, session):
    os.kill(os.getpid(), signal.SIGTERM)
    finish(self, session)

Recorder._finish = finish_late
"""


def test_an_interrupted_end_of_a_session_is_filed(suite: pytest.Pytester) -> None:
    suite.makeconftest(INTERRUPTED)
    done = run_session(suite.path, "--perfkit-ledger=rows", "-k", "sum")

    assert pytest.ExitCode.INTERRUPTED == done.ret
    assert 1 == len(Ledger(suite.path / "rows").files())
    assert [] == list((suite.path / "rows").glob(".staged/*"))
    done.stdout.fnmatch_lines(
        ["perfkit: 2 benchmarks, commit *.parquet", "perfkit: interrupted (Keyboard*; all rows are filed"]
    )


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGHUP)", -signal.SIGHUP),
        ("raise BrokenPipeError('nobody reads standard error')", 1),
    ],
)
def test_what_ends_a_session_before_others_have_finished_it_finds_it_filed(
    suite: pytest.Pytester, ends: str, code: int
) -> None:
    suite.makeconftest(
        f"""
        import os, signal, pytest

        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_sessionfinish():
            {ends}
            return (yield)
        """
    )

    done = run_session(suite.path, "--perfkit-ledger=rows", "-k", "sum")

    assert code == done.ret
    assert 1 == len(Ledger(suite.path / "rows").files())
    assert [] == list((suite.path / "rows").glob(".staged/*"))


def test_a_session_that_records_nothing_ends_as_it_always_did(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        test_ended="""
        import os, signal

        def test_ended(benchmark):
            os.kill(os.getpid(), signal.SIGTERM)
        """
    )

    assert -15 == run_session(suite.path, "test_ended.py").ret


def test_internal_errors_fail_no_test(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
        from perfkit.plugin import recorder

        follow = recorder.after_rounds

        def fail(*_, **__):
            raise KeyError("unforeseen")

        def fail_at_first(*arguments):
            recorder.after_rounds = follow
            fail()

        recorder.after_rounds, recorder._counts = fail_at_first, fail
        """
    )
    done = run_session(suite.path, "--perfkit-ledger=rows", "-k", "sum")

    assert 70 == done.ret
    done.assert_outcomes(passed=2, deselected=5)
    done.stdout.fnmatch_lines(
        ["perfkit: internal error: KeyError: 'unforeseen'*", "perfkit: the full traceback is in *"]
    )


# Uncommitted: a tear-down that fails, torch that only a later test imports, and work that is never run.
UNCOMMITTED = """
import asyncio
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError("cannot clean up")

def test_late(benchmark, broken):
    benchmark(sum, range(10))

def test_torch(benchmark):
    import torch
    benchmark(sum, range(10))

async def fetch():
    return 3

def batches():
    yield 3

def test_fetch(benchmark):
    assert 3 == asyncio.run(benchmark.pedantic(fetch, rounds=1, iterations=1))

def test_batches(benchmark):
    assert [3] == list(benchmark(batches))

def test_run(benchmark):
    benchmark(lambda: list(batches()))
"""


def test_what_only_the_end_of_a_session_knows_is_filed(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_suite=SUITE + "\n# changed\n", test_more=UNCOMMITTED)

    done = run_session(suite.path, "--perfkit-ledger=rows", "test_more.py")

    done.assert_outcomes(passed=5, errors=1)
    rows = {name.rpartition("_")[2]: row for name, row in _rows(suite.path / "rows").items()}
    assert {"late": "error", "torch": "ok", "fetch": "error", "batches": "error", "run": "ok"} == {
        name: row.outcome.status for name, row in rows.items()
    }
    assert "OSError: cannot clean up" == rows["late"].outcome.message
    assert {(True, True, False)} == {
        ("matmul_precision" in row.environment.facts, row.commit.dirty, row.partial) for row in rows.values()
    }
    assert not (suite.path / "rows/.staged").exists()
    done.stdout.fnmatch_lines(
        [
            "*(uncommitted changes: left out of the log)*",
            "perfkit: *test_batches was not measured: a generator was made and never run*",
        ]
    )


def test_nothing_is_recorded_of_what_is_only_collected(suite: pytest.Pytester) -> None:
    run_session(suite.path, "-k", "sum", "--benchmark-autosave", "--collect-only")

    assert not (suite.path / "benchmarks").exists()


def test_a_ledger_without_benchmarks_that_run_is_a_mistake(suite: pytest.Pytester) -> None:
    asked = run_session(suite.path, "--perfkit-ledger=rows", "--benchmark-skip", "-k", "sum")

    assert pytest.ExitCode.USAGE_ERROR == asked.ret
    asked.stderr.fnmatch_lines(["ERROR: perfkit: --perfkit-ledger needs benchmarks that run*"])


def test_the_options_that_switch_benchmarks_on_are_named(suite: pytest.Pytester) -> None:
    switches = "--benchmark-skip --benchmark-disable -n1"
    suite.makeini(f"[pytest]\naddopts = --benchmark-max-time=0.01 {switches}\n")

    off = run_session(suite.path, "--benchmark-autosave", "-k", "pedantic")
    line = next(line for line in off.outlines if line.startswith("perfkit: nothing was added"))
    on = run_session(suite.path, "--benchmark-autosave", "-k", "pedantic", *line.split(" add ")[1].split())

    assert 1 == sum(one.startswith("perfkit:") for one in off.outlines)
    on.assert_outcomes(passed=1)
    assert 1 == len(list((suite.path / "benchmarks/ledger").iterdir()))


def test_no_commit_is_refused_before_anything_is_measured(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a="def test_a(benchmark):\n    open('ran', 'w')\n    benchmark(sum, [])\n")
    outside = run_session(pytester.path, "--benchmark-autosave")
    git.Repo.init(pytester.path)
    empty = run_session(pytester.path, "--benchmark-autosave")

    outside.stderr.fnmatch_lines(["ERROR: perfkit: * is in no git repository*PERFKIT_COMMIT*"])
    empty.stderr.fnmatch_lines(["ERROR: perfkit: * has no commit yet*"])
    assert (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.USAGE_ERROR) == (outside.ret, empty.ret)
    assert not (pytester.path / "ran").exists()


def _add_inner_repository(root: Path) -> Path:
    """Make a repository without a configuration of pytest."""
    inner = root / "vendored" / "inner"
    (inner / "tests").mkdir(parents=True)
    (inner / "tests/test_inner.py").write_text("def test_inner(benchmark):\n    benchmark(sum, [1, 2])\n")
    repository = create_repository(inner)
    repository.git.add("--all")
    repository.git.commit("--quiet", "-m", "Be another project")
    return inner


def test_tests_of_another_repository_are_not_filed_under_this_ones_commit(suite: pytest.Pytester) -> None:
    inner = _add_inner_repository(suite.path)
    tests = str(inner / "tests")

    result = run_session(suite.path, tests, "--benchmark-autosave")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*these tests are of the git repository {inner}, but pytest takes*"])
    assert not (suite.path / "benchmarks").exists()

    own = run_session(suite.path, tests, "--benchmark-autosave", f"--rootdir={inner}")

    own.assert_outcomes(passed=1)
    (row,) = _rows(inner / "benchmarks/ledger").values()
    assert row.commit.sha == git.Repo(inner).head.commit.hexsha


def test_tests_of_a_submodule_are_filed_under_the_commit_around_it(
    suite: pytest.Pytester, tmp_path: Path
) -> None:
    inner = _add_inner_repository(tmp_path)
    repository = git.Repo(suite.path)
    repository.git.execute(
        ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub"]
    )
    repository.git.commit("--quiet", "-m", "Add a submodule")

    result = run_session(suite.path, "sub/tests", "--benchmark-autosave")

    result.assert_outcomes(passed=1)
    (row,) = _rows(suite.path / "benchmarks/ledger").values()
    assert row.commit.sha == repository.head.commit.hexsha
    assert not row.commit.dirty


def test_xdist_is_named_where_it_switches_benchmarks_off(suite: pytest.Pytester) -> None:
    asked = run_session(suite.path, "--perfkit-ledger=rows", "-n1", "-k", "pedantic")

    assert 4 == asked.ret
    asked.stdout.fnmatch_lines(
        ["perfkit: nothing was measured*: pytest-xdist (-n) switches benchmarks off: add -n 0"]
    )


def test_a_test_that_is_run_again_is_judged_by_its_last_run(suite: pytest.Pytester) -> None:
    suite.makeconftest(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            reports = runtestprotocol(item, nextitem=nextitem, log=False)
            if any(report.failed for report in reports):
                item._initrequest()
                reports = runtestprotocol(item, nextitem=nextitem, log=False)
            for report in reports:
                item.ihook.pytest_runtest_logreport(report=report)
            return True
        """
    )
    suite.makepyfile(
        test_again="""
        import datetime
        import pathlib
        import pytest

        @pytest.fixture
        def over():
            yield
            pathlib.Path("over").write_text(datetime.datetime.now(datetime.UTC).isoformat())

        def test_again(benchmark, over):
            first = not pathlib.Path("begun").exists()
            pathlib.Path("begun").touch()
            benchmark(sum, range(10))
            assert not first
        """
    )
    run_session(suite.path, "--perfkit-ledger=rows", "test_again.py").assert_outcomes(passed=1)

    (row,) = _rows(suite.path / "rows").values()
    assert "ok" == row.outcome.status
    assert row.recorded_at >= datetime.fromisoformat((suite.path / "over").read_text())


def test_code_from_elsewhere_is_not_filed(suite: pytest.Pytester, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "test_suite.py").write_text("")

    result = run_session(suite.path, "--perfkit-ledger=rows", f"--perfkit-prove-root={root}", "-k", "sum")

    assert 4 == result.ret
    result.stdout.fnmatch_lines(["perfkit: wrong code imported: test_suite came from *"])
    assert [] == Ledger(suite.path / "rows").files()


def test_a_session_that_nobody_records_waits_for_the_accelerator(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        torch="""
        import types

        def no_events(*_, **__):
            raise NotImplementedError

        # A build of torch with CUDA would ask a driver for events.
        Event, events = no_events, []
        cuda = types.SimpleNamespace(is_initialized=lambda: True, synchronize=lambda: events.append("sync"))
        """,
        test_a="""
        import torch

        def test_a(benchmark):
            benchmark.pedantic(lambda: torch.events.append("call"), rounds=2, iterations=3)
            round_ = ["sync", "call", "call", "call", "sync"]
            assert round_ + round_ + ["call"] == torch.events
        """,
    )

    run_session(suite.path, "test_a.py").assert_outcomes(passed=1)

    assert not (suite.path / "benchmarks").exists()


def test_a_session_shows_what_moved_against_the_last_run(suite: pytest.Pytester) -> None:
    first = run_session(suite.path, "--benchmark-autosave", "-k", "sum")
    ledger = Ledger(suite.path / "benchmarks/ledger")
    _repeat_faster(ledger)
    git.Repo(suite.path).git.commit("--quiet", "--allow-empty", "-m", "Another one")

    second = run_session(suite.path, "--benchmark-autosave", "-k", "sum")
    quiet = run_session(suite.path, "--benchmark-autosave", "-k", "sum", "-q")

    assert "against the last runs" not in first.stdout.str()
    second.stdout.fnmatch_lines(
        [
            "perfkit: against the last runs here (not interleaved, so no verdict):",
            "perfkit:   ×* test_sum[[]*",
            "perfkit:   to decide: perfkit gate --base * --select test_sum",
        ]
    )
    assert "against the last runs" not in quiet.stdout.str()


def _repeat_faster(ledger: Ledger) -> None:
    """Add three earlier sessions to a ledger's only run, at which the same was a hundred times as fast."""
    rows = ledger.rows()
    for day in range(1, 4):
        ledger.append(
            [
                dataclasses.replace(
                    row,
                    run_id=f"{row.run_id[:-1]}{day}",
                    recorded_at=row.recorded_at + timedelta(seconds=day),
                    outcome=dataclasses.replace(
                        row.outcome, values=tuple(0.01 * value for value in row.outcome.values)
                    ),
                )
                for row in rows
            ]
        )
