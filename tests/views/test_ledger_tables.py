"""The ledger's tables fit a terminal of 80 columns."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console, RenderableType
from synthetic import START, build_row

from perfkit.model import Metric, RunSummary
from perfkit.report.ledger import rows_table, runs_table


def _text(view: RenderableType) -> str:
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


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


def test_a_run_is_one_whole_line() -> None:
    text = _text(runs_table([_run(failed=3, dirty=True)]))

    expected = ["4e596ef1", "2026-01-02", "03:04", "backfill", "aaaaaaa", "dirty", "42", "1", "3"]
    assert expected == text.strip().splitlines()[-1].split()


def test_many_commits_are_counted() -> None:
    assert "2 commits" in _text(runs_table([_run(commits=("a" * 40, "b" * 40))]))


def test_brackets_and_failures_stand_as_they_are() -> None:
    rows = [
        build_row(0.5, 0.5, name="x/b.py::test_a[red/5]"),
        build_row(name="b.py::test_b", status="error", message="no"),
    ]

    text = _text(rows_table(rows))

    assert " b.py::test_a[red/5]" in text
    assert "b.py::test_b: no" in text
    assert ["2", "500", "ms", "0", "s", "500", "ms"] == text.splitlines()[4].split()[1:]


def test_a_number_has_the_unit_of_its_metric() -> None:
    row = build_row(2097152.0, name="BM_Sort/8")
    memory = replace(row, outcome=replace(row.outcome, metric=Metric(name="memory", unit="B")))
    share = replace(row, outcome=replace(row.outcome, values=(0.25,), metric=Metric(name="share", unit="1")))

    text = _text(rows_table([memory, share]))

    assert ["BM_Sort/8", "(memory)", "1", "2.00", "MiB", "-", "2.00", "MiB"] == text.splitlines()[4].split()
    assert ["BM_Sort/8", "(share)", "1", "0.25", "-", "0.25"] == text.splitlines()[5].split()


def test_a_commit_that_all_share_stands_in_the_title() -> None:
    one = _text(rows_table([build_row(1.0)]))
    two = _text(rows_table([build_row(1.0), build_row(1.0, sha="b" * 40, launch=1)]))

    assert "commit aaaaaaa" in one.splitlines()[0]
    assert "launch" not in one
    assert {"commit", "launch"} <= set(two.splitlines()[2].split())
