"""What a row says of the rules it was measured under, by the source of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfkit.errors import LedgerError
from perfkit.records.comparisons import Policy, Verdict
from perfkit.records.experiments import Experiment, Fingerprint, Level
from perfkit.records.results import Row, RowPolicy
from perfkit.records.tricks import CheckedClaim, Equivalence, TrickCase


@dataclass(frozen=True, kw_only=True)
class JudgedPolicy(RowPolicy):
    """The rules by which a benchmark, or a count, of two sides was judged, and what came out.

    Attributes:
        rules: Those of the whole run, fixed before anything was measured.
        margin: The largest relative change of this benchmark that nobody need care about.
        gating: Whether the benchmark has a say in the exit code.
        verdict: What was found; None where the run was cut off.
        wall_s: Seconds that the whole run took; None where it was cut off.
        continues: The runs whose test this one went on with, oldest first.
        faults: Minor page faults of the side in this launch, for each iteration; None for what is no launch.
    """

    rules: Policy
    margin: float
    gating: bool
    verdict: Verdict | None = None
    wall_s: float | None = None
    continues: tuple[str, ...] = ()
    faults: float | None = None


@dataclass(frozen=True, kw_only=True)
class GatePolicy(JudgedPolicy):
    """A gate's: the commit of its base, its seconds, how it began processes, and whether it set nothing."""

    base: str
    budget_s: float
    mode: str
    as_is: bool


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """One gate of a calibration: its number in the study, and the benchmark that was made slower, if any.

    ``plant`` is the share by which it was.
    """

    study: str
    case: int
    plant: float | None = None
    planted: str | None = None


@dataclass(frozen=True, kw_only=True)
class CalibrationPolicy(GatePolicy):
    """That of a gate which a calibration rehearsed: identical code, but for what was planted."""

    rehearsal: Rehearsal


@dataclass(frozen=True, kw_only=True)
class TricksRun:
    """What all rows of a trial of tricks say of it: the loop's arguments, and what was left out and why."""

    arguments: Mapping[str, Level]
    left_out: Mapping[str, str]
    claims: tuple[CheckedClaim, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TrickPolicy(JudgedPolicy):
    """That of one trick at one size or on a loop; ``run`` is None where the trial was cut off."""

    case: TrickCase
    equivalence: Equivalence
    run: TricksRun | None = None


@dataclass(frozen=True, kw_only=True)
class ExperimentPolicy(RowPolicy):
    """An experiment's plan and identity, what its variants showed, and why it was over."""

    study: str
    plan: Experiment
    fingerprint: Fingerprint | None = None
    stopped: str = ""


@dataclass(frozen=True, kw_only=True)
class PytestPolicy(RowPolicy):
    """How pytest-benchmark took its rounds, in its own terms; times in seconds."""

    mode: str
    disable_gc: bool | None = None
    min_rounds: int | None = None
    max_time_s: float | None = None
    min_time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProfilePolicy(RowPolicy):
    """After how many steps a profile's passes were ended, None for all; the first has the set-up in it."""

    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class OtherPolicy(RowPolicy):
    """What a row says that is of no known source, or that does not say what such a row should."""

    entries: Mapping[str, str] = field(default_factory=dict)


def judged_policy(row: Row) -> JudgedPolicy:
    """Return the rules by which what a row holds was judged.

    Raises:
        LedgerError: the row does not say; it is of no comparison.
    """
    if isinstance(row.policy, JudgedPolicy):
        return row.policy
    raise LedgerError(_UNSAID.format(row=row, what="by which rules it was judged"))


def gate_policy(row: Row) -> GatePolicy:
    """Return how the gate was made that a row is of.

    Raises:
        LedgerError: the row does not say; it is of no gate.
    """
    if isinstance(row.policy, GatePolicy):
        return row.policy
    raise LedgerError(_UNSAID.format(row=row, what="how its gate was made"))


_UNSAID = "a row of the {row.source} {row.run_id} does not say {what}; see `perfkit ledger show {row.run_id}`"
