"""A gate's result and its counters fit a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rendered import check_golden, rendered
from synthetic import build_comparison, build_count, build_report

from perfkit.invocation import keep_ledger, with_follow_ups
from perfkit.model.comparisons import (
    ExactComparison,
    Explanation,
    GateReport,
    MeasuringEdit,
    MovedCause,
    Need,
    Policy,
    Verdict,
)
from perfkit.model.profiles import Amount, Part, Section
from perfkit.report.gate.counters import counter_sections, counters_markdown, moved_lines
from perfkit.report.gate.decision import headline, larger_budget_s, next_step, reproducing_command
from perfkit.report.gate.terminal import gate_view
from perfkit.report.gate.wording import change_text, interval_text
from perfkit.report.gate.wording import shown as shown_verdict
from perfkit.report.names import short_names

A_SLOWER = build_comparison("test_a", "REGRESSED", 1.031, 1.026, 1.036)
A_NEAR = build_comparison("test_near", "INCONCLUSIVE", 1.015, 1.004, 1.026)
NEED = Need(launches=12, seconds=21.34)
B_SAME = build_comparison("test_b", "UNCHANGED", 1.0004, 0.9961, 1.0051)

LONG = "src/package/subpackage/tests/helpers/inputs.py"
EDITS = (
    MeasuringEdit(
        kind="work", path="tests/test_a.py::test_a", what="12 % of the old one's work", effect="in doubt"
    ),
    MeasuringEdit(kind="helper", path=LONG, what="+3 -12 lines", effect="each side's own"),
    MeasuringEdit(
        kind="marker", path="tests/test_a.py::test_a", what="gate: not set -> False", effect="base's decide"
    ),
    MeasuringEdit(
        kind="perfkit", path="pyproject.toml", what='margin: "2%" -> "50%"', effect="base's decide"
    ),
    MeasuringEdit(kind="acceptance", path="Perf-Accept", what="test_a: It is | wanted", effect="accepts it"),
    MeasuringEdit(
        kind="pin",
        path="requirements.txt",
        what="torch==2.12.0 --hash=sha256:4a4c -> torch==2.13.0 --hash=sha256:1b1c",
        effect="not installed",
    ),
    MeasuringEdit(kind="CI", path=".github/workflows/perf.yml", what="removed", effect="none in this gate"),
)


def test_numbers_of_an_asv_suite_are_no_benchmarks_that_became_slower() -> None:
    numbers = ("b.py::track_size", "b.py::Cached.peakmem_fill[64]", "b.py::mem_list")
    found = [
        *(build_comparison(f"b.py::time_{name}", "REGRESSED", 1.03, 1.026, 1.036) for name in "ab"),
        replace(build_comparison("b.py::time_c", "UNCHANGED", 1.0, 0.99, 1.01), verdict="SAME CODE"),
        *(
            replace(build_comparison(name, "UNCHANGED", 1.0, 1.0, 1.0), verdict="SAME CODE")
            for name in numbers
        ),
    ]
    assert "2 of 3 benchmarks" in headline(build_report(*found), None)


def _text(report: GateReport, *, colours: bool = False, verbose: bool = False) -> str:
    view = rendered(gate_view(report, verbose=verbose), colours=colours)
    return "".join(f"{line.rstrip()}\n" for line in view.splitlines())


def test_the_whole_view_is_as_it_was() -> None:
    report = build_report(
        B_SAME,
        A_SLOWER,
        replace(build_comparison("test_near[200-5]", "INCONCLUSIVE", 1.015, 1.004, 1.026), need=NEED),
        build_comparison("test_loader", "IMPROVED", 0.0129, 0.012, 0.0131, unit="preloaders", margin=0.05),
        build_comparison("bench_b.py::test_added", "NEW"),
        build_comparison("test_gone", "MISSING"),
        build_comparison("test_raises[a|b]", "FAILED", message="head: ValueError: no | such `thing`"),
        build_comparison("test_source", "CHANGED", accepted="now 200 rows (Ada, 1234abcd)"),
        build_comparison("test_noisy", "REGRESSED", 1.2, 1.1, 1.3, gating=False),
        notes=("pytest-xdist was switched off", "loaded by no benchmark: src/a.py"),
        explanations=(_explanation(),),
    )
    report = replace(report, measuring=EDITS)
    texts = _text(report), _text(report, verbose=True)
    check_golden("gate_view", *texts)
    assert 80 >= max(len(line) for text in texts for line in text.splitlines())


def _explanation() -> Explanation:
    whole = Amount(base_s=0.0112, head_s=0.0116)
    moved = Part(
        name="distances",
        kind="own code",
        place="src/loss.py:31",
        amount=Amount(base_s=0.0012, head_s=0.0016, base_calls=1.0, head_calls=1.0),
        through=(
            Part(
                name="cdist",
                kind="library",
                amount=Amount(base_s=0.0, head_s=0.0004, base_calls=0.0, head_calls=2.0),
            ),
        ),
    )
    same = Part(name="rest", kind="own code", place="src/loss.py:9", amount=Amount(base_s=0.01, head_s=0.01))
    return Explanation(
        benchmark=A_SLOWER.benchmark.name,
        section=Section(title="functions", whole=whole, parts=(moved, same)),
        findings=("distances (src/loss.py:31) calls Tensor.item 2 times a call, on base 0",),
    )


PROVEN = Policy(alpha=0.01, family=1, looks=(8,), fail_on="proven", noise_floor=0.005)
EXCUSED = replace(
    build_comparison("test_c", "INCONCLUSIVE", 1.015, 1.004, 1.026), excused_by='inconclusive = "pass"'
)
UNDECIDED = build_comparison("test_c", "INCONCLUSIVE", 1.0, 0.9, 1.1)
DECIDED = (
    build_report(B_SAME, B_SAME),
    build_report(B_SAME, A_SLOWER, build_comparison("test_c", "TIMEOUT")),
    build_report(
        *(build_comparison(f"test_{name}", "REGRESSED", 1.031, 1.026, 1.036) for name in "abcd"),
        build_comparison("test_e", "REGRESSED", 12.34, 9.5, 13.0, margin=0.05),
    ),
    replace(build_report(build_comparison("test_a", "REGRESSED", 1.012, 1.008, 1.016)), policy=PROVEN),
    build_report(B_SAME, build_comparison("test_near", "INCONCLUSIVE", 1.015, 1.004, 1.026)),
    build_report(
        build_comparison("test_d", "INCONCLUSIVE", 1.0, 0.0, math.inf),
        *(build_comparison(f"test_{number}", "NOT REACHED") for number in range(40)),
    ),
    build_report(build_comparison("test_c", "MISSING"), build_comparison("test_d", "CHANGED")),
    build_report(build_comparison("test_c", "NEW")),
    replace(build_report(B_SAME, notes=("another perfkit was imported",)), exit_code=4),
    build_report(
        B_SAME,
        build_comparison("test_c", "CHANGED", accepted="wanted"),
        build_comparison("test_d", "REGRESSED", 1.1, 1.09, 1.2, gating=False),
        build_comparison("test_e", "IMPROVED", 0.8, 0.7, 0.9),
    ),
    build_report(B_SAME, B_SAME, EXCUSED),
    build_report(A_SLOWER, EXCUSED),
    replace(build_report(B_SAME), exact=(build_count("test_b", "operators", 10, 20),), exit_code=1),
    replace(build_report(B_SAME), exact=(build_count("test_b", "operators", 10, 10),), exit_code=0),
    *map(build_report, (EXCUSED, UNDECIDED)),
    build_report(UNDECIDED, head_dirty=True),
    replace(build_report(B_SAME), against=replace(build_report(A_SLOWER), release="v1.2")),
)


def test_each_decision_is_worded_as_it_was() -> None:
    check_golden("decisions", *(_text(report) for report in DECIDED))


def test_each_short_result_has_its_exit_code_and_how_far_counts_may_grow() -> None:
    alone = [one for one in DECIDED if one.against is None and not one.release]
    assert [] == [one for one in alone if f"exit code {one.exit_code}, " not in _text(one)]

    count = replace(build_count("test_b", "operators", 10, 20), margin=0.05)
    grown = replace(build_report(B_SAME), exact=(count,), exit_code=1)
    assert "5 %" in _text(grown).partition("\n\n")[0]
    assert "5 %" not in _text(replace(grown, exact=(replace(count, margin=0.0),))).partition("(")[0]


def test_a_gate_that_had_time_for_nothing_but_counts_continues_with_times() -> None:
    report = build_report(build_comparison("test_a", "NOT REACHED"))
    counted = replace(report, exact=(build_count("test_a", "operators", 10, 10),))

    command = reproducing_command(counted)

    assert command is not None
    assert "--exact-only" not in command


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("REGRESSED", "1;31"), ("IMPROVED", "32"), ("UNCHANGED", "2"), ("NOT REACHED", "33")],
)
def test_verdicts_have_colours(verdict: str, code: str) -> None:
    found = build_comparison("test_a", verdict, 1.0, 0.9, 1.1)  # type: ignore[arg-type]

    assert f"\x1b[{code}m{verdict}" in _text(build_report(found), colours=True, verbose=True)
    assert "\x1b" not in _text(build_report(found))


@pytest.mark.parametrize(
    ("ratio", "low", "high", "change", "interval"),
    [
        (1.031, 1.026, 1.036, "+3.1 %", "+2.6 to +3.6 %"),
        (1.0, 0.9961, 1.00512, "0.0 %", "-0.4 to +0.6 %"),
        (0.98, 0.97, 0.9999, "-2.0 %", "-3.0 to 0.0 %"),
        (1.9, 1.8, 2.6, "+90.0 %", "+80.0 to +160.0 %"),
        (2.5, 2.4, 2.6, "×2.5", "×2.4 to ×2.6"),
        (12.34, 9.5, 13.0, "×12.3", "×9.5 to ×13.0"),
        (0.0129, 0.012, 0.0131, "×0.013", "×0.012 to ×0.013"),
    ],
)
def test_numbers_of_an_estimate(ratio: float, low: float, high: float, change: str, interval: str) -> None:
    estimate = build_comparison("test_a", "INCONCLUSIVE", ratio, low, high).estimate

    assert (change, interval) == (change_text(estimate), interval_text(estimate))


def test_a_verdict_by_all_calls_is_reported() -> None:
    whole = build_comparison("test_rare", "REGRESSED", 1.05, 1.031, 1.07)
    typical = build_comparison("test_rare", "UNCHANGED", 1.001, 0.994, 1.008).estimate

    text = " ".join(_text(build_report(replace(whole, other=typical)), verbose=True).split())

    assert "+3.1 to +7.0 %" in text
    assert "lower quartile: +0.1 % (-0.6 to +0.8 %)" in text


@pytest.mark.parametrize(
    ("left_s", "dirty", "budget_s"),
    [(50.0, False, None), (500.0, False, 500), (50.0, True, 170), (500.0, True, 620)],
)
def test_an_undecided_gate_names_a_larger_budget_where_its_own_does_not_decide(
    left_s: float, budget_s: int | None, *, dirty: bool
) -> None:
    report = replace(build_report(A_NEAR, head_dirty=dirty), left_s=left_s)

    step, command = next_step(report, {})

    assert budget_s == larger_budget_s(report)
    assert (budget_s is not None) == ("--budget" in step)
    assert ("continues from here" in step) != dirty
    assert command is None


def test_what_was_not_reached_takes_as_long_as_what_was() -> None:
    missed = [build_comparison(f"test_{number}", "NOT REACHED") for number in range(6)]
    reached = build_report(A_NEAR, *missed)
    none = build_report(*missed)

    # The budget of 120 s was enough to begin one, and left that undecided as well.
    assert larger_budget_s(reached) == 7 * reached.budget_s
    assert (larger_budget_s(none) or 0) > none.budget_s
    command = reproducing_command(reached, again=True)
    assert command is not None
    assert f"--budget {larger_budget_s(reached)}" in command


def test_launches_of_unknown_length_take_as_long_as_those_that_were_made() -> None:
    # As when verdicts are recomputed: 12 launches took the budget of 120 s.
    report = build_report(replace(A_NEAR, need=Need(launches=90)))

    assert larger_budget_s(report) == 900


def test_commands_to_paste_name_the_ledger_that_was_given() -> None:
    keep_ledger("my ledger")
    try:
        text = " ".join(_text(build_report(A_SLOWER)).replace("\\", "").split())
        messages = [
            *map(with_follow_ups, ('no run; see "perfkit ledger list"', '`perfkit accept A --reason "why"`'))
        ]
    finally:
        keep_ledger(None)

    assert "perfkit ledger judge 4e596ef1 --verbose --ledger 'my ledger'" in text
    assert "perfkit accept test_a --commit bbbbbbbbbb --reason \"…\" --ledger 'my ledger'" in text
    assert [
        "no run; see \"perfkit ledger list --ledger 'my ledger'\"",
        "`perfkit accept A --reason \"why\" --ledger 'my ledger'`",
    ] == messages


def test_a_pass_by_typical_calls_shows_the_limit_that_is_judged() -> None:
    passed = build_comparison("test_a", "UNCHANGED", 1.001, 0.99, 1.013)
    assert passed.estimate is not None
    judged, whole = replace(passed.estimate, calls="typical"), replace(passed.estimate, high=1.057)

    text = " ".join(_text(build_report(replace(passed, estimate=judged, other=whole))).split())

    assert text.startswith("PASS")
    assert "up to +5.7 %" in text


def test_a_failed_gate_has_one_next_command() -> None:
    near = replace(build_comparison("test_near", "INCONCLUSIVE", 1.015, 1.004, 1.026), need=NEED)

    text = _text(build_report(A_SLOWER, near))

    assert 1 == text.count("next: ")
    assert "undecided: test_near" in text


def test_names_are_cut_to_what_reports_them_apart() -> None:
    names = ["x/a.py::test_one", "x/a.py::test_two[b/c::d]", "x/b.py::test_two[b/c::d]", "y/a.py::test_three"]
    shown = ["test_one", "a.py::test_two[b/c::d]", "b.py::test_two[b/c::d]", "test_three"]

    assert dict(zip(names, shown, strict=True)) == short_names(names)


def test_the_result_of_thousands_of_benchmarks_fits_25_lines() -> None:
    verdicts: Sequence[Verdict] = ("UNCHANGED", "INCONCLUSIVE", "NOT REACHED", "REGRESSED")
    found = [
        build_comparison(
            f"tests/test_{number % 40}.py::test_it[{number}]",
            verdicts[3 if number == 4321 else number % 3],
            1.0,
            0.99,
            1.01,
        )
        for number in range(5000)
    ]
    report = replace(
        build_report(*found),
        exit_code=1,
        notes=tuple(f"note {number}" for number in range(100)),
        exact=tuple(
            build_count(f"test_{number}", "operators", 1.0, float(number)) for number in range(2, 900)
        ),
    )

    lines = _text(report).splitlines()

    assert len(lines) <= 25
    assert any("test_it[4321]" in line and "REGRESSED" in line for line in lines)
    assert any("1667 UNCHANGED" in line for line in lines)


@pytest.mark.parametrize(
    ("estimate", "reported"),
    [
        ((1.1, 0.3, 4.4e37), "×0.3 or more"),
        ((12.2, 11.8, 12.6), "×11.8 to ×12.6"),
        ((0.02, 0.001, 0.5), "×0.5 or less"),
        ((1.1, 1e-9, 4.4e37), "unknown"),
    ],
)
def test_a_limit_that_states_nothing_is_unknown(estimate: tuple[float, float, float], reported: str) -> None:
    assert reported == interval_text(build_comparison("test_a", "INCONCLUSIVE", *estimate).estimate)


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
    texts = [rendered(section, width) for section in counter_sections(exact)]
    return [line.rstrip() for text in texts for line in text.splitlines()]


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


@pytest.mark.parametrize(("margin", "limit"), [(0.05, "16.0 MiB"), (0.16, "16.0 MiB"), (1.6, "160 MiB")])
def test_memory_that_may_grow_has_the_limit_it_was_judged_by(margin: float, limit: str) -> None:
    mib = 1 << 20
    one = build_count("test_f", "peak_resident", 100 * mib, 110 * mib, unit="B", exact=False)

    output = " ".join(" ".join(_lines([replace(one, verdict="UNCHANGED", margin=margin)])).split())

    assert f"at most 100 MiB on base, 110 MiB on head, where up to {limit} more passes" in output


def test_operators_that_did_about_as_much_are_named_together() -> None:
    causes = (_cause("aten::item", 13, 99), _cause("aten::eq", 13, 99), _cause("aten::sum", 13, 1))
    alone = (_cause("aten::item", 13, 99), _cause("aten::eq", 13, 20))

    (both,), (one,) = (
        [*moved_lines([build_count("test_f", "operators", 9, 208, *found)])] for found in (causes, alone)
    )

    assert ", by aten::item and aten::eq (" in both
    assert "aten::sum" not in both
    assert "aten::eq" not in one


def test_a_comment_has_one_table() -> None:
    folded = counters_markdown(FOUR_SIZES)
    assert "| `test_nearest[32-euclidean]` and 3 more like it | operators dispatched | 64 | 96 |" in folded
    assert 4 == folded.count("| `test_nearest")
    assert 1 == folded.count("aten::sub")
    blocking = counters_markdown([build_count("test_f", "operators", 10, 20)])
    assert "| `test_f` |" in blocking.partition("<details>")[0]
    same = counters_markdown([build_count("test_f", "operators", 10, 10)])
    assert "<summary>Counts of what a call does: none moved, none fails</summary>" in same
    assert "- 1 count of 1 the same to the digit on both sides" in same
    assert "|" not in same


@pytest.mark.parametrize("width", [80, 40])
@pytest.mark.parametrize(("verdict", "code"), [("INCONCLUSIVE", 3), ("REGRESSED", 1), ("IMPROVED", 0)])
def test_long_names_leave_room_for_their_figures(verdict: Verdict, code: int, width: int) -> None:
    names = [f"bench_a.py::test_it[{number}-{'x' * (80 + 20 * number)}]" for number in range(12)]
    found = [build_comparison(name, verdict, 1.05, 1.01, 1.091) for name in names]
    report = replace(build_report(*(replace(one, need=NEED) for one in found)), exit_code=code)

    lines = rendered(gate_view(report), width).splitlines()

    text = "".join(line.rstrip() for line in lines)
    shown = [name for name in names if name.removeprefix("bench_a.py::") in text]
    assert len(lines) <= 25
    assert "[0-xxx" not in lines[0]
    assert 1 <= len(shown) == text.count(f"+1.0 to +9.1 % {shown_verdict(verdict)}")
    assert "--verbose" in text
    assert (code == 0) != ("next: " in text)
