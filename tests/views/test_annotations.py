"""A gate's findings become GitHub's annotations, at the lines that are named for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from synthetic import build_comparison, build_count, build_report

from perfkit.model.comparisons import Explanation, MovedCause
from perfkit.model.differences import Amount, Part, Section
from perfkit.report.gate.markdown import annotation_lines, render_comment, render_without_report


def test_a_regression_is_shown_where_its_time_goes() -> None:
    waiting = Part(
        name="waiting", kind="own code", place="Engine.run", amount=Amount(base_s=0.0, head_s=5e-3)
    )
    moved = Part(
        name="forward,\nhead", kind="own code", place="src/a,b.py:7", amount=Amount(base_s=0.0, head_s=2e-3)
    )
    section = Section(title="functions", whole=waiting.amount, parts=(waiting, moved))
    report = build_report(
        build_comparison("test_a", "REGRESSED", 1.031, 1.026, 1.036),
        build_comparison("test_b", "UNCHANGED", 1.0, 0.99, 1.01),
        build_comparison("test_c", "FAILED", message="100 % wrong"),
        explanations=(Explanation(benchmark="benchmarks/bench_a.py::test_a", section=section),),
    )

    output = (
        "::error file=src/a%2Cb.py,line=7,title=perfkit::test_a is 3.1 %25 slower (between 2.6 and 3.6 %25);"
        " most of it in forward,%0Ahead"
    )
    assert (
        output,
        "::error file=benchmarks/bench_a.py,line=1,title=perfkit::test_c: FAILED; 100 %25 wrong",
    ) == annotation_lines(report)
    assert "most of what was added is spent in forward, head, `src/a,b.py:7`" in render_comment(report)


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ("on head: ValueError: no (f(x.py:1) is wrong) (src/a.py:19)", "file=src/a.py,line=19,"),
        ("on base: ValueError: no (src/a.py:19)", "file=benchmarks/bench_a.py,line=1,"),
        ("on head: the process died (signal 11)", "file=benchmarks/bench_a.py,line=1,"),
    ],
)
def test_an_error_is_shown_at_the_line_that_raised_it(message: str, place: str) -> None:
    (line,) = annotation_lines(build_report(build_comparison("test_a", "FAILED", message=message)))

    assert place in line


def test_a_count_is_shown_at_each_line_that_adds_to_it() -> None:
    cause = MovedCause(what="aten::mul", place="src/a.py:3", base=0.0, head=2.0)
    grown = build_count("test_a", "operators", 10.0, 12.0, cause)
    unknown = build_count("test_a", "peak", 10.0, 12.0, unit="B")

    lines = annotation_lines(replace(build_report(), exact=(grown, unknown)))

    assert lines[0].startswith("::error file=src/a.py,line=3,title=perfkit::")
    assert lines[0].endswith("REGRESSED, from 10 to 12; aten::mul")
    assert lines[1].startswith("::error title=perfkit::")


def test_a_count_is_reported_in_its_unit_and_never_rounded_to_no_move() -> None:
    tracked = build_count("test_a", "tracked", 0.71, 0.93, unit="")
    peak = build_count("test_a", "peak", 4096.0, 3 * 2**20, unit="B")
    grown = replace(build_count("test_a", "peak", 3 * 2**20, 3 * 2**20 + 64, unit="B"), verdict="REGRESSED")

    lines = annotation_lines(replace(build_report(), exact=(tracked, peak, grown)))

    assert lines[0].endswith("REGRESSED, from 0.71 to 0.93")
    assert lines[1].endswith("REGRESSED, from 4.00 KiB to 3.00 MiB")
    assert lines[2].endswith("REGRESSED, +64 B of 3.00 MiB")


def test_a_count_that_could_not_be_decided_is_a_warning() -> None:
    cause = MovedCause(what="aten::mul", place="src/a.py:3", base=0.0, head=2.0)
    unsettled = replace(build_count("test_a", "operators", 10.0, 12.0, cause), verdict="INCONCLUSIVE")

    lines = annotation_lines(replace(build_report(), exact=(unsettled, replace(unsettled, causes=()))))

    assert ["::warning file=src/a.py", "::warning title=perfkit"] == [line[:23] for line in lines]


def test_what_passes_has_no_annotation() -> None:
    report = build_report(
        build_comparison("test_a", "UNCHANGED", 1.0, 0.99, 1.01),
        build_comparison("test_b", "NEW"),
        build_comparison("test_c", "SKIPPED"),
    )

    assert () == annotation_lines(report)


def test_no_result_never_reads_like_a_pass() -> None:
    without = render_without_report("the gate ended before it had a result", "https://example.test/1")
    failed = render_comment(build_report(build_comparison("test_a", "FAILED", message="head: no")))

    assert "NOT MEASURED: the gate ended before it had a result." in without
    assert "[its output](https://example.test/1) says why" in without
    assert "It is not known whether this change makes them slower." in failed


def test_a_long_table_folds_what_did_not_change() -> None:
    same = [build_comparison(f"test_{number}", "UNCHANGED", 1.0, 0.99, 1.01) for number in range(12)]
    slower = build_comparison("test_slow", "REGRESSED", 1.031, 1.026, 1.036)

    comment = render_comment(build_report(slower, *same))

    before, _, folded = comment.partition("<summary>12 benchmarks UNCHANGED</summary>")
    assert "| `test_slow` |" in before
    assert "| `test_3` |" not in before
    assert "| `test_3` |" in folded
    assert "benchmarks UNCHANGED</summary>" not in render_comment(build_report(slower, *same[:5]))
