"""Backfill of ranges measures each commit as a run of its own, once, and goes on where it was stopped."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import pytest
from repositories import Repository

from perfkit.commands import backfill
from perfkit.commands.backfill import BackfillRequest, Choice, RangeResult, run_range_backfill
from perfkit.config import load_project
from perfkit.errors import ConfigError, RepositoryError, RunInterruptedError, UsageError
from perfkit.ledger.store import Ledger

BENCHMARK = """
import mycode

def test_work(benchmark):
    benchmark.pedantic(mycode.work, rounds=2, iterations=1)
"""
CONFIGURATION = "[tool.pytest.ini_options]\npython_files = ['bench_*.py']\n"


def _code(iterations: int) -> str:
    return f"def work():\n    return sum(range({iterations}))\n"


def _silent(_: str) -> None:
    """Let a line pass."""


def _run(
    repository: Repository,
    *commits: str,
    log: Callable[[str], None] = _silent,
    launches: int = 1,
    select: str | None = None,
    **choice: Any,  # noqa: ANN401 (fields of several types)
) -> RangeResult:
    project = load_project(repository.root)
    request = BackfillRequest(
        commits=commits,
        launches=launches,
        benchmarks="benchmarks",
        select=select,
        ledger=project.ledger_path,
        seed=0,
        choice=dataclasses.replace(Choice(), **choice),
    )
    return run_range_backfill(request, project=project, log=log)


def _rows(repository: Repository) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in Ledger(repository.root / "benchmarks/ledger").rows():
        found.setdefault(row.commit.sha, []).append(f"{row.outcome.benchmark.name} {row.outcome.status}")
    return found


@pytest.fixture
def history(repository: Repository) -> tuple[Repository, list[str]]:
    """Return a repository with five commits, of which only the last has a benchmark."""
    shas = [repository.commit({"mycode.py": _code(1_000), "pyproject.toml": CONFIGURATION}, "Begin")]
    shas += [repository.commit({"mycode.py": _code(1_000 + number)}, f"Do {number}") for number in range(3)]
    shas.append(repository.commit({"benchmarks/bench_work.py": BENCHMARK}, "Add a benchmark"))
    return repository, shas


def test_todays_benchmarks_measure_old_commits_and_an_interrupted_backfill_goes_on(
    history: tuple[Repository, list[str]],
) -> None:
    repository, shas = history
    lines: list[str] = []

    def interrupt(line: str) -> None:
        lines.append(line)
        if line.startswith("1 of 3"):
            raise KeyboardInterrupt

    with pytest.raises(RunInterruptedError, match=r"1 of 3 are in .*: the same command goes on"):
        _run(repository, f"{shas[0]}..", log=interrupt, every=2)
    result = _run(repository, f"{shas[0]}..", log=lines.append, every=2)

    name = "benchmarks/bench_work.py::test_work ok"
    assert {shas[0]: [name], shas[2]: [name], shas[4]: [name]} == _rows(repository)
    assert (2, 1, ()) == (result.measured, result.known, result.failures)
    rows = Ledger(result.ledger).rows()
    assert {(False, "backfill")} == {(row.commit.dirty, row.source) for row in rows}
    assert 3 == len({row.run_id for row in rows})
    assert 1 == len(repository.git.git.worktree("list").splitlines())
    order = [line.split("commit ")[1][:10] for line in lines if re.match(r"\d of \d: commit ", line)]
    assert [sha[:10] for sha in (shas[0], shas[4], shas[2])] == order
    assert "left" in next(line for line in lines if line.startswith("1 of 3"))

    again = _run(repository, f"{shas[0]}..HEAD", every=2)

    assert (0, 3, 3) == (again.measured, again.known, len(Ledger(result.ledger).rows()))


@pytest.mark.slow
def test_what_other_runs_measured_is_known_by_its_version(history: tuple[Repository, list[str]]) -> None:
    repository, shas = history
    _run(repository, shas[0], shas[4], own_benchmarks=False, launches=2)

    assert (0, 2) == _known(_run(repository, shas[0], shas[4], tags=False, every=1, launches=1))
    assert (2, 0) == _known(_run(repository, shas[0], shas[4], every=1, launches=3))
    (repository.root / "benchmarks/bench_work.py").write_text(BENCHMARK.replace("rounds=2", "rounds=3"))
    assert (2, 0) == _known(_run(repository, shas[0], shas[4], every=1, launches=1))


def test_what_runs_the_same_code_as_enough_others_is_not_measured(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backfill, "SHORTEST", 2)
    files = {"mycode.py": _code(1_000), "other.py": "def rest():\n    return sum(range(9))\n"}
    tests = BENCHMARK + BENCHMARK.replace("mycode.work", "other.rest").replace("mycode", "other").replace(
        "test_work", "test_rest"
    )
    begun = repository.commit({**files, "pyproject.toml": CONFIGURATION}, "Begin")
    note = {"mycode.py": f"# A comment\n{_code(1_000)}", "README.md": "Read.\n"}
    notes = [repository.commit(note, "Note"), repository.commit({"README.md": "Do read.\n"}, "Note again")]
    part = repository.commit({"mycode.py": _code(2_000)}, "Do more")
    ending = {"mycode.py": _code(3_000), "other.py": "def rest(): ...\n"}
    last = repository.commit({"benchmarks/bench_work.py": tests, **ending}, "End")
    log: list[str] = []

    result = _run(repository, f"{begun}..", log=log.append)

    assert (5, 1, 0) == (result.measured, result.same, result.known)
    rows = {
        (row.commit.sha, row.outcome.benchmark.name.rpartition("_")[2]): row.outcome
        for row in Ledger(result.ledger).rows()
    }
    alike = {key: one.same_as for key, one in rows.items() if one.same_as}
    both = ("work", "rest")
    assert {(sha, name): begun for sha in notes for name in both} | {(part, "rest"): notes[1]} == alike
    assert {(sha, name) for sha in (begun, *notes, part, last) for name in both} == rows.keys()
    untimed = {(notes[0], "work"), (notes[0], "rest"), (part, "rest")}
    assert {key for key, one in rows.items() if one.values} == rows.keys() - untimed
    assert {16} == {len(rows[key].ran or "") for key in alike}
    assert any(f"same code as {begun[:10]}" in line for line in log)
    assert (0, 5) == _known(_run(repository, f"{begun}.."))
    assert (2, 0) == ((again := _run(repository, begun, notes[0], again=True)).measured, again.same)


def _known(result: RangeResult) -> tuple[int, int]:
    return result.measured, result.known


def test_a_commit_that_fails_is_a_row_and_is_not_tried_again(history: tuple[Repository, list[str]]) -> None:
    repository, shas = history
    broken = repository.commit({"mycode.py": "import nothing_at_all\n"}, "Break it")
    tried = f"{shas[4]}..{broken}"

    result = _run(repository, tried)

    assert ["benchmarks/bench_work.py error"] == _rows(repository)[broken]
    assert 1 == len(result.failures)
    assert "nothing_at_all" in result.failures[0]
    known = _run(repository, tried)
    assert (0, 2, 1) == (known.measured, known.known, len(known.failures))
    assert "could not be measured before: ModuleNotFoundError" in known.failures[0]


def test_an_old_build_is_prepared_by_its_own_command(history: tuple[Repository, list[str]]) -> None:
    repository, shas = history
    rules = (
        f'[[tool.perfkit.prepare_for]]\nrange = "..{shas[0]}"\ncommand = "echo no compiler; false"\n'
        f'[[tool.perfkit.prepare_for]]\nrange = "{shas[1]}..{shas[2]}"\n'
        "command = \"echo 'def work(): pass' > mycode.py\"\n"
    )
    repository.commit({"mycode.py": "raise SystemError\n", "pyproject.toml": CONFIGURATION + rules}, "Rule")

    result = _run(repository, f"{shas[0]}..{shas[2]}")

    rows = _rows(repository)
    assert ["benchmarks error"] == rows[shas[0]]
    assert ["benchmarks/bench_work.py::test_work ok"] * 2 == [*rows[shas[1]], *rows[shas[2]]]
    assert "no compiler" in result.failures[0]


def test_own_benchmarks_and_tags(history: tuple[Repository, list[str]]) -> None:
    repository, shas = history
    repository.git.create_tag("v1", shas[0])
    repository.git.create_tag("v2", shas[4], message="The second")

    result = _run(repository, "..HEAD", tags=True, own_benchmarks=True)

    rows = _rows(repository)
    assert {shas[0], shas[4]} == set(rows)
    assert ["benchmarks error"] == rows[shas[0]]
    assert ["benchmarks/bench_work.py::test_work ok"] == rows[shas[4]]
    assert 1 == len(result.failures)


@pytest.mark.parametrize(
    ("commits", "choice", "kind", "expected"),
    [
        (("HEAD..HEAD~1",), {}, RepositoryError, "write the older one first"),
        (("HEAD~1...HEAD",), {}, RepositoryError, "three dots; write HEAD~1..HEAD"),
        (("HEAD~1..HEAD",), {"every": 0}, UsageError, "--every must be at least 1, found 0"),
        (("HEAD~1..HEAD",), {"tags": True}, RepositoryError, "no commit of HEAD~1..HEAD has a tag"),
        ((), {}, UsageError, "name commits or a range"),
        ((), {"around": "0123456789"}, Exception, "no time of a commit yet"),
    ],
)
def test_mistakes_are_reported(
    history: tuple[Repository, list[str]],
    commits: tuple[str, ...],
    choice: dict[str, Any],
    kind: type[Exception],
    expected: str,
) -> None:
    repository, _ = history

    with pytest.raises(kind, match=expected):
        _run(repository, *commits, **choice)

    assert [] == list((repository.root / "benchmarks/ledger").glob("*.parquet"))


def test_a_rule_needs_range_and_command(repository: Repository) -> None:
    repository.commit({"pyproject.toml": '[[tool.perfkit.prepare_for]]\nrange = "..v1"\n'})

    with pytest.raises(ConfigError, match=r"prepare_for.*command"):
        load_project(repository.root)
