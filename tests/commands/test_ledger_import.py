"""Other tools' files get into the ledger, by the command as people type it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from forked_commands import run_perfkit
from repositories import Repository

from perfkit.errors import RepositoryError, RunInterruptedError, UsageError
from perfkit.features.exchange.command import ImportReport, ImportRequest, import_files
from perfkit.ledger.store import Ledger, Wanted
from perfkit.model import Row, Summary

FILES = Path(__file__).parents[1] / "exchange/files"


@pytest.fixture
def project(repository: Repository) -> Repository:
    """Return a repository with a commit, and no ledger yet."""
    repository.commit({"a.py": "1", "pyproject.toml": ""}, "Add a")
    return repository


def run(project: Repository, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_perfkit("ledger", *map(str, arguments), cwd=project.root, env={**os.environ, "COLUMNS": "200"})


def rows_in(project: Repository) -> list[Row]:
    return Ledger(project.root / "benchmarks/ledger").rows()


def import_into(ledger: Path, *places: Path, commit: str | None = None) -> ImportReport:
    return import_files(ImportRequest(places=places, ledger=ledger, start=ledger.parent, commit=commit))


def write(file: Path, value: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))
    return file


def asv_file(benchmarks: dict[str, Any], commit: str = "c" * 40) -> dict[str, Any]:
    """Return a result file of asv with a number for each benchmark."""
    return {
        "commit_hash": commit,
        "params": {"machine": "m"},
        "date": 1586678387000,
        "result_columns": ["result", "params"],
        "results": {name: [[value], []] for name, value in benchmarks.items()},
        "version": 2,
    }


def test_a_folder_of_asv_is_imported_in_one_command(project: Repository) -> None:
    first = run(project, "import", FILES / "asv", "--json", "-")
    second = run(project, "import", FILES / "asv")

    assert 0 == first.returncode, first.stderr
    ledger = project.root / "benchmarks/ledger"
    assert f"imported 2 runs of 2 commits from 2 files into {ledger}: 24 results" in first.stderr
    assert "of these, 8 are benchmarks that failed or were skipped" in first.stderr
    report = json.loads(first.stdout)
    assert [12, 12] == [one["rows"] for one in report["runs"]]
    assert sorted(one["file"] for one in report["runs"]) == sorted(map(str, ledger.iterdir()))
    assert all("-import-asv-" in file.name for file in ledger.iterdir())
    assert 0 == second.returncode
    assert "imported nothing from 2 files" in second.stdout
    assert "2 runs are in the ledger already" in second.stdout
    rows = rows_in(project)
    assert 24 == len(rows)
    assert {"import:asv"} == {row.source for row in rows}
    assert {"ok": 16, "error": 4, "skipped": 4} == {
        status: sum(row.outcome.status == status for row in rows) for status in ("ok", "error", "skipped")
    }


def test_git_reports_commits_that_it_has(project: Repository) -> None:
    known = project.git.head.commit
    write(project.root / "a.json", asv_file({"time_a": 1.0}, known.hexsha))
    write(project.root / "b.json", asv_file({"time_a": 1.0}, "d" * 40))
    write(project.root / "c.json", asv_file({"time_b": 1.0}, known.hexsha[:10]))

    done = run(project, "import", "a.json", "b.json", "c.json")

    assert 0 == done.returncode, done.stderr
    found = {(row.commit.sha, row.commit.subject) for row in rows_in(project)}
    assert {(known.hexsha, "Add a"), ("d" * 40, None)} == found
    times = {row.commit.sha: row.commit.time for row in rows_in(project)}
    assert known.committed_date == int(times[known.hexsha].timestamp())  # type: ignore[union-attr]
    assert 1586678387 == int(times["d" * 40].timestamp())  # type: ignore[union-attr]


def test_a_file_without_a_commit_needs_one(project: Repository) -> None:
    refused = run(project, "import", FILES / "pyperf.json")
    by_ref = run(project, "import", FILES / "pyperf.json", "--commit", "HEAD")
    ledger = project.root / "benchmarks/ledger"
    import_into(ledger, FILES / "pyperf.json", commit="e" * 40)

    assert (2, 0) == (refused.returncode, by_ref.returncode)
    assert "names no commit; name it with --commit" in refused.stderr
    assert {project.git.head.commit.hexsha, "e" * 40} == {row.commit.sha for row in rows_in(project)}
    assert [0, 1, 2] == sorted({row.placement.launch for row in rows_in(project)})
    with pytest.raises(RepositoryError, match='unknown commit "no-such-branch"'):
        import_into(ledger, FILES / "pyperf.json", commit="no-such-branch")


def test_one_broken_file_keeps_none_of_the_others_out(project: Repository) -> None:
    shutil.copytree(FILES / "asv", project.root / ".asv/results")
    broken = project.root / ".asv/results/sample/ffffffff-broken.json"
    broken.write_text('{"commit_hash": "ffff", "results": {"time_a"')

    done = run(project, "import", ".asv")

    assert 4 == done.returncode
    assert "imported 2 runs of 2 commits from 3 files" in done.stdout
    assert ["perfkit: .asv/results/sample/ffffffff-broken.json is not whole JSON"] == [
        line.partition(":")[0] + ":" + line.partition(":")[2].partition(":")[0]
        for line in done.stderr.splitlines()
        if line.startswith("perfkit:")
    ]


def test_a_run_is_filed_whole_or_not_at_all(tmp_path: Path) -> None:
    value = asv_file({"time_a": 1.0})
    value["results"]["time_b"] = "nothing"
    write(tmp_path / "x/bad.json", value)
    write(tmp_path / "x/good.json", asv_file({"time_c": 1.0}))

    report = import_into(tmp_path / "ledger", tmp_path / "x")

    assert ["time_c"] == [row.outcome.benchmark.name for row in Ledger(tmp_path / "ledger").rows()]
    assert [f"{tmp_path / 'x/bad.json'} is not as asv writes it: of 'time_b', its result is no list"] == list(
        report.problems
    )


def test_what_asv_adds_to_a_file_is_imported_alone(tmp_path: Path) -> None:
    file = write(tmp_path / "x/c.json", asv_file({"time_a": 1.0, "time_b": 2.0}))
    import_into(tmp_path / "ledger", file)
    write(file, asv_file({"time_a": 1.0, "time_b": 2.0, "time_c": 3.0}))

    report = import_into(tmp_path / "ledger", file)

    assert [2] == [one.present for one in report.runs]
    names = [row.outcome.benchmark.name for row in Ledger(tmp_path / "ledger").rows()]
    assert ["time_a", "time_b", "time_c"] == sorted(names)


def test_the_same_file_is_the_same_run_wherever_it_lies(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", asv_file({"time_a": 1.0}))
    import_into(tmp_path / "ledger", file, FILES / "data.js")
    Ledger(tmp_path / "ledger").compact()
    other = tmp_path / "b/other.json"
    other.parent.mkdir()
    other.write_text(json.dumps(json.loads(file.read_text()), indent=4))

    report = import_into(tmp_path / "ledger", other, FILES / "data.js")

    assert () == report.added
    assert 5 == len(report.runs)


def test_a_summary_is_kept_where_values_were_not(project: Repository) -> None:
    sha = project.git.head.commit.hexsha
    stats = {"mean": 0.002, "stddev": 0.0001, "rounds": 9, "median": 0.0019, "min": 0.0018}
    bench = {"name": "test_a", "fullname": "b.py::test_a", "stats": stats}
    write(
        project.root / "a.json",
        {
            "machine_info": {},
            "commit_info": {"id": sha},
            "benchmarks": [bench],
            "datetime": "2026-01-02T03:04:05",
        },
    )

    imported = run(project, "import", "a.json")
    [row] = rows_in(project)
    shown = run(project, "show", row.run_id)
    log = run_perfkit("log", cwd=project.root)

    assert 0 == imported.returncode, imported.stderr
    assert Summary(n=9, mean=0.002, sd=0.0001, median=0.0019) == row.outcome.summary
    frame = Ledger(project.root / "benchmarks/ledger").to_pandas()
    assert (9, 0.002, 0.0001, 0.0019) == tuple(frame.loc[0, ["n", "mean", "sd", "median"]])
    assert ["9", "2.00", "ms", "100", "us", "1.90", "ms"] == shown.stdout.split()[-7:]
    assert 0 == log.returncode, log.stderr
    assert "| 0.002000, 0.000100 † | Add a |" in (project.root / "perf_log.md").read_text()


def test_summaries_have_a_trend(tmp_path: Path) -> None:
    entry = {"tool": "pytest", "date": 1700000000000}
    rate = {"unit": "iter/sec", "range": "stddev: 0.00001", "extra": "rounds: 20"}
    entries = [
        {**entry, "commit": {"id": sha * 40}, "benches": [{"name": "t", "value": 4000, **rate}]}
        for sha in "ab"
    ]
    write(tmp_path / "data.json", {"lastUpdate": 1, "entries": {"Python": entries}})
    import_into(tmp_path / "ledger", tmp_path / "data.json")

    [trend] = Ledger(tmp_path / "ledger").trends(Wanted()).trends

    assert (0.00025, 0.00025) == tuple(trend.levels)


def test_places_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(UsageError, match=r"there is no file or folder .*nowhere\.json"):
        import_into(tmp_path / "ledger", tmp_path / "nowhere.json")
    with pytest.raises(UsageError, match=r"empty holds no results: no file in it ends in \.json"):
        import_into(tmp_path / "ledger", tmp_path / "empty")


def test_a_format_that_is_named_is_the_one(project: Repository) -> None:
    unknown = run(project, "import", "pyproject.toml", "--format", "csv")
    other = run(project, "import", FILES / "pyperf.json", "--format", "pytest-benchmark")

    assert (2, 2) == (unknown.returncode, other.returncode)
    assert "--format must be one of asv, github-action-benchmark, google-benchmark" in unknown.stderr
    assert "is not as pytest-benchmark writes it" in other.stderr


def test_a_commit_that_no_file_needs_is_reported(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", asv_file({"time_a": 1.0}))

    report = import_into(tmp_path / "ledger", file, commit="a" * 40)

    assert ("--commit was not needed: every run names its own commit",) == report.doubts
    assert {"c" * 40} == {row.commit.sha for row in Ledger(tmp_path / "ledger").rows()}


def test_a_damaged_neighbour_is_named(tmp_path: Path) -> None:
    shutil.copytree(FILES / "asv", tmp_path / "asv")
    (tmp_path / "asv/benchmarks.json").write_text("{")

    report = import_into(tmp_path / "ledger", tmp_path / "asv")

    assert 2 == len(report.added)
    [problem] = report.problems
    assert problem.startswith(f"{tmp_path / 'asv/benchmarks.json'} is not whole JSON")


def test_what_is_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write(tmp_path / f"x/{number}.json", asv_file({"time_a": 1.0}, str(number) * 40))
    append = Ledger.append
    filed: list[Sequence[Row]] = []

    def interrupted(self: Ledger, rows: Sequence[Row]) -> Path:
        if len(filed) == 1:
            raise KeyboardInterrupt
        filed.append(rows)
        return append(self, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", interrupted)
        with pytest.raises(RunInterruptedError, match="interrupted after 1 run had been filed") as stopped:
            import_into(tmp_path / "ledger", tmp_path / "x")
    report = import_into(tmp_path / "ledger", tmp_path / "x")

    assert 130 == stopped.value.exit_code
    assert 2 == len(report.added)
