"""The typed records that cross module boundaries: frozen, keyword-only, complete.

Times are in seconds and UTC, sizes in bytes; ``None`` means "not known", never 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

Source = Literal["pytest", "gate", "profile", "experiment", "tricks", "bisect", "backfill", "calibrate"]
Status = Literal["ok", "error", "timeout", "oom", "skipped"]
Side = Literal["base", "head"]
SIDES: tuple[Side, Side] = ("base", "head")
Better = Literal["lower", "higher"]
PassName = Literal["clean", "cprofile", "torch", "lines"]


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The state of the code a result belongs to; ``sha`` has 40 hex digits."""

    sha: str
    time: datetime | None = None
    subject: str | None = None
    branch: str | None = None
    dirty: bool = False
    diff_hash: str | None = None


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a result was measured: an identity that survives reboots, and all that is known besides."""

    machine_id: str
    facts: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What software measured it: Python, torch, threads, allocator and precision flags."""

    env_id: str
    facts: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A pytest node id with its parameters; ``version`` hashes the benchmark's own source."""

    name: str
    version: str
    params: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None


@dataclass(frozen=True, kw_only=True)
class Metric:
    """What was measured, in which unit, and which direction is better."""

    name: str
    unit: str
    better: Better = "lower"
    exact: bool = False


WALL_TIME = Metric(name="time", unit="s")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where in a run a launch stood: launches of one block ran next to each other, in ``order``."""

    side: Side | None = None
    launch: int = 0
    preloader: int | None = None
    block: int | None = None
    order: int | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one launch saw of one benchmark and metric: raw values in measured order, per iteration."""

    benchmark: Benchmark
    metric: Metric = WALL_TIME
    warmup: int | None = None
    loops: int | None = None
    values: tuple[float, ...] = ()
    status: Status = "ok"
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the ledger: one (run, benchmark, metric, side, launch)."""

    run_id: str
    recorded_at: datetime
    source: str
    commit: Commit
    machine: Machine
    environment: Environment
    outcome: Outcome
    placement: Placement = Placement()
    policy: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One run in a line: what it measured, of which commits, and how much of it failed."""

    run_id: str
    recorded_at: datetime
    source: str
    commits: tuple[str, ...]
    subject: str | None
    dirty: bool
    benchmarks: int
    launches: int
    rows: int
    failed: int
    machine_id: str


@dataclass(frozen=True, kw_only=True)
class PassSummary:
    """One pass over a training loop, in a fresh process.

    ``total_s`` is the target's wall time; ``step_s`` holds the time between the ends of consecutive
    optimizer steps (the first from the target's start), in measured order. ``data_wait_s`` is the part of
    ``total_s`` spent in a DataLoader's ``next``, None where none was iterated; ``data_workers`` the largest
    number of worker processes such a loader had. The profiler watched from step ``profiled_from`` on.
    """

    name: PassName
    total_s: float
    step_s: tuple[float, ...]
    samples: int | None
    data_wait_s: float | None = None
    data_workers: int | None = None
    profiled_from: int = 0

    @property
    def steps(self) -> int:
        """Optimizer steps the pass saw."""
        return len(self.step_s)

    @property
    def typical_steps(self) -> tuple[float, ...]:
        """The steps that stand for the loop: those watched, without the first where there are three."""
        skipped = max(self.profiled_from, 1 if self.steps >= 3 else 0)  # noqa: PLR2004 (a median needs two)
        return self.step_s[skipped:] or self.step_s

    @property
    def typical_step_s(self) -> float | None:
        """The median of ``typical_steps``; None where no optimizer step was seen."""
        return statistics.median(self.typical_steps) if self.step_s else None

    @property
    def sample_s(self) -> float | None:
        """Seconds per training sample; None where steps or samples are not known."""
        return (
            self.typical_step_s * self.steps / self.samples if self.typical_step_s and self.samples else None
        )


@dataclass(frozen=True, kw_only=True)
class ProfileEntry:
    """One function of a cProfile, times in seconds over the whole pass."""

    file: str
    line: int
    function: str
    calls: int
    own_s: float
    cumulative_s: float
    kind: Literal["wait", "own", "library"]


@dataclass(frozen=True, kw_only=True)
class ProfileSummary:
    """What ``perfkit profile`` learned, as saved beside its artifacts in ``NAME.json``."""

    schema_version: int
    name: str
    target: str
    arguments: tuple[str, ...]
    recorded_at: datetime
    commit: Commit | None
    machine: Machine
    environment: Environment
    configuration: Mapping[str, str]
    passes: tuple[PassSummary, ...]
    entries: tuple[ProfileEntry, ...]
    artifacts: tuple[str, ...]

    def pass_named(self, name: PassName) -> PassSummary | None:
        """Return one of the passes, None where it was not asked for."""
        return next((found for found in self.passes if found.name == name), None)

    @property
    def main_pass(self) -> PassSummary:
        """The pass whose times are told: the clean one where there is one."""
        return self.pass_named("clean") or self.passes[0]

    def distortion(self, name: PassName) -> float | None:
        """Return profiled / clean: by median step, or by all steps together where fewer than three."""
        clean, profiled = self.pass_named("clean"), self.pass_named(name)
        if clean is None or profiled is None or clean is profiled:
            return None
        if min(clean.steps, profiled.steps) >= 3:  # noqa: PLR2004 (below, a median is no better than a total)
            return _ratio(profiled.typical_step_s, clean.typical_step_s)
        if profiled.steps != clean.steps:
            return None
        if clean.steps:
            return _ratio(sum(profiled.step_s), sum(clean.step_s))
        # The torch pass has the processing of the trace in its total.
        return None if name == "torch" else _ratio(profiled.total_s, clean.total_s)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
