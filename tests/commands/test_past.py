"""A report of a regression has the levels of the benchmark's earlier runs here, and no other one has."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from repositories import Repository
from synthetic import START, build_comparison, build_report, build_row

from perfkit.commands.past import with_past
from perfkit.ledger.store import Ledger
from perfkit.model.comparisons import GateReport

NAME = "benchmarks/bench_a.py::test_a"


def _with_past(report: GateReport, repository: Repository) -> GateReport:
    return with_past(report, ledger=repository.root / "ledger", root=repository.root)


@pytest.fixture
def report(repository: Repository) -> GateReport:
    """Return a report of a regression, after six runs of five commits, and before another one."""
    ledger = Ledger(repository.root / "ledger")
    for number in range(6):
        sha = repository.commit({"a.py": str(number // 2)}, f"Commit {number}")
        ledger.append(
            [
                build_row(
                    0.1 * (number + 1), 9.0, name=NAME, sha=sha, run=f"0199-{number}", minute=-9 + number
                ),
                build_row(0.5, name=f"{NAME}_other", sha=sha, run=f"0199-{number}", minute=-9 + number),
            ]
        )
    later = build_row(5.0, name=NAME, sha=repository.commit({"a.py": "x"}, "Later"), run="0199-9", minute=1)
    ledger.append([later])
    return build_report(build_comparison("test_a", "REGRESSED", 1.03, 1.026, 1.036))


def test_the_runs_before_are_kept_in_the_order_of_commits(report: GateReport, repository: Repository) -> None:
    past = _with_past(report, repository).past

    assert {NAME: pytest.approx((0.1, 0.2, 0.3, 0.4, 0.5, 0.6))} == past


def test_another_place_and_too_few_runs_show_nothing(report: GateReport, repository: Repository) -> None:
    elsewhere = replace(report, machine=replace(report.machine, machine_id="other"))
    (slower,) = report.comparisons
    changed = replace(
        report, comparisons=(replace(slower, benchmark=replace(slower.benchmark, version="v2")),)
    )
    early = replace(report, recorded_at=START - timedelta(minutes=5))

    assert [{}, {}, {}] == [_with_past(one, repository).past for one in (elsewhere, changed, early)]


def test_a_gate_without_a_finding_asks_nothing(report: GateReport, repository: Repository) -> None:
    (slower,) = report.comparisons
    same = replace(report, comparisons=(replace(slower, verdict="UNCHANGED"),))
    (repository.root / "ledger/20260102T030405Z-gate-0199.parquet").write_text("no ledger file")

    assert same == _with_past(same, repository)
    broken = _with_past(report, repository)
    assert {} == broken.past
    assert "no pictures of earlier runs: " in broken.notes[-1]


def test_no_mistake_in_a_picture_costs_a_verdict(
    report: GateReport, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr(Ledger, "trends", fail)

    found = _with_past(report, repository)

    assert "no pictures of earlier runs: not enough values to unpack" in found.notes
    assert report.comparisons == found.comparisons
