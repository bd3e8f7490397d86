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
    """The scatter of one benchmark in A/A runs, and the change that a gate could detect in spite of it.

    ``launches`` is how many a gate would make, 0 before its first look; ``half_width`` is of its interval,
    and ``effect`` the slowdown found 19 times of 20, both relative.
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
    """Standard deviations of log ratios by nested levels of replication.

    ``preloaders`` is between zygotes beyond what launches explain; ``launches`` includes errors of their
    rounds.
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
    """How often an injected slowdown of ``plant`` (relative) was found."""

    plant: float
    found: Share
    others_accused: int
    median_reading: float | None


@dataclass(frozen=True, kw_only=True)
class Steadiness:
    """One benchmark over the gates in which it was not slowed down.

    ``launches`` is the median until it was decided, ``effect`` the slowdown found 19 times of 20,
    ``decidable`` the smallest margin at which identical code would be UNCHANGED nine times of ten.
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
    """A calibration so far; the first three shares are of the gates of identical code.

    ``unmeasured`` counts benchmarks that failed, took too long, or were on one side only.
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
