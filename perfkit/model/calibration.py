"""Results of A/A runs: what the doctor finds of a machine, and what a calibration finds of the gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perfkit.model.comparisons import Policy
from perfkit.model.results import Machine

State = Literal["good", "notable", "bad", "unknown"]


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One property of a machine that decides how steady it is, with advice where it is not good."""

    name: str
    found: str
    state: State
    advice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The scatter of one benchmark in A/A runs, and the changes that a gate could detect in spite of it.

    Attributes:
        measured: The launches made; ``launch_sd`` is the deviation of their log ratios.
        launch_s: Seconds per launch.
        launches: How many a gate would make; 0 where its first look would not be reached.
        half_width: Of the gate's interval, as a relative change; None without a look.
        effect: The slowdown that would be found 19 times of 20, as a relative change; None without a look.
    """

    benchmark: str
    measured: int
    launch_sd: float
    launch_s: float
    launches: int
    half_width: float | None
    effect: float | None


@dataclass(frozen=True, kw_only=True)
class Fitness:
    """A machine's conditions and noise, and whether a gate on it could decide at ``margin``."""

    machine: Machine
    margin: float
    policy: Policy
    seconds_per_benchmark: float
    conditions: tuple[Condition, ...]
    noises: tuple[Noise, ...]
    fit: bool
    exit_code: int


@dataclass(frozen=True, kw_only=True)
class Components:
    """Standard deviations of log ratios, by nested levels of replication; None for one without replication.

    Attributes:
        preloaders: Between zygotes, beyond what launches alone would make them differ by.
        launches: Between launches of one zygote, including the error from each launch's own rounds.
        rounds: Between rounds of one launch.
    """

    preloaders: float | None
    launches: float | None
    rounds: float | None


@dataclass(frozen=True, kw_only=True)
class Share:
    """A counted share with its exact one-sided bounds at 95 % each (Clopper and Pearson 1934)."""

    count: int
    of: int
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Power:
    """How often an injected slowdown was found, and how many gates accused another benchmark.

    ``plant`` is its size as a relative change.
    """

    plant: float
    found: Share
    others_accused: int
    median_reading: float | None


@dataclass(frozen=True, kw_only=True)
class Steadiness:
    """One benchmark over the gates in which it was not slowed down.

    Attributes:
        components: Deviations of log ratios.
        launches: The median number of launches until it was decided.
        effect: The slowdown that would be found 19 times of 20 within the budget.
        decidable: The smallest margin at which identical code would be UNCHANGED nine times of ten.
    """

    benchmark: str
    seconds: float | None
    unchanged: Share
    components: Components
    launches: float
    effect: float | None
    decidable: float | None


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A calibration as far as it has run; the first three shares are of the gates of identical code.

    ``unmeasured`` counts how often a benchmark failed in them, took too long, or was on one side only.
    """

    planned: int
    gates: int
    policy: Policy
    margin: float
    accused: Share
    unchanged: Share
    undecided: Share
    powers: tuple[Power, ...]
    benchmarks: tuple[Steadiness, ...]
    median_gate_s: float
    exit_code: int
    unmeasured: int = 0
