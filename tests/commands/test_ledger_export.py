"""Rows of the ledger get out of it in formats that other tools read, and back without a change."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from forked_commands import run_perfkit
from repositories import Repository
from synthetic import build_row

from perfkit.errors import NotMeasuredError, UsageError
from perfkit.features.exchange.command import (
    ExportFormat,
    ExportReport,
    ExportRequest,
    ImportRequest,
    export_rows,
    import_files,
)
from perfkit.ledger.store import Ledger
from perfkit.model import Metric, Outcome, Row

FILES = Path(__file__).parents[1] / "exchange/files"
COUNT = Metric(name="operators", unit="1", exact=True)
HEAD = "b" * 40


def of_count(row: Row) -> Row:
    return dataclasses.replace(row, outcome=dataclasses.replace(row.outcome, metric=COUNT))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return a ledger with two launches of two commits, a count, a failure and uncommitted changes."""
    place = tmp_path / "ledger"
    kept = Ledger(place)
    rows = [
        build_row(0.1 * (1 + launch), 0.2, sha=sha, run="run-1", launch=launch, name="b.py::test_a[1-x]")
        for sha in ("a" * 40, HEAD)
        for launch in range(2)
    ]
    kept.append([*rows, of_count(build_row(7.0, sha=HEAD, run="run-1", name="b.py::test_a[1-x]"))])
    kept.append(
        [build_row(run="run-2", minute=1, sha=HEAD, status="error", message="no", name="b.py::test_b")]
    )
    kept.append([build_row(0.5, run="run-3", minute=2, sha=HEAD, dirty=True, name="b.py::test_c")])
    return place


def export(
    ledger: Path,
    name: ExportFormat,
    out: Path | None = None,
    *,
    benchmark: str | None = None,
    commit: str | None = None,
    run: str | None = None,
    source: str | None = None,
) -> ExportReport:
    """Export what filters leave of a ledger."""
    return export_rows(
        ExportRequest(
            ledger=ledger,
            start=ledger.parent,
            format=name,
            out=out,
            benchmarks=() if benchmark is None else (benchmark,),
            commit=commit,
            run=run,
            source=source,
        )
    )


def imported(tmp_path: Path, *places: Path, ledger: str = "imported") -> list[Row]:
    import_files(ImportRequest(places=places, ledger=tmp_path / ledger, start=tmp_path))
    return Ledger(tmp_path / ledger).rows()


def shown(outcome: Outcome) -> tuple[object, ...]:
    """Return what a round trip must keep of an outcome."""
    benchmark = outcome.benchmark
    return (
        benchmark.name,
        tuple(benchmark.params.items()),
        benchmark.group,
        outcome.metric,
        outcome.loops,
        tuple(outcome.values),
        outcome.summary,
        outcome.status,
    )


def test_csv_is_read_by_pandas(ledger: Path, tmp_path: Path) -> None:
    report = export(ledger, "csv", tmp_path / "out/rows.csv")
    frame = pd.read_csv(tmp_path / "out/rows.csv")

    assert (7, 7) == (report.rows, len(frame))
    rows = Ledger(ledger).rows()
    assert [row.outcome.benchmark.name for row in rows] == frame["benchmark"].tolist()
    assert [list(row.outcome.values) for row in rows] == [json.loads(text) for text in frame["values"]]
    assert 0.15000000000000002 == frame.loc[0, "mean"]
    assert "2026-01-02T03:04:05+00:00" == frame.loc[0, "recorded_at"]
    assert {"cpu": "Test CPU", "logical_cpus": "2", "ram_gib": "16", "gpus": ""} == json.loads(
        str(frame.loc[0, "machine"])
    )


def test_csv_keeps_any_name(tmp_path: Path) -> None:
    name = 'a","b\n,\x1b[31m"::test|<b>'
    Ledger(tmp_path / "ledger").append([build_row(1.0, name=name)])

    export(tmp_path / "ledger", "csv", tmp_path / "rows.csv")

    assert [name] == pd.read_csv(tmp_path / "rows.csv")["benchmark"].tolist()


