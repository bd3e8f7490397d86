"""A gate's result is a pull-request comment, and annotations at the lines that are named."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from rendered import check_golden, rendered
from repositories import Repository
from synthetic import build_comparison, build_count, build_report

from perfkit.model import Environment, Side
from perfkit.model.comparisons import Explanation, GateReport, MovedCause, Need
from perfkit.model.profiles import Amount, Part, Section
from perfkit.repo.trailers import accepted_in
from perfkit.report.gate.decision import next_step
from perfkit.report.gate.markdown import annotation_lines, render_comment, render_without_report
from perfkit.report.gate.terminal import gate_view


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

    check_golden("gate_comment", render_comment(report))


def test_uncommitted_changes_cannot_be_reproduced() -> None:
    same = build_comparison("test_a", "UNCHANGED", 1.0, 0.99, 1.01)
    command = f"`perfkit gate --base {'a' * 40} --head {'b' * 40} --margin 2% --budget 120`"

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


def test_what_to_type_is_read_as_an_acceptance(repository: Repository) -> None:
    base = repository.commit({"a.py": "1"})
    slower = build_comparison("test_a[it's: 1]", "REGRESSED", 1.031, 1.026, 1.036)
    _, _, typed = _what_to_do(build_report(slower))
    command = typed.partition(" && ")[0].strip("` ").replace("REASON", "it has to be")

    subprocess.run(["bash", "-c", command], cwd=repository.root, check=True, capture_output=True)

    (accepted,), warnings = accepted_in(repository.root, base, repository.git.head.commit.hexsha)
    assert ("test_a[it's: 1]", "it has to be", ()) == (accepted.benchmark, accepted.reason, warnings)


def test_a_slowdown_by_packages_names_the_search_among_them() -> None:
    slower = build_comparison("test_a", "REGRESSED", 1.031, 1.026, 1.036)
    base, head = (
        Environment(env_id=version, facts={"python": "3.11", "torch": version, "package one": version})
        for version in ("1.0", "2.0")
    )
    wanted: dict[Side, tuple[str, ...]] = {"base": ("old.lock",), "head": ("new.lock",)}
    report = replace(build_report(slower), base_environment=base, environment=head, wanted=wanted)
    search = "perfkit bisect --base-with old.lock --head-with new.lock"
    search += f" --benchmark {slower.benchmark.name}"

    assert search == next_step(report, {})[1]
    broken = search.replace(" --benchmark", " \\\n    --benchmark")
    assert broken in rendered(gate_view(report))
    assert f"`{search}`" == _what_to_do(report)[-1]
    alone = replace(head, facts={**base.facts, "torch": "2.0"})
    assert next_step(replace(report, environment=alone), {}) == ("", None)


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
    assert "look first at forward, head, `src/a,b.py:7`" in render_comment(report)


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
    assert "see [its output](https://example.test/1)" in without
    assert "It is not known whether this change makes them slower." in failed
