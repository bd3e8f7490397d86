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
# Two runs of the same code rarely differ by more than this many times what runs of it differ by.
_TIMES_THE_SPREAD = 2.0


@dataclass(frozen=True, kw_only=True)
class Trend:
    """What runs measured of one benchmark, in the order of their commits: columns with a place for each run.

    All runs are of one metric, version of the benchmark and machine, and all were measured in ``lockstep``
    with another commit, or none. ``means`` and ``sds`` are over launches, in the metric's unit per call; of a
    single launch they are over its rounds. ``levels`` are what steps are sought in.
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

    def __len__(self) -> int:
        return len(self.levels)


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """The runs between two steps of a trend: mean and sd over ``runs`` runs, sd None for one."""

    mean: float
    sd: float | None
    runs: int


@dataclass(frozen=True, kw_only=True)
class ChangePoint:
    """A step of a trend between two runs that follow one another.

    Attributes:
        point_id: Eight hex digits that name it, the same as long as its benchmark and its commits are.
        place: Where in the trend the first run after the step is.
        last_before: The commit of the last run before it.
        first_after: The commit of the first run after it.
        commits: How many commits may have made it: those after ``last_before`` up to ``first_after``;
            None where git does not know them.
        ratio: After / before, with its interval ``low`` to ``high`` at 95 %.
        chance: How probable so clear a step is at most in 100 runs that have none; 0 of exact counts.
        detail: What differs, in words, where ``cause`` is not the code.
        gate: What a gate found between commits of the range, where one was made.
        shift: The id of the shift that the step is part of, empty where it is part of none.
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
    gate: GateRatio | None = None
    state: State = "open"
    reason: str = ""
    shift: str = ""

    @property
    def is_open(self) -> bool:
        """Whether the change point needs a review: commits made it, and it has none yet."""
        return self.state == "open" and self.cause == "code"

    @property
    def worse(self) -> bool:
        """Whether the step is a loss: slower, or more of what should be less."""
        return (self.ratio > 1) == (self.metric.better == "lower")


@dataclass(frozen=True, kw_only=True)
class Shift:
    """A step that many benchmarks of a machine made at once.

    The machine or code that they share made it. Each benchmark that moved also has a step of its own, which
    stays open until something proves the machine.

    Attributes:
        benchmarks: How many moved, of the ``measured`` ones; sentinels are not among them.
        ratio: The median after / before of those that moved; ``low`` and ``high`` are the medians of the
            ends of their intervals at 95 %.
        cause: "code" where a sentinel stood still, "machine" or "environment" where that explains all of
            their steps, None where nothing is known.
        detail: What proves the machine, or what differs in the environment.
        shift_id: Eight hex digits by which a person can review all of these change points at once.
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
    """A drift: a gradual loss without a change point, larger than the margin, since ``since``.

    Attributes:
        ratio: Until / since, with its interval ``low`` to ``high`` at 99 %.
        origin: What ``since`` is: the first base of ``gates`` whose ratios were multiplied, or in plain runs
            the ``best`` level, the last ``release``, or the ``base`` that a gate would compare with now.
        runs: How many plain runs show it; 0 where gates do.
        cause: "machine" where a sentinel drifted as well or no code differs, as ``detail`` explains.
        creep_id: Eight hex digits by which a person can accept it up to ``until``; empty of gates.
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
    """A benchmark that is visibly slower at ``until``, without a clear change point or drift.

    It is no alarm: machines wander as far. A gate of the two commits would show the code's part.
    """

    benchmark: str
    machine_id: str
    since: str
    until: str
    ratio: float


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A benchmark that was measured last ``days`` days ago, and at none of the ``commits`` newest commits.

    Where its machine stopped, with no other benchmark measured since, ``stopped`` counts all benchmarks of
    the machine, and this one stands for them; it is 0 where others are still measured.
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
    """All of a history: trends with their steps, alarms, and the facts of commits, machines, environments.

    ``noise`` is the relative sd between levels of identical code at several sessions, by machine and
    benchmark. ``dirty_runs`` were measured on uncommitted changes and are left out.
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
    """A benchmark's time as a ratio to that of its last run, which measured ``commit``.

    ``spread`` is the relative sd between sessions, None where there are fewer than three.
    """

    benchmark: str
    ratio: float
    commit: str
    spread: float | None

    @property
    def is_beyond(self) -> bool:
        """Whether it moved by more tha sessions of it differ; False where that is not known."""
        return self.spread is not None and self.size > _TIMES_THE_SPREAD * self.spread

    @property
    def size(self) -> float:
        """How far it moved on the log scale, to either side."""
        return abs(math.log(self.ratio))
