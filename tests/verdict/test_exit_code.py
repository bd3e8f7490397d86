"""The exit code of a gate."""

from __future__ import annotations

import pytest

from perfkit.records import Benchmark
from perfkit.records.comparisons import Comparison, Verdict
from perfkit.verdict.exit_code import exit_code


def _found(*verdicts: Verdict, gating: bool = True, accepted: str | None = None) -> list[Comparison]:
    benchmark = Benchmark(name="bench.py::test", version="v1")
    return [
        Comparison(benchmark=benchmark, verdict=verdict, margin=0.02, gating=gating, accepted=accepted)
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
        (1, ["UNCHANGED", "INCONCLUSIVE", "FAILED", "REGRESSED"]),
        (4, ["UNCHANGED", "INCONCLUSIVE", "MISSING"]),
        (3, ["UNCHANGED", "INCONCLUSIVE", "NEW"]),
    ],
)
def test_the_worst_finding_decides(code: int, verdicts: list[Verdict]) -> None:
    """Regressed comes before not measured, and that before inconclusive."""
    assert code == exit_code(_found(*verdicts))
    assert code == exit_code(_found(*verdicts[::-1]))


@pytest.mark.parametrize("verdict", ["REGRESSED", "INCONCLUSIVE", "MISSING", "CHANGED", "FAILED", "TIMEOUT"])
def test_accepted_and_advisory_findings_pass(verdict: Verdict) -> None:
    """What a person accepted, and what does not gate, is shown and decides nothing."""
    assert 0 == exit_code(_found("UNCHANGED") + _found(verdict, accepted="known"))
    assert 0 == exit_code(_found("UNCHANGED") + _found(verdict, gating=False))


def test_an_accepted_finding_covers_no_other() -> None:
    """Beside an accepted regression another one still fails the gate."""
    assert 1 == exit_code(_found("REGRESSED", accepted="known") + _found("REGRESSED"))


def test_nothing_measured_never_passes() -> None:
    """A gate without a comparison has not measured what was expected of it."""
    assert 4 == exit_code([])
