"""Counts of a gate that moved alike are shown once, and so are their causes."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from rich.console import Console
from synthetic import build_count

from perfkit.model.comparisons import ExactComparison, MovedCause
from perfkit.report.gate.counters import counter_sections, counters_markdown

SIZES = (32, 64, 256, 1024)
FILE = "src/library/functional/classification/nearest_neighbours/distances_between_everything.py"


def _cause(what: str, line: int, moved: float) -> MovedCause:
    return MovedCause(what=what, place=f"{FILE}:{line}", base=1, head=1 + moved)


def _of_one_size(size: int) -> list[ExactComparison]:
    test = f"benchmarks/bench_neighbours.py::TestNeighbours::test_nearest[{size}-euclidean]"
    sub, mul = (_cause(f"aten::{name}", line, size) for name, line in (("sub", 41), ("mul", 57)))
    return [
        build_count(test, "operators", 64, 64 + size, sub, mul),
        build_count(test, "allocated", 1024 * size, 2048 * size, sub, mul, unit="B"),
        build_count(test, "peak", 512 * size, 1024 * size, sub, unit="B"),
        build_count(test, "python_calls", 20, 30, mul, gating=False),
        build_count(test, "saved", 512, 512, unit="B"),
    ]


FOUR_SIZES = [count for size in SIZES for count in _of_one_size(size)]


def _lines(exact: Sequence[ExactComparison], width: int = 100) -> list[str]:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        for section in counter_sections(exact):
            console.print(section, markup=False)
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("width", [80, 100])
def test_four_sizes_of_one_function_are_one_entry(width: int) -> None:
    lines = _lines(FOUR_SIZES, width)

    assert 25 >= len(lines)
    assert width >= max(map(len, lines))
    assert " ".join(lines[1:3]).startswith("test_nearest[32-euclidean] and 3 more like it")
    shown = {" ".join(line.split()) for line in lines}
    assert {
        "operators dispatched 64 96 ×1.5 to ×17 REGRESSED",
        "bytes allocated 32.0 KiB 64.0 KiB +32.0 KiB (+100.0 %) REGRESSED",
        "Python function calls 20 30 +10 (+50.0 %) informs",
    } <= shown
    for what, line in (("aten::sub", 41), ("aten::mul", 57)):
        (cause,) = (one for one in lines if what in one)
        assert re.fullmatch(rf"  {what}, from …/\S+/distances_between_everything\.py:{line}:.*", cause)
    output = " ".join(" ".join(lines).split())
    assert "operators dispatched +32, bytes allocated +32 B, peak live bytes +32 B aten::mul" in output


def test_a_cause_names_the_benchmarks_where_there_are_several() -> None:
    lines = _lines(
        [
            build_count("test_f", "operators", 10, 20, _cause("aten::sub", 41, 10)),
            build_count("a.py::train", "operators", 100, 120, _cause("aten::sub", 41, 20)),
        ]
    )

    output = " ".join(" ".join(lines).split())
    assert 1 == output.count("aten::sub")
    assert ":41: test_f operators dispatched +10; train operators dispatched +20" in output


def test_what_blocks_has_its_cause_reported() -> None:
    many = [
        build_count(f"test_{name}", "operators", 10, 20, *(_cause(f"{name}{at}", at, 9) for at in range(3)))
        for name in "abcdefgh"
    ]
    lines = _lines([build_count("test_free", "python_calls", 1, 9, _cause("x", 1, 8), gating=False), *many])

    shown = [line.strip().partition(",")[0] for line in lines if ", from " in line]
    assert [f"{name}0" for name in "abcdefgh"] == shown


def test_the_one_count_that_is_not_the_same_is_named() -> None:
    lines = _lines(
        [
            *(build_count("test_f", metric, 5, 5) for metric in ("operators", "peak", "saved")),
            build_count("test_f", "resident", 4096, 8192, unit="B", exact=False),
        ]
    )

    assert "3 counts of 4 the same to the digit on both sides" == lines[0]
    assert (
        "test_f peak resident bytes of a call (4.00 KiB, 8.00 KiB):"
        " not exact, and moved by too little to mean anything"
    ) == " ".join(lines[1:])


def test_what_was_not_counted_is_named_with_its_reason() -> None:
    few = [build_count("test_f", "flops", None, 5, message="not counted on base: compiled")]
    many = [
        build_count(f"test_{at}", metric, 5, 9, accepted="wanted")
        for at in range(6)
        for metric in ("operators", "peak")
    ]

    assert "test_f floating-point operations: not counted on base: compiled" == _lines(few)[-1]
    assert "12 counts of 6 benchmarks: accepted: wanted" == _lines(many)[-1]


def test_a_comment_has_one_table() -> None:
    folded = counters_markdown(FOUR_SIZES)
    assert "| `test_nearest[32-euclidean]` and 3 more like it | operators dispatched | 64 | 96 |" in folded
    assert 4 == folded.count("| `test_nearest")
    assert 1 == folded.count("aten::sub")
    assert "<details>" not in counters_markdown([build_count("test_f", "operators", 10, 20)])
    same = counters_markdown([build_count("test_f", "operators", 10, 10)])
    assert "<summary>Counts of what a call does: none moved, none fails</summary>" in same
    assert "- 1 count of 1 the same to the digit on both sides" in same
    assert "|" not in same
