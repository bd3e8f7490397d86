"""The exit code of a gate follows from its verdicts."""

from __future__ import annotations

import pytest

from perfkit.model import Benchmark, Metric
from perfkit.model.comparisons import Comparison, ExactComparison, Verdict, exit_code


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
