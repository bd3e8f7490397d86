"""A gate's result is rendered as a pull-request comment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from synthetic import build_comparison, build_report

from perfkit.records.comparisons import Explanation, Need
from perfkit.records.differences import Amount, Part, Section
from perfkit.views.gate.markdown import render_comment


def test_the_whole_comment_is_as_it_was() -> None:
    """Heading, table with REGRESSED first, findings, explanation and footer, free text escaped."""
    moved = Part(
        name="<lambda>", kind="own code", place="src/a|b.py:3", amount=Amount(base_s=0.0, head_s=2e-6)
    )
    section = Section(title="functions", whole=moved.amount, parts=(moved,))
    report = build_report(
        build_comparison("test_b", "UNCHANGED", 1.0004, 0.9961, 1.0051),
        build_comparison("test_a[<i>|`x`]", "REGRESSED", 1.031, 1.026, 1.036),
        build_comparison("test_near", "INCONCLUSIVE", 1.015, 1.004, 1.026, need=Need(launches=12)),
        build_comparison("test_raises", "FAILED", message="head: ValueError: <no>\nsuch | thing"),
        notes=("pytest-xdist was <switched> off",),
        explanations=(
            Explanation(
                benchmark="benchmarks/bench_a.py::test_a[<i>|`x`]", section=section, findings=("<i> | calls",)
            ),
        ),
    )
    golden = Path(__file__).parent / "golden_gate_comment.md"

    assert golden.read_text() == render_comment(report)


def test_rows_have_as_many_cells_as_headings() -> None:
    """No free text ends a cell: every line of the table has seven."""
    comment = render_comment(build_report(build_comparison("test_a[x|y]", "UNCHANGED", 1.0, 0.99, 1.01)))
    lines = [line for line in comment.splitlines() if line.startswith("|")]

    assert {8} == {line.replace(r"\|", "").count("|") for line in lines}
    assert r"| `test_a[x\|y]` |" in comment


def test_uncommitted_changes_cannot_be_reproduced() -> None:
    """What no commit holds has no command that would measure it again."""
    same = build_comparison("test_a", "UNCHANGED", 1.0, 0.99, 1.01)
    command = f"`perfkit gate --base {'a' * 40} --head {'b' * 40}`"

    assert command in render_comment(build_report(same))
    dirty = render_comment(build_report(same, head_dirty=True))
    assert "perfkit gate --base" not in dirty
    assert f"head `{'b' * 40}` (Change \\| more things) with uncommitted changes" in dirty


def test_a_report_without_benchmarks_has_no_table() -> None:
    """An empty table would look like a result."""
    comment = render_comment(build_report(from_ledger=True))

    assert comment.startswith("## perfkit gate: NOT MEASURED\n")
    assert "|" not in comment.replace(r"\|", "")
    assert ", recomputed from the ledger: " in comment


def test_a_regression_has_a_picture_of_the_runs_before() -> None:
    """Of five at least, beside its name alone; one that did not regress has none, nor has a quiet gate."""
    slower = build_comparison("test_a", "REGRESSED", 1.031, 1.026, 1.036)
    same = build_comparison("test_b", "UNCHANGED", 1.0, 0.99, 1.01)
    levels = (1.0, 1.0, 1.0, 1.5, 2.0)
    past = {one.benchmark.name: levels for one in (slower, same)}
    few = {slower.benchmark.name: levels[:4]}

    shown = render_comment(replace(build_report(slower, same), past=past))

    assert "| `test_a` ▁▁▁▅█ | " in shown
    assert "| `test_b` | " in shown
    assert "Bars beside a name are the benchmark's last runs before this gate" in shown
    assert shown == render_comment(replace(build_report(slower, same), past=past))
    for report in (replace(build_report(same), past=past), replace(build_report(slower, same), past=few)):
        assert "▁" not in render_comment(report)
        assert "Bars" not in render_comment(report)
