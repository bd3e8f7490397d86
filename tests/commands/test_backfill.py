"""Backfill on a real repository measures commits in alternation, each from its own worktree."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from repositories import Repository

from perfkit.commands.backfill import BackfillRequest, BackfillResult, run_backfill
from perfkit.commands.log import read_change_log
from perfkit.config import load_project
from perfkit.errors import NotMeasuredError, RepositoryError, RunInterruptedError, UsageError
from perfkit.ledger.recording import recover
from perfkit.ledger.store import Ledger
from perfkit.runner.launches import SessionSlot

BENCHMARK = """
import mycode

def test_work(benchmark):
    benchmark.pedantic(mycode.work, rounds=3, iterations=1)
"""
CONFIGURATION = "[tool.pytest.ini_options]\npython_files = ['bench_*.py']\n"


def _code(iterations: int) -> str:
    return f"def work():\n    return sum(range({iterations}))\n"


def _no_progress(number: int, of: int, slot: SessionSlot) -> None:
    """Let the launch begin."""


def _run(
    repository: Repository,
    *commits: str,
    launches: int = 2,
    select: str | None = None,
    progress: Callable[[int, int, SessionSlot], None] = _no_progress,
) -> BackfillResult:
    project = load_project(repository.root)
    request = BackfillRequest(
        commits=commits,
        launches=launches,
        benchmarks="benchmarks",
        select=select,
        ledger=project.ledger_path,
        seed=3,
    )
    return run_backfill(request, project=project, progress=progress)


@pytest.fixture
def two_commits(repository: Repository) -> tuple[Repository, str, str]:
    """Return a repository whose second commit does a hundred times the work of the first."""
    quick = repository.commit(
        {"benchmarks/bench_work.py": BENCHMARK, "mycode.py": _code(2_000), "pyproject.toml": CONFIGURATION},
        "Add work",
    )
    slow = repository.commit({"mycode.py": _code(200_000)}, "Do more")
    return repository, quick, slow


def test_commits_are_measured_in_alternation(two_commits: tuple[Repository, str, str]) -> None:
    repository, quick, slow = two_commits

    result = _run(repository, slow, quick)

    rows = Ledger(repository.root / "benchmarks/ledger").rows()
    placed = {(row.commit.sha, row.placement.side, row.placement.block) for row in rows}
    assert {(quick, "base", 0), (quick, "base", 1), (slow, "head", 0), (slow, "head", 1)} == placed
    assert {(result.run_id, "backfill", False)} == {(r.run_id, r.source, r.commit.dirty) for r in rows}
    assert {3} == {len(row.outcome.values) for row in rows}
    entries = (
        read_change_log(project=load_project(repository.root), ledger=result.file.parent).tables[0].entries
    )
    assert ["Add work", "Do more"] == [entry.description for entry in entries]
    cell = entries[1].cells[0]
    assert cell is not None
    assert cell.ratio is not None
    assert cell.ratio.value > 10
    assert 1 == len(repository.git.git.worktree("list").splitlines())


def test_what_was_measured_before_an_interruption_is_kept(two_commits: tuple[Repository, str, str]) -> None:
    repository, quick, slow = two_commits

    with pytest.raises(RunInterruptedError, match="its rows so far are in") as caught:
        _run(repository, quick, slow, progress=_interrupt_at_third)

    assert 130 == caught.value.exit_code
    assert 2 == len(Ledger(repository.root / "benchmarks/ledger").rows())
    assert 1 == len(repository.git.git.worktree("list").splitlines())


def _interrupt_at_third(number: int, *_: object) -> None:
    if number == 3:
        raise KeyboardInterrupt


def test_what_raises_or_is_killed_costs_no_other_benchmark(two_commits: tuple[Repository, str, str]) -> None:
    repository, _, _ = two_commits
    another = "def test_another(benchmark):\n    benchmark.pedantic(mycode.more, rounds=3, iterations=1)\n"
    commits = [
        repository.commit({"benchmarks/bench_work.py": BENCHMARK + another, "mycode.py": _code(2_000) + more})
        for more in (
            "more = work\n",
            "def more():\n    raise ValueError('no work')\n",
            "import os\ndef more():\n    os.kill(os.getpid(), 9)\n",
        )
    ]

    result = _run(repository, *commits, launches=1)

    rows = {
        (row.commit.sha, row.outcome.benchmark.name.rpartition("_")[2]): (row.outcome.status, row.partial)
        for row in Ledger(result.file.parent).rows()
    }
    whole, raising, deadly = commits
    assert {
        (whole, "work"): ("ok", False),
        (whole, "another"): ("ok", False),
        (raising, "work"): ("ok", False),
        (raising, "another"): ("error", False),
        (deadly, "work"): ("ok", True),
        (deadly, "another"): ("error", False),
    } == rows
    raised = f"benchmarks/bench_work.py::test_another failed at {raising[:10]}: ValueError: no work"
    assert (2, True) == (len(result.failures), raised in result.failures)


def test_nothing_measured_at_all_is_an_error(two_commits: tuple[Repository, str, str]) -> None:
    repository, quick, _ = two_commits

    with pytest.raises(NotMeasuredError, match="no launch could be run"):
        _run(repository, quick, launches=1, select="no_such_benchmark")

    assert [] == Ledger(repository.root / "benchmarks/ledger").files()


def test_mistakes_are_refused_beforehand(
    two_commits: tuple[Repository, str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repository, quick, _ = two_commits
    with pytest.raises(RepositoryError, match='unknown commit "nowhere"'):
        _run(repository, "nowhere")
    with pytest.raises(UsageError, match="--launches must be at least 1, found 0"):
        _run(repository, quick, launches=0)
    monkeypatch.setenv("PERFKIT_COMMIT", quick)
    with pytest.raises(RepositoryError, match="unset PERFKIT_COMMIT"):
        _run(repository, quick)
    assert not (tmp_path / "project/benchmarks/ledger").exists()


def test_named_commits_are_laid_out_as_ranges_are(repository: Repository) -> None:
    one = "packages/one"
    settings = (
        CONFIGURATION
        + '[tool.perfkit]\ncopy = ["_made.py"]\nprepare = "test -f pyproject.toml && cp built.txt built.py"\n'
    )
    before = repository.commit({"README.md": ""})
    broken = repository.commit(
        {
            "benchmarks/bench_top.py": "def test_top(benchmark):\n    benchmark(int)\n",
            ".gitignore": "_made.py\nbuilt.py\n",
            f"{one}/pyproject.toml": settings,
            f"{one}/benchmarks/bench_work.py": BENCHMARK,
            f"{one}/mycode.py": "from _made import N\nfrom built import M\ndef work():\n    return N + M\n",
        }
    )
    built = repository.commit({f"{one}/built.txt": "M = 1\n"})
    (repository.root / one / "_made.py").write_text("N = 1\n")

    result = _run(Repository(repository.root / one, repository.git), before, broken, built, launches=1)

    rows = {
        row.commit.sha: (row.outcome.benchmark.name, row.outcome.status)
        for row in Ledger(repository.root / one / "benchmarks/ledger").rows()
    }
    assert {
        before: ("benchmarks", "error"),
        broken: ("benchmarks", "error"),
        built: ("benchmarks/bench_work.py::test_work", "ok"),
    } == rows
    no_folder = f"{before[:10]} has no folder {one}, in which the project lies"
    no_build = "tool.perfkit.prepare: `test -f pyproject.toml && cp built.txt built.py`"
    assert [
        f"benchmarks failed at {before[:10]}: {no_folder}",
        f"benchmarks failed at {broken[:10]}: {no_build} failed on {broken[:10]} with exit code 1",
    ] == [failure.partition(": cp:")[0] for failure in result.failures]


def test_a_backfill_that_is_killed_is_recovered(two_commits: tuple[Repository, str, str]) -> None:
    repository, quick, slow = two_commits
    ledger = repository.root / "benchmarks/ledger"
    child = os.fork()
    if child == 0:
        try:
            _run(repository, quick, slow, progress=_die_at_second)
        finally:
            os._exit(1)
    os.waitpid(child, 0)

    (found,) = recover(ledger)

    assert ("backfill", 1) == (found.source, found.rows)
    assert [True] == [row.partial for row in Ledger(ledger).rows()]


def _die_at_second(number: int, *_: object) -> None:
    if number == 2:
        os.kill(os.getpid(), signal.SIGKILL)
