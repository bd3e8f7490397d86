"""A history over many commits: trends with their change points, and alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perfkit.model.change_log import GateRatio
from perfkit.model.results import Machine, Metric

# The cause of a change point: the commits in its range, other software, or the machine.
Cause = Literal["code", "environment", "machine"]
# The review of a change point: none yet, real and accepted, or not real.
State = Literal["open", "accepted", "ignored"]
# The origin that a drift is counted from.
Origin = Literal["gates", "best", "release", "base"]
# What a chart visibly does without a clear change point or drift.
RiseKind = Literal["rise", "step", "possible step", "to and fro", "two levels", "weekly"]
# Two runs of the same code rarely differ by more than this many times what runs of it differ by.
_TIMES_THE_SPREAD = 2.0


@dataclass(frozen=True, kw_only=True)
class Trend:
    """What runs measured of one version of a benchmark on one machine, in the order of their commits.

    Each column has a value for each run; all runs were in ``lockstep`` with another commit, or none.
    ``means`` and ``sds`` are over launches (of a single one: over its rounds), in the metric's unit per call.
    Change points are sought in ``levels``. ``same_code`` maps commits that are not measured to measured ones
    at which the benchmark runs the same code, ``repeated`` measured ones likewise to the one measured before.
    """

    benchmark: str
    version: str
    metric: Metric
    machine_id: str
    run_ids: tuple[str, ...]
    commits: tuple[str, ...]
    recorded_at: tuple[datetime, ...]
    sources: tuple[str, ...]
    env_ids: tuple[str, ...]
    launches: tuple[int, ...]
    means: tuple[float, ...]
    sds: tuple[float | None, ...]
    levels: tuple[float, ...]
    lockstep: bool = False
    same_code: Mapping[str, str] = field(default_factory=dict)
    repeated: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.levels)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The runs between two change points: mean and sd over ``runs`` runs, outliers left out."""

    mean: float
    sd: float | None
    runs: int


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A lasting change of a trend; ``place`` is the first run after it.

    ``point_id`` and ``shift`` are eight hex digits. ``commits`` may have made it, None where git lacks them.
    Where others are ``acquitted``, since the benchmark runs the same code there, these are the ``suspects``.
    ``ratio`` is after / before with its 95 % interval; ``chance`` is the probability of a change point this
    clear in 100 runs without any. ``detail`` describes another ``cause`` than the code, and ``command`` finds
    which of the packages it was.
    """

    point_id: str
    benchmark: str
    version: str
    metric: Metric
    machine_id: str
    place: int
    last_before: str
    first_after: str
    commits: int | None
    before: Stretch
    after: Stretch
    ratio: float
    low: float
    high: float
    chance: float
    cause: Cause = "code"
    detail: str = ""
    command: str = ""
    gate: GateRatio | None = None
    state: State = "open"
    reason: str = ""
    shift: str = ""
    suspects: tuple[str, ...] = ()
    acquitted: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the change point needs a review: commits made it, and it has none yet."""
        return self.state == "open" and self.cause == "code"

    @property
    def worse(self) -> bool:
        """Whether it is a loss: slower, or more of what should be less."""
        return (self.ratio > 1) == (self.metric.better == "lower")


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A change of many benchmarks of a machine at once, by the machine or by code that they share.

    ``benchmarks`` of the ``measured`` ones moved, by ``ratio`` in the median; ``low`` and ``high`` are the
    medians of their 95 % limits. ``cause`` is None where nothing proves one; ``shift_id`` has eight hex
    digits.
    """

    machine_id: str
    last_before: str
    first_after: str
    at: datetime
    benchmarks: int
    ratio: float
    low: float
    high: float
    cause: Cause | None = None
    measured: int = 0
    shift_id: str = ""
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Creep:
    """A drift: a gradual loss beyond the margin without a change point.

    ``ratio`` is until / since with its 99 % interval. ``since`` is the first base of chained gates, or in
    ``runs`` plain runs the best level, the last release or the gate's base. ``creep_id`` has eight hex
    digits.
    """

    benchmark: str
    machine_id: str
    since: str
    until: str
    ratio: float
    low: float
    high: float
    margin: float
    origin: Origin = "gates"
    runs: int = 0
    cause: Cause = "code"
    detail: str = ""
    creep_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Rise:
    """A benchmark whose chart visibly changed up to ``until`` without a clear change point or drift.

    ``runs`` runs have followed a step between two commits, which is probable or may be chance; if the level
    stays, ``needed`` more should show, 0 where that is not known. A level that goes to and fro, or alternates
    between two, made ``changes`` of ``ratio`` that undo one another; a weekly one is slower on ``days``.
    ``cause`` is None where no sentinel shows it.
    """

    benchmark: str
    machine_id: str
    since: str
    until: str
    ratio: float
    runs: int = 0
    changes: int = 0
    kind: RiseKind = "rise"
    needed: int = 0
    days: tuple[str, ...] = ()
    cause: Cause | None = None

    @property
    def is_pattern(self) -> bool:
        """Whether the level keeps coming back, so that no commit made it."""
        return self.kind in {"to and fro", "two levels", "weekly"}


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A benchmark that was last measured ``days`` days and ``commits`` commits ago.

    Where the whole machine stopped, it stands for all ``stopped`` benchmarks of the machine.
    """

    benchmark: str
    machine_id: str
    last_commit: str
    last_at: datetime
    days: int
    commits: int | None
    stopped: int = 0


@dataclass(frozen=True, kw_only=True)
class CommitFacts:
    """Facts of a commit; ``place`` is its place in history, None where this clone lacks it."""

    sha: str
    subject: str | None = None
    time: datetime | None = None
    author: str | None = None
    place: int | None = None


@dataclass(frozen=True, kw_only=True)
class HistoryReport:
    """All of a history: trends with change points, alarms, and facts of commits and machines.

    ``noise`` is the relative sd between sessions of identical code, by machine and benchmark.
    """

    trends: tuple[Trend, ...]
    points: tuple[ChangePoint, ...] = ()
    shifts: tuple[Shift, ...] = ()
    creeps: tuple[Creep, ...] = ()
    silences: tuple[Silence, ...] = ()
    rises: tuple[Rise, ...] = ()
    commits: Mapping[str, CommitFacts] = field(default_factory=dict)
    machines: Mapping[str, Machine] = field(default_factory=dict)
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    noise: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    dirty_runs: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Moved:
    """A benchmark's time as a ratio to its last run; ``spread`` is the relative sd between sessions."""

    benchmark: str
    ratio: float
    commit: str
    spread: float | None

    @property
    def is_beyond(self) -> bool:
        """Whether it moved by more than its sessions differ."""
        return self.spread is not None and self.size > _TIMES_THE_SPREAD * self.spread

    @property
    def size(self) -> float:
        """How far it moved on the log scale, to either side."""
        return abs(math.log(self.ratio))
