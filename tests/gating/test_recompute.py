"""A gate can be judged anew from its rows alone, whole or cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic import ENVIRONMENT, START, build_row

from perfkit.config import Config, Project
from perfkit.errors import (
    EXIT_INCONCLUSIVE,
    EXIT_NOT_MEASURED,
    EXIT_PASS,
    EXIT_REGRESSED,
    LedgerError,
)
from perfkit.gating.rows import recompute_gate
from perfkit.ledger.recording import recover
from perfkit.ledger.store import Ledger
from perfkit.model import SIDES, Commit, Environment, Placement, Row, Source
from perfkit.model.comparisons import GateReport, Policy, Verdict
from perfkit.model.policies import GatePolicy
from perfkit.report.gate.decision import decision_lines

POLICY = GatePolicy(
    rules=Policy(alpha=0.01, family=1, looks=(3,)),
    margin=0.02,
    gating=True,
    base="a" * 40,
    budget_s=60.0,
    mode="forked",
    as_is=False,
)


PROVEN = replace(POLICY.rules, fail_on="proven", noise_floor=0.005, inconclusive="pass")


def _launches(*ratios: float, run: str = "run-1", policy: GatePolicy = POLICY) -> list[Row]:
    """Return three launches of both sides, a minute apart, with one ratio or a ratio each."""
    return [
        replace(
            build_row(
                *(0.1 * (ratios[launch % len(ratios)] if side == "head" else 1.0),) * 3,
                sha=("a" if side == "base" else "b") * 40,
                run=run,
                minute=launch,
                source="gate",
                policy=policy,
            ),
            placement=Placement(side=side, launch=launch, preloader=launch),
        )
        for launch in range(3)
        for side in SIDES
    ]


def _cut_off(ledger: Path, rows: Sequence[Row]) -> None:
    run = Ledger(ledger).run(source="gate", run_id="run-1", recorded_at=START)
    run.add(rows)
    run.leave()
    assert recover(ledger)


def _report(ledger: Path, run: str = "run-1") -> GateReport:
    return recompute_gate(run, ledger=ledger, project=Project(root=ledger, config=Config()))


@pytest.mark.parametrize(("one_sided", "code"), [(False, EXIT_INCONCLUSIVE), (True, EXIT_PASS)])
def test_a_kept_gate_is_judged_by_the_question_it_was_made_with(
    tmp_path: Path, *, one_sided: bool, code: int
) -> None:
    policy = replace(POLICY, rules=replace(POLICY.rules, one_sided=one_sided))
    Ledger(tmp_path).append(_launches(0.979, 0.978, 0.9805, policy=policy))

    report = _report(tmp_path)

    assert code == report.exit_code


def test_a_whole_gate_passes(tmp_path: Path) -> None:
    decided = replace(POLICY, verdict="UNCHANGED", wall_s=41.3)
    Ledger(tmp_path).append([replace(row, policy=decided) for row in _launches(1.0)])

    report = _report(tmp_path)

    assert (EXIT_PASS, 41.3, ()) == (report.exit_code, report.wall_s, report.notes)
    assert report.from_ledger
    assert not report.cut_off


@pytest.mark.parametrize(
    ("rules", "ratios", "verdict", "code"),
    [
        (PROVEN, (1.01,), "REGRESSED", EXIT_REGRESSED),
        (POLICY.rules, (1.01,), "UNCHANGED", EXIT_PASS),
        (PROVEN, (0.99, 1.0, 1.01), "INCONCLUSIVE", EXIT_PASS),
        (POLICY.rules, (0.99, 1.0, 1.01), "INCONCLUSIVE", EXIT_INCONCLUSIVE),
        (replace(POLICY.rules, inconclusive="pass"), (0.99, 1.0, 1.01), "INCONCLUSIVE", EXIT_PASS),
    ],
)
def test_what_failed_a_gate_fails_it_again(
    tmp_path: Path, rules: Policy, ratios: tuple[float, ...], verdict: Verdict, code: int
) -> None:
    decided = replace(POLICY, rules=rules, verdict=verdict, wall_s=41.3)
    Ledger(tmp_path).append([replace(row, policy=decided) for row in _launches(*ratios)])

    report = _report(tmp_path)

    assert (verdict, code) == (report.comparisons[0].verdict, report.exit_code)
    assert rules == report.policy


@pytest.mark.parametrize(("ratio", "code"), [(1.0, EXIT_NOT_MEASURED), (1.5, EXIT_REGRESSED)])
def test_a_gate_that_was_cut_off_does_not_pass(tmp_path: Path, ratio: float, code: int) -> None:
    _cut_off(tmp_path, _launches(ratio))

    report = _report(tmp_path)

    assert (code, 120.0) == (report.exit_code, report.wall_s)
    assert ("This gate was cut off: launches and counts of it may be missing.",) == report.notes
    (comparison,) = report.comparisons
    lines = " ".join(decision_lines(report, {comparison.benchmark.name: "test_a"}))
    assert ("the gate was cut off before all was measured" in lines) == (code == EXIT_NOT_MEASURED)


def test_a_gate_that_continued_another_is_judged_by_the_launches_of_both(tmp_path: Path) -> None:
    continuing = replace(POLICY, rules=replace(POLICY.rules, looks=(3, 6)), wall_s=41.3)
    ledger = Ledger(tmp_path)
    ledger.append(_launches(0.99, 1.0, 1.01, policy=replace(continuing, verdict="INCONCLUSIVE")))
    decided = replace(continuing, verdict="UNCHANGED", continues=("run-1",))
    ledger.append(_launches(1.0, run="run-2", policy=decided))

    (alone,), (joined,) = _report(tmp_path).comparisons, _report(tmp_path, "run-2").comparisons

    assert [3, 6] == [one.estimate.launches for one in (alone, joined) if one.estimate]


@pytest.mark.parametrize("source", ["gate", "environments"])
def test_only_a_gate_of_environments_has_one_for_each_side(tmp_path: Path, source: Source) -> None:
    old = Environment(env_id="e0", facts={"torch": "2.12.0"})
    Ledger(tmp_path).append(
        [
            replace(row, source=source, environment=old if row.placement.side == "base" else ENVIRONMENT)
            for row in _launches(1.0)
        ]
    )

    report = _report(tmp_path)

    assert ENVIRONMENT == report.environment
    assert (old if source == "environments" else None) == report.base_environment


def test_a_gate_of_a_single_row_is_read(tmp_path: Path) -> None:
    failed = build_row(
        sha="b" * 40,
        side="head",
        status="error",
        message="ValueError: no",
        source="gate",
        policy=replace(POLICY, verdict="FAILED", wall_s=3.2),
    )
    Ledger(tmp_path).append([failed])

    report = _report(tmp_path)

    (comparison,) = report.comparisons
    assert ("FAILED", "ValueError: no") == (comparison.verdict, comparison.message)
    assert (EXIT_NOT_MEASURED, 3.2) == (report.exit_code, report.wall_s)
    assert (Commit(sha="a" * 40), failed.commit) == (report.base, report.head)


def test_a_run_that_is_no_gate_is_refused(tmp_path: Path) -> None:
    Ledger(tmp_path).append([build_row(1.0)])

    with pytest.raises(LedgerError, match='run "run-1" is of pytest, not a gate; see'):
        _report(tmp_path)


def test_a_row_that_is_of_no_gate_is_reported(tmp_path: Path) -> None:
    Ledger(tmp_path).append([replace(build_row(source="gate"), placement=Placement(side="head"))])

    with pytest.raises(LedgerError, match="the gate run-1 does not have"):
        _report(tmp_path)
