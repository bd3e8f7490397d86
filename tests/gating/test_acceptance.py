"""An acceptance covers the finding that was meant, and exit codes follow from what is left."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from synthetic import build_comparison, build_count

from perfkit.errors import EXIT_PASS
from perfkit.gating.accept import mark, unused_notes
from perfkit.model import COLD_START, Benchmark, Metric
from perfkit.model.comparisons import BLOCKING, Acceptance, Comparison, ExactComparison, Verdict, exit_code
from perfkit.model.results import meant_by

NAME = "benchmarks/bench_a.py::test_a"
BLOCKING_VERDICTS = sorted(BLOCKING)


def _comparison(
    verdict: Verdict, *, name: str = NAME, low: float | None = None, gating: bool = True
) -> Comparison:
    interval = () if low is None else (low + 0.01, low, low + 0.02)
    return build_comparison(name, verdict, *interval, gating=gating)


def _acceptance(
    verdict: Verdict | None, *, benchmark: str = NAME, ratio: float | None = None, reason: str = "Wanted"
) -> Acceptance:
    return Acceptance(
        benchmark=benchmark,
        reason=reason,
        commit="1a2b3c4d" * 5,
        author="A. Tester",
        verdict=verdict,
        ratio=ratio,
    )


@pytest.mark.parametrize("verdict", BLOCKING_VERDICTS)
@pytest.mark.parametrize("accepted", BLOCKING_VERDICTS)
def test_only_the_kind_that_was_accepted_is_covered(verdict: Verdict, accepted: Verdict) -> None:
    (found,) = mark([_comparison(verdict)], [_acceptance(accepted)])

    assert ("Wanted (A. Tester, 1a2b3c4d)" if verdict == accepted else None) == found.accepted


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_what_blocks_is_what_does_not_pass(verdict: Verdict) -> None:
    comparison = _comparison(verdict)

    assert (verdict in BLOCKING) == (exit_code([comparison]) != EXIT_PASS)
    assert EXIT_PASS == exit_code(mark([comparison], [_acceptance(verdict)]))


@pytest.mark.parametrize("verdict", get_args(Verdict))
def test_a_word_for_any_finding_covers_what_blocks(verdict: Verdict) -> None:
    (found,) = mark([_comparison(verdict)], [_acceptance(None)])

    assert (
        verdict
        in {
            "REGRESSED",
            "OTHER RESULT",
            "INCONCLUSIVE",
            "NOT REACHED",
            "MISSING",
            "CHANGED",
            "FAILED",
            "TIMEOUT",
            "NEW",
            "SKIPPED",
        }
    ) == (found.accepted is not None)


@pytest.mark.parametrize(
    ("ratio", "low", "covered"),
    [(1.08, 1.03, True), (1.08, 1.08, True), (1.08, 1.09, False), (None, 1.5, True), (1.08, None, True)],
)
def test_a_clearly_worse_regression_is_not_covered(
    ratio: float | None, low: float | None, *, covered: bool
) -> None:
    (found,) = mark([_comparison("REGRESSED", low=low)], [_acceptance("REGRESSED", ratio=ratio)])

    assert covered == (found.accepted is not None)


def test_the_end_of_a_node_id_must_name_one_benchmark() -> None:
    comparisons = [_comparison("FAILED", name=f"{folder}/bench_a.py::test_a") for folder in "xy"]
    vague, clear = (
        _acceptance(None, benchmark=name) for name in ("bench_a.py::test_a", "x/bench_a.py::test_a")
    )

    found = mark(comparisons, [vague, clear])

    assert [True, False] == [comparison.accepted is not None for comparison in found]
    (note,) = unused_notes(comparisons, [vague, clear])
    assert "it could mean x/bench_a.py::test_a or y/bench_a.py::test_a" in note


def test_an_acceptance_of_counts_alone_does_not_let_a_time_pass() -> None:
    comparison = _comparison("REGRESSED", low=1.2)
    of_counts = replace(_acceptance("REGRESSED"), counts={"operators": 200.0})

    (found,) = mark([comparison], [of_counts])
    (note,) = unused_notes([comparison], [of_counts])

    assert found.accepted is None
    assert "its counts alone were accepted, and this gate counted none of it" in note


def test_a_count_that_was_accepted_covers_no_other_benchmark_and_no_larger_one() -> None:
    grown = [build_count(f"test_{letter}", "operators", 100, 200) for letter in "abc"]
    word = _acceptance("REGRESSED", benchmark="bench_a.py::test_b")

    for accepted in (199.0, 200.0, 250.0):
        found = mark(grown, [replace(word, counts={"operators": accepted})])
        assert [False, accepted >= 200, False] == [one.accepted is not None for one in found]


def test_a_first_call_that_was_accepted_may_scatter() -> None:
    first = replace(build_count("test_a", "cold start", 0.01, 0.2), metric=COLD_START, margin=0.5)
    word = _acceptance("REGRESSED", benchmark="bench_a.py::test_a")

    for accepted, covered in ((0.15, True), (0.1, False)):
        (found,) = mark([first], [replace(word, counts={"cold start": accepted})])
        assert covered == (found.accepted is not None)


@pytest.mark.parametrize("verdict", ["TIMEOUT", "FAILED"])
def test_a_failure_whose_counts_grew_too_is_covered(verdict: Verdict) -> None:
    word = replace(_acceptance(verdict), counts={"operators": 200.0})
    (found,) = mark([_comparison(verdict)], [word])

    assert word.text == found.accepted
    assert () == unused_notes([_comparison(verdict)], [word])


@pytest.mark.parametrize(
    ("comparison", "expected"),
    [
        (_comparison("UNCHANGED"), "it is UNCHANGED now"),
        (_comparison("MISSING"), "it is MISSING now"),
        (_comparison("REGRESSED", gating=False), "it does not gate"),
        (_comparison("REGRESSED", low=1.2), "it is clearly slower now than the ×1.083 that was accepted"),
        (_comparison("REGRESSED", name="bench_b.py::test_b"), "this gate has no such benchmark"),
    ],
)
def test_an_acceptance_that_covers_nothing_is_reported(comparison: Comparison, expected: str) -> None:
    notes = unused_notes([comparison], [_acceptance("REGRESSED", ratio=1.083)])

    (note,) = notes
    assert f"accepted but not found: {NAME} (REGRESSED): {expected};" in note
    assert note.endswith("; the reason given was: Wanted (A. Tester, 1a2b3c4d)")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a/b.py::C::test_x", ("a/b.py::C::test_x",)),
        ("b.py::C::test_x", ("a/b.py::C::test_x",)),
        ("test_x", ("a/b.py::C::test_x",)),
        ("x", ()),
        ("b.py::test_y", ("b.py::test_y",)),
        ("test_y", ("b.py::test_y", "a/b.py::test_y")),
    ],
)
def test_an_end_begins_at_a_part_of_the_node_id(text: str, meant: tuple[str, ...]) -> None:
    assert meant == meant_by(text, ["a/b.py::C::test_x", "b.py::test_y", "a/b.py::test_y"])


def _found(
    *verdicts: Verdict, gating: bool = True, accepted: str | None = None, excused_by: str | None = None
) -> list[Comparison]:
    benchmark = Benchmark(name="bench.py::test", version="v1")
    return [
        Comparison(
            benchmark=benchmark,
            verdict=verdict,
            margin=0.02,
            gating=gating,
            accepted=accepted,
            excused_by=excused_by,
        )
        for verdict in verdicts
    ]


@pytest.mark.parametrize(
    ("code", "verdicts"),
    [
        (0, ["NEW", "IMPROVED", "UNCHANGED"]),
        (1, ["REGRESSED"]),
        (3, ["INCONCLUSIVE"]),
        (4, ["MISSING"]),
        (4, ["CHANGED"]),
        (4, ["FAILED"]),
        (4, ["TIMEOUT"]),
        (4, ["NEW", "NEW"]),
        (4, ["SKIPPED"]),
        (4, ["NEW", "SKIPPED"]),
        (0, ["UNCHANGED", "SKIPPED"]),
        (1, ["UNCHANGED", "INCONCLUSIVE", "FAILED", "REGRESSED"]),
        (4, ["UNCHANGED", "INCONCLUSIVE", "MISSING"]),
        (3, ["UNCHANGED", "INCONCLUSIVE", "NEW"]),
    ],
)
def test_the_worst_finding_decides(code: int, verdicts: list[Verdict]) -> None:
    assert code == exit_code(_found(*verdicts))
    assert code == exit_code(_found(*verdicts[::-1]))


@pytest.mark.parametrize("verdict", ["REGRESSED", "INCONCLUSIVE", "MISSING", "CHANGED", "FAILED", "TIMEOUT"])
def test_accepted_and_advisory_findings_pass(verdict: Verdict) -> None:
    assert 0 == exit_code(_found("UNCHANGED") + _found(verdict, accepted="known"))
    assert 0 == exit_code(_found("UNCHANGED") + _found(verdict, gating=False))


def test_what_a_setting_lets_pass_covers_nothing_else() -> None:
    excused = _found("INCONCLUSIVE", excused_by='inconclusive = "pass"')

    assert 0 == exit_code(excused)
    assert 0 == exit_code(excused + _found("UNCHANGED"))
    assert 3 == exit_code(excused + _found("NOT REACHED"))
    assert 1 == exit_code(excused + _found("REGRESSED"))


def test_nothing_measured_never_passes() -> None:
    assert 4 == exit_code([])


def _counted(metric: str, base: float | None, head: float | None, *, gating: bool = False) -> ExactComparison:
    known = base is not None and head is not None
    return ExactComparison(
        benchmark=Benchmark(name="bench.py::test", version="v1"),
        metric=Metric(name=metric, unit="1", exact=known),
        verdict="UNCHANGED" if known else "INCONCLUSIVE",
        margin=0.0,
        gating=gating,
        base=base,
        head=head,
    )


def test_benchmarks_that_do_not_gate_decide_nothing() -> None:
    assert 4 == exit_code(_found("UNCHANGED", "REGRESSED", gating=False))
    assert 0 == exit_code([*_found("REGRESSED", gating=False), *_found("UNCHANGED")])


def test_instructions_that_nobody_could_count_do_not_pass() -> None:
    uncounted = _counted("instructions", None, None)

    assert 4 == exit_code([*_found("UNCHANGED"), uncounted])
    assert 0 == exit_code([*_found("UNCHANGED"), uncounted, _counted("instructions", 5.0, 5.0)])
    assert 1 == exit_code([*_found("REGRESSED"), uncounted])
    assert 0 == exit_code([*_found("UNCHANGED"), _counted("flops", None, None)])


def test_a_person_may_let_a_gate_pass_that_compared_nothing() -> None:
    assert 0 == exit_code(_found("NEW", "SKIPPED", accepted="no GPU here"))
