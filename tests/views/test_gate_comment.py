"""A gate's result is rendered as a pull-request comment."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from repositories import Repository
from synthetic import build_comparison, build_count, build_report

from perfkit.model import Metric
from perfkit.model.comparisons import Explanation, GateReport, Need, exit_code
from perfkit.model.differences import Amount, Part, Section
from perfkit.repo.trailers import accepted_in
from perfkit.report.gate.markdown import render_comment


def test_the_whole_comment_is_as_it_was() -> None:
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


def test_uncommitted_changes_cannot_be_reproduced() -> None:
    same = build_comparison("test_a", "UNCHANGED", 1.0, 0.99, 1.01)
    command = f"`perfkit gate --base {'a' * 40} --head {'b' * 40} --margin 2%`"

    assert command in render_comment(build_report(same))
    dirty = render_comment(build_report(same, head_dirty=True))
    assert "perfkit gate --base" not in dirty
    assert f"head `{'b' * 40}` (Change \\| more things) with uncommitted changes" in dirty


def test_a_regression_has_a_picture_of_the_runs_before() -> None:
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


def _what_to_do(report: GateReport) -> list[str]:
    _, _, reported = render_comment(report).partition("**What to do:** ")
    return reported.partition("\n\n")[0].split("\\\n")


def test_it_states_what_to_do() -> None:
    slower = build_comparison("test_a", "REGRESSED", 1.031, 1.026, 1.036)
    same = build_comparison("test_b", "UNCHANGED", 1.0, 0.99, 1.01)
    grown = build_count("test_f", "operators", 10, 20)
    of_counts = replace(
        build_report(), exact=(grown, replace(grown, metric=Metric(name="peak", unit="B", exact=True)))
    )
    of_counts = replace(of_counts, exit_code=exit_code(of_counts.exact))
    look = "do not merge yet: look at what is named below, and push again."
    wanted = "If it is meant to be so, give a reason, and it passes:"
    commit = "`git commit --allow-empty -m 'Let it pass' --trailer 'Perf-Accept: {}: REASON' && git push`"

    assert ["nothing; for all that was measured, this can be merged."] == _what_to_do(build_report(same))
    assert [look, wanted, commit.format("test_a")] == (_what_to_do(build_report(slower, same)))
    assert [
        "do not merge yet: run it again, which goes on where it ended, or give it more seconds by `--budget`."
    ] == _what_to_do(build_report(build_comparison("test_c", "INCONCLUSIVE", 1.0, 0.9, 1.1)))
    assert [
        "do not merge yet: mend the lines named below, in the code or in the benchmark, and push again.",
        "To merge it without comparing them, give a reason, and it passes:",
        commit.format("test_c"),
    ] == _what_to_do(build_report(build_comparison("test_c", "FAILED", message="head: ValueError")))
    assert [look, wanted, commit.format("test_f")] == _what_to_do(of_counts)


def test_all_that_fails_passes_by_one_commit() -> None:
    slower = [build_comparison(f"test_{name}", "REGRESSED", 1.031, 1.026, 1.036) for name in "abcd"]

    _, _, typed = _what_to_do(build_report(*slower))

    assert 1 == typed.count("git commit")
    assert 4 == typed.count("--trailer 'Perf-Accept: test_")


def test_uncommitted_changes_are_accepted_by_a_command() -> None:
    slower = build_comparison("test_a", "REGRESSED", 1.031, 1.026, 1.036)

    _, _, typed = _what_to_do(build_report(slower, head_dirty=True))

    assert '`perfkit accept test_a --reason "…"`' == typed


def test_what_to_type_is_read_as_an_acceptance(repository: Repository) -> None:
    base = repository.commit({"a.py": "1"})
    slower = build_comparison("test_a[it's: 1]", "REGRESSED", 1.031, 1.026, 1.036)
    _, _, typed = _what_to_do(build_report(slower))
    command = typed.partition(" && ")[0].strip("` ").replace("REASON", "it has to be")

    subprocess.run(["bash", "-c", command], cwd=repository.root, check=True, capture_output=True)

    (accepted,), warnings = accepted_in(repository.root, base, repository.git.head.commit.hexsha)
    assert ("test_a[it's: 1]", "it has to be", ()) == (accepted.benchmark, accepted.reason, warnings)
