"""A gate's result and its counters fit a terminal of 80 columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from rendered import rendered
from synthetic import build_comparison, build_count, build_report

from perfkit.model import Benchmark, Metric
from perfkit.model.comparisons import (
    Comparison,
    ExactComparison,
    Explanation,
    GateReport,
    MovedCause,
    Need,
    Policy,
    Verdict,
    exit_code,
)
from perfkit.model.differences import Amount, Part, Section
from perfkit.report.gate.counters import counter_sections, counters_markdown
from perfkit.report.gate.decision import decision_lines
from perfkit.report.gate.markdown import render_comment
from perfkit.report.gate.terminal import gate_view
from perfkit.report.gate.wording import change_text, interval_text
from perfkit.report.names import short_names

A_SLOWER = build_comparison("test_a", "REGRESSED", 1.031, 1.026, 1.036)
NEED = Need(launches=12, seconds=21.34)
EXCUSED = replace(
    build_comparison("test_c", "INCONCLUSIVE", 1.015, 1.004, 1.026), excused_by='inconclusive = "pass"'
)
B_SAME = build_comparison("test_b", "UNCHANGED", 1.0004, 0.9961, 1.0051)


def _text(report: GateReport, *, colours: bool = False) -> str:
    return "".join(f"{line.rstrip()}\n" for line in rendered(gate_view(report), colours=colours).splitlines())


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
    golden = Path(__file__).parent / "golden_gate_view.txt"

    assert golden.read_text() == _text(report)
    assert 80 >= max(map(len, _text(report).splitlines()))


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


@pytest.mark.parametrize(
    ("verdict", "code"),
    [("REGRESSED", "1;31"), ("IMPROVED", "32"), ("UNCHANGED", "2"), ("INCONCLUSIVE", "33")],
)
def test_verdicts_have_colours(verdict: str, code: str) -> None:
    found = build_comparison("test_a", verdict, 1.0, 0.9, 1.1)  # type: ignore[arg-type]

    assert f"\x1b[{code}m{verdict}" in _text(build_report(found), colours=True)
    assert "\x1b" not in _text(build_report(found))


@pytest.mark.parametrize(
    ("ratio", "low", "high", "change", "interval"),
    [
        (1.031, 1.026, 1.036, "+3.1 %", "+2.6 to +3.6 %"),
        (1.0, 0.9961, 1.00512, "0.0 %", "-0.4 to +0.6 %"),
        (0.98, 0.97, 0.9999, "-2.0 %", "-3.0 to 0.0 %"),
        (2.5, 2.4, 2.6, "+150.0 %", "+140.0 to +160.0 %"),
        (12.34, 9.5, 13.0, "×12.3", "×9.5 to ×13.0"),
        (0.0129, 0.012, 0.0131, "×0.013", "×0.012 to ×0.013"),
    ],
)
def test_numbers_of_an_estimate(ratio: float, low: float, high: float, change: str, interval: str) -> None:
    estimate = build_comparison("test_a", "INCONCLUSIVE", ratio, low, high).estimate

    assert (change, interval) == (change_text(estimate), interval_text(estimate))


def test_many_benchmarks_that_were_not_reached_do_not_fill_the_table() -> None:
    many = (build_comparison(f"test_{number}", "NOT REACHED") for number in range(40))
    report = build_report(B_SAME, *many)

    for text in (_text(report), render_comment(report)):
        rows = [
            line for line in text.splitlines() if "NOT REACHED" in line and ("test_" in line or "and" in line)
        ]
        listed = [line for line in rows if "Besides" not in line]
        assert 13 == len(listed)
        assert "test_11" in listed[-2]
        assert "and 28 more" in listed[-1]
        assert "test_12" not in text


def _counted(*counts: ExactComparison) -> GateReport:
    return replace(build_report(), exact=counts, exit_code=exit_code(counts))


def test_what_was_accepted_is_part_of_the_decision() -> None:
    accepted = replace(A_SLOWER, accepted="wanted (Ada, 1234abcd)")
    same, grown = build_count("test_f", "operators", 10, 10), build_count("test_g", "operators", 10, 20)
    grown = replace(grown, accepted="wanted")
    lost = replace(build_count("test_g", "peak", 5, None), verdict="MISSING", accepted="wanted")

    (timed, *besides) = _decision(build_report(B_SAME, accepted))
    (counted, *_) = _decision(_counted(same, same, same, grown))
    (both, *_) = _decision(_counted(grown, lost))

    assert (
        "PASS: the benchmark did not become slower by more than 2 %,"
        " and test_a is 3.1 % slower (between 2.6 and 3.6 %), which was accepted."
    ) == timed
    assert "Besides: 1 REGRESSED (accepted)." == besides[0]
    assert (
        "PASS: none of 3 counts grew by more than is allowed,"
        " and 1 other grew and was accepted (test_g: operators dispatched, 10 to 20)."
    ) == counted
    assert (
        "PASS: 1 count grew and was accepted (test_g: operators dispatched, 10 to 20),"
        " and 1 count could not be counted on head and was accepted."
    ) == both


PROVEN = Policy(alpha=0.01, family=1, looks=(8,), fail_on="proven", noise_floor=0.005)


@pytest.mark.parametrize(
    ("report", "sentence", "others"),
    [
        (build_report(B_SAME, B_SAME), "PASS: none of 2 benchmarks became slower by more than 2 %.", []),
        (
            build_report(B_SAME, A_SLOWER, build_comparison("test_c", "TIMEOUT")),
            "FAIL: test_a is 3.1 % slower (between 2.6 and 3.6 %).",
            ["A slowdown of up to 2 % would pass.", "Besides: 1 TIMEOUT."],
        ),
        (
            build_report(
                *(build_comparison(f"test_{name}", "REGRESSED", 1.031, 1.026, 1.036) for name in "abcd"),
                build_comparison("test_e", "REGRESSED", 12.34, 9.5, 13.0, margin=0.05),
            ),
            (
                "FAIL: 5 of 5 benchmarks became slower: test_e is 12.3 times as slow (between 9.5 and 13.0"
                " times), test_a is 3.1 % slower (between 2.6 and 3.6 %), test_b is 3.1 % slower"
                " (between 2.6 and 3.6 %), and 2 more."
            ),
            ["A slowdown of up to their margins (2 to 5 %) would pass."],
        ),
        (
            replace(
                build_report(build_comparison("test_a", "REGRESSED", 1.012, 1.008, 1.016)), policy=PROVEN
            ),
            "FAIL: test_a is 1.2 % slower (between 0.8 and 1.6 %).",
            ['Only what is proven to be slower by more than 0.5 % fails (fail_on = "proven").'],
        ),
        (
            build_report(B_SAME, build_comparison("test_near", "INCONCLUSIVE", 1.015, 1.004, 1.026)),
            "UNDECIDED: 1 of 2 benchmarks needs more time (test_near, at most +2.6 %).",
            [],
        ),
        (
            build_report(
                build_comparison("test_d", "INCONCLUSIVE", 1.0, 0.0, math.inf),
                *(build_comparison(f"test_{number}", "NOT REACHED") for number in range(40)),
            ),
            (
                "UNDECIDED: 41 of 41 benchmarks need more time (test_d, nothing known yet; 40 were not"
                " reached in the budget of 120 s)."
            ),
            [],
        ),
        (
            build_report(build_comparison("test_c", "MISSING"), build_comparison("test_d", "CHANGED")),
            (
                "NOT MEASURED: 2 of 2 benchmarks could not be compared: test_c is missing in head, test_d was"
                " changed itself."
            ),
            [],
        ),
        (
            build_report(build_comparison("test_c", "NEW")),
            "NOT MEASURED: nothing was compared, since every benchmark is new.",
            ["Besides: 1 NEW."],
        ),
        (
            replace(build_report(B_SAME, notes=("another perfkit was imported",)), exit_code=4),
            "NOT MEASURED: the notes above give the reason.",
            [],
        ),
        (
            build_report(
                B_SAME,
                build_comparison("test_c", "CHANGED", accepted="wanted"),
                build_comparison("test_d", "REGRESSED", 1.1, 1.09, 1.2, gating=False),
                build_comparison("test_e", "IMPROVED", 0.8, 0.7, 0.9),
            ),
            "PASS: none of 2 benchmarks became slower by more than 2 %.",
            ["Besides: 1 REGRESSED (does not gate), 1 CHANGED (accepted), 1 IMPROVED."],
        ),
        (
            build_report(B_SAME, B_SAME, EXCUSED),
            (
                "PASS: none of 2 benchmarks became slower by more than 2 %, and 1 of 3 benchmarks is"
                ' undecided and let pass by inconclusive = "pass": test_c (at most +2.6 %).'
            ),
            [],
        ),
        (
            build_report(A_SLOWER, EXCUSED),
            "FAIL: test_a is 3.1 % slower (between 2.6 and 3.6 %).",
            ["A slowdown of up to 2 % would pass.", "Besides: 1 INCONCLUSIVE (let pass)."],
        ),
        (
            replace(build_report(B_SAME), exact=(build_count("test_b", "operators", 10, 20),), exit_code=1),
            "FAIL: 1 count grew by more than is allowed (test_b: operators dispatched, 10 to 20).",
            [],
        ),
        (
            replace(build_report(B_SAME), exact=(build_count("test_b", "operators", 10, 10),), exit_code=0),
            (
                "PASS: the benchmark did not become slower by more than 2 %, and the count did not grow by"
                " more than is allowed."
            ),
            [],
        ),
    ],
)
def test_the_decision_is_one_plain_sentence(report: GateReport, sentence: str, others: list[str]) -> None:
    *output, closing = _decision(report)
    of = " of those that gate" if {one.gating for one in report.comparisons} == {True, False} else ""

    assert [sentence, *others] == output
    assert closing == (
        f"It took 41.3 s and ends with exit code {report.exit_code}."
        f" The probability of any wrong verdict{of} is at most 1 %."
    )


def _decision(report: GateReport) -> list[str]:
    return decision_lines(report, short_names(one.benchmark.name for one in report.comparisons))


UNDECIDED = build_comparison("test_c", "INCONCLUSIVE", 1.0, 0.9, 1.1)


@pytest.mark.parametrize(
    ("report", "following"),
    [
        (
            build_report(A_SLOWER, build_comparison("test_d", "FAILED")),
            (
                "next: make it pass, or accept it with a reason, and likewise for 1 other:"
                ' perfkit accept test_a --reason "…"'
            ),
        ),
        (build_report(B_SAME), None),
        (build_report(EXCUSED), None),
        (build_report(UNDECIDED), "next: run the same command again, which continues from here"),
        (build_report(UNDECIDED, head_dirty=True), "next: run it again with a larger --budget"),
    ],
)
def test_the_sentence_comes_first_and_what_to_do_last(report: GateReport, following: str | None) -> None:
    sentence, *others = _decision(report)
    text = _text(report)

    word = sentence.partition(":")[0]
    assert " ".join(text.partition("\n\n")[0].split()) == sentence
    assert render_comment(report).split("\n")[2].startswith(word)
    last = " ".join([f"{word}.", *others, *([following] if following else [])])
    assert last == " ".join(text.rpartition("\n\n")[2].split())


def _typical(found: Comparison, *whole: float) -> Comparison:
    assert found.estimate is not None
    ratio, low, high = whole
    return replace(
        found,
        estimate=replace(found.estimate, calls="typical"),
        other=replace(found.estimate, ratio=ratio, low=low, high=high),
    )


def test_a_line_states_what_is_bounded_where_all_calls_may_be_slower() -> None:
    name = f"test_{'long_' * 12}name"
    same = _typical(build_comparison(name, "UNCHANGED", 1.0004, 0.9961, 1.0051), 1.018, 0.98, 1.0361)
    faster = _typical(build_comparison("test_c", "IMPROVED", 0.9, 0.85, 0.95), 1.0, 0.9, 1.114)
    report = build_report(same, faster, B_SAME)

    lines = _text(report).splitlines()
    assert ["typical call; all calls ≤ +3.7 %", "typical call; all calls ≤ +11.4 %"] == sorted(
        (line[line.index("typical call; all") :] for line in lines if "calls ≤" in line), key=len
    )
    assert 80 >= max(map(len, lines))
    reported = " ".join(_text(report).split())
    assert (
        "Times are of a typical call where calls are short; the mean of all calls, slow ones too, scatters"
        " more."
    ) in reported
    assert "PASS: none of 3 benchmarks became slower by more than 2 %." in reported
    assert (
        "That is in a typical call, for 2 of 3; the mean of all calls is known less well (at most +11.4 %,"
        " test_c)."
    ) in reported


def test_a_verdict_by_all_calls_is_reported() -> None:
    whole = build_comparison("test_rare", "REGRESSED", 1.05, 1.031, 1.07)
    typical = build_comparison("test_rare", "UNCHANGED", 1.001, 0.994, 1.008).estimate

    text = " ".join(_text(build_report(replace(whole, other=typical))).split())

    assert "+3.1 to +7.0 %" in text
    assert "that is all calls together; a typical one: +0.1 % (-0.6 to +0.8 %)" in text


def test_names_are_cut_to_what_reports_them_apart() -> None:
    names = ["x/a.py::test_one", "x/a.py::test_two[b/c::d]", "x/b.py::test_two[b/c::d]", "y/a.py::test_three"]
    shown = ["test_one", "a.py::test_two[b/c::d]", "b.py::test_two[b/c::d]", "test_three"]

    assert dict(zip(names, shown, strict=True)) == short_names(names)


def test_a_count_that_head_lacks_is_reported_with_what_to_type() -> None:
    lost = ExactComparison(
        benchmark=Benchmark(name="bench_a.py::test_a", version="v"),
        metric=Metric(name="operators", unit="1"),
        verdict="MISSING",
        margin=0.0,
        gating=True,
        base=7.0,
        head=None,
        message="not counted on head: compiled",
    )
    report = replace(build_report(), exact=(lost,), exit_code=4)

    words = " ".join(_text(report).split())
    assert ("MISSING test_a: operators dispatched (base: 7): not counted on head: compiled") in words
    assert words.endswith('accept it with a reason: perfkit accept test_a --reason "…"')
    assert "NOT MEASURED: 1 count that decides could not be counted on head" in words


def test_a_gate_against_a_release_states_both() -> None:
    release = replace(build_report(A_SLOWER), release="v1.2")
    report = replace(build_report(B_SAME), against=release)
    both = (
        "PASS against its base, FAIL against v1.2: exit code 1 for both. Each had its own"
        " budget, and its own probability of any wrong verdict: at most 1 %, for both together at most 2 %."
    )

    text, comment = _text(report), render_comment(report)

    words = " ".join(text.split())
    assert words.endswith(both)
    assert ", against v1.2 base aaaaaaaaaa" in words
    assert "PASS: the benchmark did not become slower" in words
    assert "FAIL against v1.2: test_a is 3.1 % slower" in words
    assert words.index("by itself ends with exit code 0") < words.index("by itself ends with exit code 1")
    assert 80 >= max(map(len, text.splitlines()))
    assert both == comment.splitlines()[0]
    assert ["## perfkit gate: PASS", "## perfkit gate against v1.2: FAIL"] == [
        line for line in comment.splitlines() if line.startswith("## ")
    ]


def test_the_result_of_thousands_of_benchmarks_fits_a_screen_or_two() -> None:
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

    assert len(lines) <= 60
    assert any("test_it[4321]" in line and "REGRESSED" in line for line in lines)
    assert sum(line.strip().startswith("tests/test_") for line in lines) >= 5
    assert any("35 more files: " in line for line in lines)


@pytest.mark.parametrize(
    ("estimate", "reported"),
    [
        ((1.1, 0.3, 4.4e37), "×0.3 to unknown"),
        ((12.2, 11.8, 12.6), "×11.8 to ×12.6"),
        ((0.02, 0.001, 0.5), "unknown to ×0.5"),
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
