"""A history over many commits: trends with change points, alarms, the change log, and same code."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from perfkit.model.results import Environment, Machine, Metric, meant_by

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
    which of the packages it was. One is ``undone`` where a later one brought the level back, and ``undoes``
    an earlier one where it brought the level back, and no further: the end of a dip is no gain.
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
    undone: bool = False
    undoes: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it and another one make a dip or a bump that is over."""
        return self.undone or self.undoes

    @property
    def is_open(self) -> bool:
        """Whether the change point needs a review: commits made it, it is not over, and it has none yet."""
        return self.state == "open" and self.cause == "code" and not self.is_over

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


@dataclass(frozen=True, kw_only=True)
class Column:
    """A heading and the benchmark below it, a node id or the end of one; ``picture`` shows its trend."""

    title: str
    benchmark: str
    picture: str | None = None

    def shows(self, name: str) -> bool:
        """Return whether this column is about the benchmark of that name."""
        return bool(meant_by(self.benchmark, (name,)))


class Measured(NamedTuple):
    """What one launch measured of a benchmark at one commit: ``mean`` and ``sd`` in seconds per call.

    ``compared`` is False where a gate only found that its sides differ, which is no failure. At the commit
    ``same_as`` the benchmark runs the same code.
    """

    run_id: str
    recorded_at: datetime
    source: str
    commit: str
    subject: str | None
    commit_time: datetime | None
    machine_id: str
    env_id: str
    benchmark: str
    version: str
    side: str | None
    launch: int
    block: int | None
    status: str
    message: str | None
    n: int
    mean: float | None
    sd: float | None
    same_as: str | None
    compared: bool = True


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What launches measured, in the order of recording; ``dirty_runs`` are left out."""

    measured: tuple[Measured, ...]
    machines: Mapping[str, Machine] = field(default_factory=dict)
    environments: Mapping[str, Environment] = field(default_factory=dict)
    dirty_runs: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A ratio head / base; ``standard_error`` is in units of the ratio, None for one pair."""

    value: float
    standard_error: float | None


@dataclass(frozen=True, kw_only=True)
class GateRatio:
    """A gate's ratio head / base with its interval; ``alpha`` is of all intervals and looks together."""

    ratio: float
    low: float
    high: float
    alpha: float


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What one commit measured of one column: ``mean`` and ``sd`` in seconds per call.

    ``ratio`` is this commit / the row before, if one run measured both; of a gate it is ``gate``. ``failure``
    is why there is no number, ``other_version`` whether the benchmark's source was another one than now. The
    commit ``same_as``, a measured one if there is any, runs the same code as this one, which is not measured.
    """

    mean: float | None = None
    sd: float | None = None
    launches: int = 0
    ratio: Ratio | None = None
    gate: GateRatio | None = None
    failure: str | None = None
    env_id: str | None = None
    other_version: bool = False
    same_as: str | None = None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One commit's row."""

    commit: str
    description: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """The log of one machine, oldest commit first."""

    machine: Machine
    environments: tuple[Environment, ...]
    columns: tuple[Column, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True)
class ChangeLog:
    """The whole log; ``dirty_runs`` were measured on uncommitted changes and are left out."""

    tables: tuple[Table, ...]
    dirty_runs: int


@dataclass(frozen=True, kw_only=True)
class History:
    """What the log has to know about commits, by their hashes: place in history, and people's own notes."""

    order: Mapping[str, int]
    notes: Mapping[str, str]


class Kind(NamedTuple):
    """Within what a pair of commits holds."""

    benchmark: str
    version: str
    machine_id: str
    env_id: str
    overlay: str | None = None


@dataclass(frozen=True)
class SameCode:
    """The commits that run the same code, by kind: each commit with all of its group."""

    groups: dict[Kind, dict[str, frozenset[str]]] = field(default_factory=dict)

    @classmethod
    def of(cls, pairs: Iterable[tuple[Kind, str, str]]) -> SameCode:
        """Join pairs of commits into groups."""
        same = cls()
        for pair in pairs:
            same.join(*pair)
        return same

    def join(self, kind: Kind, one: str, other: str) -> None:
        """Note that two commits run the same code."""
        joined = self.group(kind, one) | self.group(kind, other)
        self.groups.setdefault(kind, {}).update(dict.fromkeys(joined, joined))

    def group(self, kind: Kind, sha: str) -> frozenset[str]:
        """Return the commits that run the same code as one, with itself."""
        return self.groups.get(kind, {}).get(sha, frozenset({sha}))

    def nearest(
        self, kind: Kind, sha: str, measured: Mapping[str, object], place: Callable[[str], float]
    ) -> str | None:
        """Return the nearest commit that runs the same code as one, a ``measured`` commit if possible."""
        group = self.group(kind, sha) - {sha}
        return min(
            group.intersection(measured) or group,
            key=lambda one: (abs(place(one) - place(sha)), one),
            default=None,
        )

    def acquitted(
        self,
        kind: Kind,
        first: str,
        last: str,
        commits_of: Callable[[str, str], frozenset[str] | None],
        place: Callable[[str], float],
    ) -> frozenset[str]:
        """Return the commits after the first, up to the last, that made no change between the two.

        Commits between two that run the same code made none together.
        """
        found: set[str] = set()
        groups = frozenset(self.groups.get(kind, {}).values())
        inside = (commits_of(first, last) if groups else None) or frozenset()
        for group in groups:
            own = sorted(group & (inside | {first}), key=place)
            whole = commits_of(own[0], own[-1]) if own else frozenset()
            parts = [whole] if whole is not None else itertools.starmap(commits_of, itertools.pairwise(own))
            found.update(*filter(None, parts))
        return inside & found
