"""The rules that a row was measured under: a record for each source of runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from perfkit.errors import LedgerError
from perfkit.model.comparisons import Doubt, Policy, ResultCompared, Verdict
from perfkit.model.results import Row, RowPolicy, Side

What = Literal["clock set", "suspended", "stolen", "other work", "throttled", "stood still"]


def stored_as(name: str, default: Any = None) -> Any:  # noqa: ANN401 (the type of the field)
    """Return a field whose entry in the ledger has another name."""
    return field(default=default, metadata={"entry": name})


@dataclass(frozen=True, kw_only=True)
class Disturbance:
    """An event during a launch that makes its times unlike others.

    ``amount`` is in seconds, of stolen time and other work as a share of all cores; ``side`` is what stood
    still.
    """

    what: What
    amount: float
    side: Side | None = None


@dataclass(frozen=True, kw_only=True)
class JudgedPolicy(RowPolicy):
    """The rules by which a benchmark, or a count, of two sides was judged, and the result.

    ``margin`` is relative. ``verdict`` and ``wall_s`` are None where the run was cut off. Of a launch,
    ``faults`` (minor page faults), ``cpu_s`` and ``collected_s`` (garbage after the last round) are per
    iteration; ``first_s`` is the first call of its process.
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
    peak_bytes: float | None = None
    first_s: float | None = stored_as("first_call_s")
    disturbed: tuple[Disturbance, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    result: ResultCompared | None = None


@dataclass(frozen=True, kw_only=True)
class GatePolicy(JudgedPolicy):
    """The rules of a gate; ``mode`` is "forked" or "fresh processes", ``as_is`` fixes no environment."""

    base: str
    budget_s: float
    mode: str
    as_is: bool


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """One gate of a calibration and the slowdown injected into it, if any (stored names)."""

    study: str
    case: int
    plant: float | None = None
    planted: str | None = stored_as("planted_benchmark")


@dataclass(frozen=True, kw_only=True)
class CalibrationPolicy(GatePolicy):
    """The rules of a gate of identical code but for an injected slowdown."""

    rehearsal: Rehearsal


@dataclass(frozen=True, kw_only=True)
class BisectPolicy(JudgedPolicy):
    """The rules of a pair of commits that a bisection measured between the commits ``good`` and ``bad``."""

    good: str
    bad: str


@dataclass(frozen=True, kw_only=True)
class PytestPolicy(RowPolicy):
    """How pytest-benchmark took its rounds, in its own terms; times in seconds.

    Files of the commit ``overlay`` were laid over the benchmark's own; the mode "traced" has no rounds.
    """

    mode: str
    disable_gc: bool | None = None
    min_rounds: int | None = None
    max_time_s: float | None = stored_as("max_time")
    min_time_s: float | None = stored_as("min_time")
    overlay: str | None = None


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
    raise LedgerError(_LACKING.format(row=row, what="the rules by which it was judged"))


def gate_policy(row: Row) -> GatePolicy:
    """Return the rules of the gate that a row belongs to."""
    if isinstance(row.policy, GatePolicy):
        return row.policy
    raise LedgerError(_LACKING.format(row=row, what="the terms of its gate"))


_LACKING = (
    "a row of the {row.source} {row.run_id} does not have {what}; see `perfkit ledger show {row.run_id}`"
)
