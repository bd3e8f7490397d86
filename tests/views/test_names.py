"""Names in tables are broken between their parts, and cut only where a part alone is too wide."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from perfkit.report.console import visible, visible_console
from perfkit.report.names import BrokenName, NamedTable, broken, fitted

NODE = "benchmarks/bench_distances.py::test_compute_intercluster_metrics[200-5-cosine]"


@pytest.mark.parametrize(
    ("name", "columns", "lines"),
    [
        ("test_a", 10, ["test_a"]),
        (
            NODE,
            40,
            ["benchmarks/bench_distances.py::", "test_compute_intercluster_metrics", "[200-5-cosine]"],
        ),
        ("test_compute_metrics", 14, ["test_compute_", "metrics"]),
        ("b.py::test_a: no such thing", 12, ["b.py::", "test_a: no", "such thing"]),
        ("abcdefghijklmnop", 9, ["abcd…mnop"]),
        ("a/abcdefghijklmnop", 9, ["a/", "abcd…mnop"]),
        ("", 9, [""]),
    ],
)
def test_a_name_is_broken_between_its_parts(name: str, columns: int, lines: list[str]) -> None:
    assert lines == list(broken(name, columns))
    assert all(len(line) <= columns for line in lines)


@pytest.mark.parametrize("columns", range(1, 60))
def test_no_width_is_too_small(columns: int) -> None:
    assert all(len(line) <= max(columns, 3) for line in broken(NODE, columns))
    assert len(fitted(NODE, columns)) <= columns


def test_a_table_gives_names_what_numbers_leave() -> None:
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("benchmark", ratio=1)
    table.add_column("time", no_wrap=True)
    table.add_row(BrokenName("bench_distances.py::test_metrics[red]"), "123.4 ms")
    console = Console(width=40, highlight=False)
    with console.capture() as capture:
        console.print(table)

    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert ["bench_distances.py::           123.4 ms", "test_metrics[red]"] == lines[1:]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("test_ä[1-µs]", "test_ä[1-µs]"),
        ("a\x1b[31mred\x1b[0m", "a\\x1b[31mred\\x1b[0m"),
        ("two\nlines\rand\ta tab", "two\\nlines\\rand\\ta tab"),
        ("turned\u202efdp.exe", "turned\\u202efdp.exe"),
    ],
)
def test_what_would_steer_a_terminal_is_spelled_out(text: str, shown: str) -> None:
    assert shown == visible(text)


def test_a_name_in_a_table_cannot_steer_the_terminal() -> None:
    console = Console(width=60, highlight=False)
    with console.capture() as capture:
        console.print(BrokenName("a\x1b]0;title\x07\nb"))

    assert "a\\x1b]0;title\\x07\\nb" == capture.get().strip()


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
