"""The rules that a row was measured under: a record for each source of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perfkit.errors import LedgerError
from perfkit.model.comparisons import Policy, Verdict
from perfkit.model.results import Row, RowPolicy, Side

What = Literal["clock set", "suspended", "stolen", "other work", "throttled", "stood still"]


def stored_as(name: str, default: Any = None) -> Any:  # noqa: ANN401 (the type of the field)
    """Return a field whose entry in the ledger has another name."""
    return field(default=default, metadata={"entry": name})


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """Something that happened during a launch and makes its times unlike others.

    ``amount`` are seconds; of what was stolen by other guests of the host, and of other work, the share of
    all cores. Of what stood still, ``side`` did.
    """

    what: What
    amount: float
    side: Side | None = None


@dataclass(frozen=True, kw_only=True)
class JudgedPolicy(RowPolicy):
    """The rules by which a benchmark, or a count, of two sides was judged, and what came out.

    Attributes:
        rules: Those of the whole run, fixed before anything was measured.
        margin: The largest relative change of this benchmark that nobody need care about.
        gating: Whether the exit code depends on the benchmark.
        verdict: What was found; None where the run was cut off.
        wall_s: Seconds that the whole run took; None where it was cut off.
        continues: The runs whose test this one continued, oldest first.
        faults: Minor page faults of the side in this launch, per iteration; None for rows that are no launch.
        cpu_s: CPU time of all threads and processes of the side in this launch, in seconds per iteration;
            None for rows that are no launch, and where it was not read.
        collected_s: Seconds per iteration in which garbage of the rounds was collected after the last one.
        disturbed: What happened during this launch that makes its times unlike others.
    """

    rules: Policy
    margin: float
    gating: bool
    verdict: Verdict | None = None
    wall_s: float | None = None
    continues: tuple[str, ...] = ()
    faults: float | None = stored_as("minor_faults_per_iteration")
    cpu_s: float | None = stored_as("cpu_s_per_iteration")
    collected_s: float | None = stored_as("collected_s_per_iteration")
    disturbed: tuple[Disturbance, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GatePolicy(JudgedPolicy):
    """The rules of a gate: its base's hash, its budget in seconds, and how it started processes.

    ``mode`` is "forked" or "fresh processes"; ``as_is`` says that no setting of the environment was fixed.
    """

    base: str
    budget_s: float
    mode: str
    as_is: bool


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """One gate of a calibration: its number in the study, and the benchmark that was made slower, if any.

    ``plant`` is the share by which it was made slower.
    """

    study: str
    case: int
    plant: float | None = None
    planted: str | None = stored_as("planted_benchmark")


@dataclass(frozen=True, kw_only=True)
class CalibrationPolicy(GatePolicy):
    """The rules of a gate of a calibration: its code is identical except for what was planted."""

    rehearsal: Rehearsal


@dataclass(frozen=True, kw_only=True)
class BisectPolicy(JudgedPolicy):
    """The rules of a pair of commits that a bisection measured between the commits ``good`` and ``bad``."""

    good: str
    bad: str


@dataclass(frozen=True, kw_only=True)
class PytestPolicy(RowPolicy):
    """How pytest-benchmark took its rounds, in its own terms; times in seconds."""

    mode: str
    disable_gc: bool | None = None
    min_rounds: int | None = None
    max_time_s: float | None = stored_as("max_time")
    min_time_s: float | None = stored_as("min_time")


@dataclass(frozen=True, kw_only=True)
class ProfilePolicy(RowPolicy):
    """After how many steps a profile's passes ended, None for all; the first step includes the set-up."""

    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class OtherPolicy(RowPolicy):
    """The entries of a row whose source is not known, or which lacks what rows of its source have."""

    entries: Mapping[str, str] = field(default_factory=dict)


def judged_policy(row: Row) -> JudgedPolicy:
    """Return the rules by which the values of a row were judged."""
    if isinstance(row.policy, JudgedPolicy):
        return row.policy
    raise LedgerError(_UNSAID.format(row=row, what="by which rules it was judged"))


def gate_policy(row: Row) -> GatePolicy:
    """Return the rules of the gate that a row belongs to."""
    if isinstance(row.policy, GatePolicy):
        return row.policy
    raise LedgerError(_UNSAID.format(row=row, what="how its gate was made"))


_UNSAID = "a row of the {row.source} {row.run_id} does not say {what}; see `perfkit ledger show {row.run_id}`"