def test_json_goes_to_standard_output(ledger: Path) -> None:
    Ledger(ledger).append([build_row(float("nan"), run="run-4", minute=4)])
    text = export(ledger, "json").text
    assert text is not None
    records = json.loads(text)

    assert 8 == len(records)
    assert ([0.1, 0.2], 2, "s") == (records[0]["values"], records[0]["n"], records[0]["unit"])
    assert "Test CPU" == records[0]["machine"]["cpu"]
    assert [None] == records[-1]["values"]


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        ({"benchmark": "test_a[1-x]"}, 5),
        ({"commit": HEAD}, 5),
        ({"commit": HEAD[:7]}, 5),
        ({"run": "run-2"}, 1),
        ({"source": "pytest"}, 7),
        ({"commit": HEAD, "benchmark": "b.py::test_c"}, 1),
    ],
)
def test_filters_leave_what_they_mean(ledger: Path, filters: dict[str, str], rows: int) -> None:
    assert rows == export(ledger, "csv", None, **filters).rows


def test_a_filter_that_nothing_passes_is_refused(ledger: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no row of .* is meant by these filters"):
        export(ledger, "csv", tmp_path / "rows.csv", benchmark="test_nothing")

    assert not (tmp_path / "rows.csv").exists()


def test_pytest_benchmark_compares_what_is_exported(ledger: Path, tmp_path: Path) -> None:
    report = export(ledger, "pytest-benchmark", tmp_path / "out")
    done = subprocess.run(
        [Path(sys.executable).with_name("pytest-benchmark"), "compare", *report.files, "--csv=table"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    table = pd.read_csv(tmp_path / "table.csv")
    assert {"b.py::test_a[1-x]": 2, "b.py::test_c": 1} == table["name"].value_counts().to_dict()
    assert [4, 4, 1] == table["rounds"].tolist()
    assert pytest.approx(0.2) == table.loc[0, "median"]
    assert 3 == len(report.files)
    assert {"rows of other metrics than the time of a call": 1, "rows without a result": 1} == report.left_out


def test_pytest_benchmark_keeps_its_results(tmp_path: Path) -> None:
    source = json.loads((FILES / "pytest_benchmark_5.json").read_text())
    summaries = json.loads((FILES / "pytest_benchmark_5.json").read_text())
    for bench in summaries["benchmarks"]:
        del bench["stats"]["data"]
    (tmp_path / "values.json").write_text(json.dumps(source))
    (tmp_path / "summaries.json").write_text(json.dumps(summaries))
    for name in ("values", "summaries"):
        before = imported(tmp_path, tmp_path / f"{name}.json", ledger=name)
        export(tmp_path / name, "pytest-benchmark", tmp_path / f"{name}-again.json")
        again = imported(tmp_path, tmp_path / f"{name}-again.json", ledger=f"{name}-again")

        assert [shown(row.outcome) for row in before] == [shown(row.outcome) for row in again]
        assert [(row.commit, row.machine.machine_id) for row in before] == [
            (row.commit, row.machine.machine_id) for row in again
        ]
        exported = json.loads((tmp_path / f"{name}-again.json").read_text())["benchmarks"]
        for bench, other in zip(source["benchmarks"], exported, strict=True):
            assert pytest.approx(bench["stats"]["mean"]) == other["stats"]["mean"]
            assert bench["stats"]["min"] == other["stats"]["min"]
            assert bench["stats"]["iqr_outliers"] == other["stats"]["iqr_outliers"]


def test_asv_keeps_its_results(tmp_path: Path) -> None:
    before = imported(tmp_path, FILES / "asv")
    report = export(tmp_path / "imported", "asv", tmp_path / "out")
    again = imported(tmp_path, tmp_path / "out", ledger="again")

    assert (24, {}) == (report.rows, report.left_out)
    assert sorted(map(repr, (shown(row.outcome) for row in before))) == sorted(
        map(repr, (shown(row.outcome) for row in again))
    )
    assert {(row.commit, row.machine.machine_id, row.environment.env_id) for row in before} == {
        (row.commit, row.machine.machine_id, row.environment.env_id) for row in again
    }
    for name in ("sample/74d09164-existing-py_usr_bin_python3.json", "benchmarks.json"):
        original, exported = (
            json.loads((top / name).read_text()) for top in (FILES / "asv", tmp_path / "out")
        )
        assert original.keys() == exported.keys()
    stats = exported["sorting.Sorting.time_sort"]
    assert ("time", "seconds", ["size", "kind"]) == (stats["type"], stats["unit"], stats["param_names"])


def test_asv_gets_a_benchmark_for_each_metric(ledger: Path, tmp_path: Path) -> None:
    report = export(ledger, "asv", tmp_path / "out")
    [head] = (tmp_path / "out").glob(f"*/{HEAD[:8]}-*.json")
    value = json.loads(head.read_text())
    columns = {
        name: dict(zip(value["result_columns"], one, strict=False)) for name, one in value["results"].items()
    }

    assert {"rows of uncommitted changes": 1} == report.left_out
    assert {"b.py::test_a[1-x]", "b.py::test_a[1-x] (operators)", "b.py::test_b"} == set(columns)
    assert ([0.2], [[0.1, 0.2, 0.2, 0.2]]) == (
        columns["b.py::test_a[1-x]"]["result"],
        columns["b.py::test_a[1-x]"]["samples"],
    )
    assert [None] == (columns["b.py::test_b"]["result"] or [None])
    assert (
        "track"
        == json.loads((tmp_path / "out/benchmarks.json").read_text())["b.py::test_a[1-x] (operators)"]["type"]
    )


def test_asv_itself_reads_what_is_exported(tmp_path: Path) -> None:
    results = pytest.importorskip("asv.results")
    imported(tmp_path, FILES / "asv")
    export(tmp_path / "imported", "asv", tmp_path / "out")

    found = {one.commit_hash[:8]: one for one in results.iter_results(str(tmp_path / "out"))}

    assert {"74d09164", "9d685f8f"} == set(found)
    assert [1.1077626820897266e-06] == found["74d09164"].get_result_value("sorting.time_join", [])


def test_a_folder_that_holds_something_is_left_alone(ledger: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/notes.txt").write_text("mine")

    with pytest.raises(UsageError, match="is no empty folder"):
        export(ledger, "asv", tmp_path / "out")
    with pytest.raises(UsageError, match=r"needs . files; name a folder with --out"):
        export(ledger, "asv")

    assert ["notes.txt"] == [file.name for file in (tmp_path / "out").iterdir()]


def test_a_format_without_a_place_for_any_row_reports_it(ledger: Path, tmp_path: Path) -> None:
    with pytest.raises(NotMeasuredError, match="has no place for any of these 1 rows: rows without a result"):
        export(ledger, "pytest-benchmark", tmp_path / "out", run="run-2")

    assert not (tmp_path / "out").exists()


def test_the_command_exports(ledger: Path, repository: Repository) -> None:
    repository.commit({"a.py": "1"})

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_perfkit("ledger", "export", "--ledger", ledger, *arguments, cwd=repository.root)

    printed = run("--format", "pytest-benchmark", "--commit", HEAD[:8], "--run", "run-1")
    written = run("--format", "csv", "--out", "rows.csv")
    unknown = run("--format", "xml")
    nothing = run("--format", "csv", "--commit", "no-branch")

    assert (0, 0, 2, 2) == tuple(one.returncode for one in (printed, written, unknown, nothing))
    assert 1 == len(json.loads(printed.stdout)["benchmarks"])
    assert "perfkit: left out: 1 rows of other metrics than the time of a call\n" == printed.stderr
    assert "wrote 7 rows into 1 file: rows.csv\n" == written.stdout
    assert "--format must be one of csv, json, asv, " in unknown.stderr
    assert 'unknown commit "no-branch"' in nothing.stderr
