"""Names in tables are broken between their parts, and the ledger's tables fit 80 columns."""

from __future__ import annotations

import io

import pytest
from rendered import rendered
from synthetic import START, build_row

from perfkit.model import RunSummary
from perfkit.report.console import as_text, visible_console
from perfkit.report.ledger import rows_table, runs_table
from perfkit.report.names import BrokenName, NamedTable, broken, fitted

NODE = "benchmarks/bench_distances.py::test_compute_intercluster_metrics[200-5-cosine]"


@pytest.mark.parametrize("columns", range(1, 60))
def test_no_width_is_too_small(columns: int) -> None:
    assert all(len(line) <= max(columns, 3) for line in broken(NODE, columns))
    assert len(fitted(NODE, columns)) <= columns


def _lines(table: NamedTable, columns: int) -> list[str]:
    stream = io.StringIO()
    visible_console()(file=stream, width=columns).print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _table(name: str) -> NamedTable:
    table = NamedTable(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("benchmark", ratio=1)
    for heading in ("base", "head", "interval"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_row(BrokenName(name), "12.3 ms", "12.4 ms", "-1.2 to +3.4 %")
    table.add_row("a heading alone")
    return table


def test_a_name_without_room_has_a_line_of_its_own() -> None:
    assert [
        "benchmark",
        "     base    head       interval",
        "test_precompute_pairwise_distances[200-64]",
        "  12.3 ms 12.4 ms -1.2 to +3.4 %",
        "a heading alone",
    ] == _lines(_table("test_precompute_pairwise_distances[200-64]"), 60)


@pytest.mark.parametrize(("name", "columns"), [("test_a", 60), ("test_" + "long_" * 20, 80)])
def test_a_name_with_room_stays_beside_its_numbers(name: str, columns: int) -> None:
    lines = _lines(_table(name), columns)

    assert lines[0].split() == ["benchmark", "base", "head", "interval"]
    assert lines[1].startswith("test_")
    assert lines[1].endswith("12.3 ms 12.4 ms -1.2 to +3.4 %")


def _run(**changes: object) -> RunSummary:
    values: dict[str, object] = {
        "run_id": "01a1ff97-484e-71a6-b0a9-e1724e596ef1",
        "recorded_at": START,
        "source": "backfill",
        "commits": ("a" * 40,),
        "subject": "Change things",
        "dirty": False,
        "benchmarks": 42,
        "launches": 1,
        "rows": 42,
        "failed": 0,
        "machine_id": "m1",
    }
    return RunSummary(**{**values, **changes})  # type: ignore[arg-type]


def test_many_commits_are_counted() -> None:
    assert "2 commits" in rendered(runs_table([_run(commits=("a" * 40, "b" * 40))]))


def test_brackets_and_failures_stand_as_they_are() -> None:
    rows = [
        build_row(0.5, 0.5, name="x/b.py::test_a[red/5]"),
        build_row(name="b.py::test_b", status="error", message="no"),
    ]

    text = rendered(rows_table(rows))

    assert "\nb.py::test_a[red/5]" in text
    assert "b.py::test_b: no" in text
    assert ["2", "500", "ms", "0", "s", "500", "ms"] == text.splitlines()[3].split()[1:]


def test_a_view_in_a_notebook_is_as_wide_as_in_a_pipe() -> None:
    words = " ".join(["word"] * 60)

    assert 80 < max(len(line.rstrip()) for line in as_text(words).splitlines()) <= 100
