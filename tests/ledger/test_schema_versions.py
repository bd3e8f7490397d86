"""Files of every schema version stay readable, with all that their rows hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_rows import sourced
from synthetic import build_row

from perfkit.agent.counters.model import Cause
from perfkit.features.experiments.records import Experiment, ExperimentPolicy, Factor, Fingerprint
from perfkit.features.tricks.trick import CheckedClaim, Equivalence, TrickCase, TrickPolicy, TricksRun
from perfkit.ledger.queries import read_table
from perfkit.ledger.schema import SCHEMA_VERSION, from_entries, to_entries
from perfkit.ledger.store import Ledger
from perfkit.model import Row, RowPolicy
from perfkit.model.comparisons import Policy
from perfkit.model.policies import (
    CalibrationPolicy,
    Disturbance,
    GatePolicy,
    JudgedPolicy,
    OtherPolicy,
    ProfilePolicy,
    PytestPolicy,
    Rehearsal,
)

FOLDER = Path(__file__).parent
RULES = Policy(alpha=0.01, family=6, looks=(10, 15, 20))
GATE = GatePolicy(
    rules=RULES,
    margin=0.02,
    gating=True,
    verdict="REGRESSED",
    wall_s=66.79,
    continues=("0199-a", "0199-b"),
    faults=0.4,
    base="b" * 40,
    budget_s=120.0,
    mode="forked",
    as_is=False,
)
JUDGED = JudgedPolicy(rules=RULES, margin=0.05, gating=False, verdict="UNCHANGED", wall_s=12.5)
POLICIES: Sequence[tuple[str, RowPolicy]] = [
    ("gate", GATE),
    (
        "calibrate",
        CalibrationPolicy(
            **vars(GATE), rehearsal=Rehearsal(study="5f0c", case=3, plant=0.05, planted="bench_a.py::test_a")
        ),
    ),
    (
        "tricks",
        TrickPolicy(
            **vars(JUDGED),
            case=TrickCase(trick="channels_last", size=16, title="Channels last", size_means="images"),
            equivalence=Equivalence(equal=False, largest=float("inf"), problem="not the same"),
            run=TricksRun(
                arguments={"epochs": 2, "lr": 0.1},
                left_out={"compile": "compiles"},
                claims=(CheckedClaim(name="copies", statement="It copies.", answer="yes", evidence="2 = 2"),),
            ),
        ),
    ),
    (
        "experiment",
        ExperimentPolicy(
            study="c495",
            plan=Experiment(
                name="precision",
                target="demo:train",
                factors=(Factor(name="precision", levels=("default", "bf16")),),
                fixed={"batch_size": 8, "amp": True},
                returned={"accuracy": "test_accuracy"},
            ),
            fingerprint=Fingerprint(
                operators=5316,
                half={"bfloat16": 120},
                tensor_peak=198018188,
                settings={"cuda": "None"},
                steps=3,
            ),
            stopped="all blocks are done",
        ),
    ),
    (
        "pytest",
        PytestPolicy(mode="benchmark(...)", disable_gc=False, min_rounds=5, max_time_s=0.5, min_time_s=0.01),
    ),
    ("backfill", PytestPolicy(mode="benchmark.pedantic(...)")),
    ("profile", ProfilePolicy(steps=14)),
    ("profile", ProfilePolicy()),
    ("import:another", OtherPolicy(entries={"rounds": "5"})),
    ("gate", OtherPolicy(entries={"alpha": "a half"})),
    ("gate", RowPolicy()),
]
CAUSES = (
    Cause(what="aten::mm", place="net.py:3", text="x @ w", amount=8.0),
    Cause(what="µ", place="", amount=0.5),
)


def _rows() -> list[Row]:
    """Return a row for each policy, the first of them a count, the last of a run that was cut off."""
    rows = [
        replace(build_row(0.25, 0.5, run=f"run-{number}", minute=number, policy=policy), source=source)
        for number, (source, policy) in enumerate(POLICIES)
    ]
    first, *others, last = rows
    counted = replace(first.outcome, causes=CAUSES, training=True)
    nothing = replace(last.outcome, values=(), status="skipped", message="not counted: no", causes=())
    return [replace(first, outcome=counted), *others, replace(last, outcome=nothing, partial=True)]


def test_the_stored_file_of_schema_1_stays_readable() -> None:
    rows = Ledger(FOLDER / "schema_1_sources").rows()

    assert [
        ("backfill", PytestPolicy, False),
        ("pytest", PytestPolicy, False),
        ("profile", ProfilePolicy, False),
        ("gate", GatePolicy, False),
        ("gate", GatePolicy, True),
        ("experiment", ExperimentPolicy, False),
        ("experiment", ExperimentPolicy, False),
        ("tricks", TrickPolicy, False),
        ("tricks", TrickPolicy, True),
        ("calibrate", CalibrationPolicy, False),
    ] == [(row.source, type(row.policy), row.outcome.causes is not None) for row in rows]
    assert {False} == {row.partial for row in rows}
    assert (
        replace(
            GATE,
            rules=Policy(alpha=0.01, family=12, looks=(10, 15, 20, 26, 33, 42, 60)),
            verdict="UNCHANGED",
            wall_s=94.16,
            continues=(),
            faults=1.0,
            base="ea87697dabc5a21070ab5213df0d09b0db20ab23",
            budget_s=240.0,
        )
        == rows[3].policy
    )
    assert rows[4].outcome.causes is not None
    assert (
        Cause(
            what="aten::rand",
            place="perfkit/workloads/metric_learning/augmentation.py:30",
            text="share, left, top, turn, contrast = torch.rand(5, generator=generator).tolist()",
            amount=1400.0,
        )
        == rows[4].outcome.causes[0]
    )
    experiment, trick, calibration = rows[5].policy, rows[7].policy, rows[9].policy
    assert isinstance(experiment, ExperimentPolicy)
    assert experiment.fingerprint is not None
    assert (5316, "every main effect is decided") == (experiment.fingerprint.operators, experiment.stopped)
    assert isinstance(trick, TrickPolicy)
    assert trick.run is not None
    assert ("batching_small_operators[8]", True) == (trick.case.name, trick.equivalence.equal)
    assert "contiguous() creates a new tensor." == trick.run.claims[0].statement
    assert isinstance(calibration, CalibrationPolicy)
    assert calibration.rehearsal == Rehearsal(
        study="5f0c2a1b9d3e", case=3, plant=0.05, planted="bench_a.py::test_a"
    )


def test_what_disturbed_a_launch_is_kept_and_read() -> None:
    disturbed = (
        Disturbance(what="clock set", amount=-3600.0),
        Disturbance(what="stood still", amount=2.5, side="head"),
    )
    policy = replace(GATE, disturbed=disturbed)

    assert policy == from_entries("gate", to_entries(policy))
    assert "disturbed" not in to_entries(GATE)


def test_the_stored_file_of_schema_2_stays_readable() -> None:
    assert {2} == set(read_table(next((FOLDER / "schema_2").iterdir()))["schema_version"].to_pylist())
    assert _rows() == Ledger(FOLDER / "schema_2").rows()
    assert 3 == SCHEMA_VERSION


def test_rows_of_several_versions_are_one_ledger(tmp_path: Path) -> None:
    for folder in ("schema_1", "schema_1_sources", "schema_2"):
        for file in (FOLDER / folder).iterdir():
            (tmp_path / f"{folder}-{file.name}").write_bytes(file.read_bytes())
    ledger = Ledger(tmp_path)
    before = ledger.rows()

    ledger.compact()

    assert before == ledger.rows()
    assert len(before) == len(ledger.to_pandas()["causes"])


@settings(max_examples=40)
@given(sourced)
def test_a_policy_survives_its_entries(given_policy: tuple[str, RowPolicy]) -> None:
    source, policy = given_policy

    assert policy == from_entries(source, to_entries(policy))


@given(st.sampled_from([source for source, _ in POLICIES]), st.data())
def test_entries_of_any_kind_are_kept(source: str, data: st.DataObject) -> None:
    whole = to_entries(dict(POLICIES)[source])
    entries = data.draw(
        st.dictionaries(st.sampled_from([*whole, "other"]), st.sampled_from([*whole.values(), "", "x"]))
    )

    found = from_entries(source, entries)

    if isinstance(found, OtherPolicy):
        assert entries == found.entries
    else:
        assert found == from_entries(source, to_entries(found))
