"""Results of a bisection: the commits that changed a benchmark, with their probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from perfkit.model.comparisons import ExactComparison, Explanation, Log
from perfkit.model.results import Benchmark, Commit, Environment, Machine, Metric

Answer = Literal["found", "no change", "undecided"]
SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A commit that may have caused a change; ``skipped`` is why it could not be measured."""

    commit: Commit
    author: str | None
    files: int
    added: int
    removed: int
    skipped: str | None = None


@dataclass(frozen=True, kw_only=True)
class Level:
    """Mean and standard deviation over a commit's launches, per call in the metric's unit."""

    mean: float
    sd: float | None
    launches: int


@dataclass(frozen=True, kw_only=True)
class FoundStep:
    """A change between two measured commits; one of the ``suspects``, oldest first, made it.

    ``ratio`` is after / before (None where a count was zero), ``low`` to ``high`` its interval, which counts
    lack. ``before`` and ``after`` are None where the two were never measured side by side.
    """

    suspects: tuple[Suspect, ...]
    last_before: Commit
    ratio: float | None
    low: float | None
    high: float | None
    probability: float
    before: Level | None
    after: Level | None
    counted: ExactComparison | None = None
    explanation: Explanation | None = None


@dataclass(frozen=True, kw_only=True)
class SkippedCommit:
    """A commit that could not be measured, and why."""

    commit: Commit
    reason: str


@dataclass(frozen=True, kw_only=True)
class LeftRange:
    """The range left by an undecided bisection: one of ``commits`` up to ``bad`` made the change."""

    last_before: Commit
    bad: Commit
    commits: int
    probability: float


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """The next measurement, of two places or one twice; ``left`` commits are suspected."""

    base: int
    head: int
    launches: int
    left: int
    left_s: float


class BisectProgress(Log, Protocol):
    """Receives the state of a bisection, between launches only: nothing may run while something is timed."""

    def begin(self, names: Sequence[str], text: str, unit: str = "commit") -> None:
        """Begin a search, with a sentence on it and the name of each place; ``unit`` is what is suspected."""

    def update(self, state: SearchState) -> None:
        """Report what is measured next."""


@dataclass(frozen=True, kw_only=True)
class BisectionReport:
    """A whole bisection of one metric of one benchmark between a good and a bad commit.

    ``commits`` counts the range after the good one, ``measured`` those measured, ends included, and
    ``earlier`` the ``launches`` (of counters: commits) known from earlier runs. ``steps`` has the largest
    first.
    """

    schema_version: int = SCHEMA_VERSION
    recorded_at: datetime
    good: Commit
    bad: Commit
    benchmark: Benchmark
    metric: Metric
    confidence: float
    answer: Answer
    why: str
    steps: tuple[FoundStep, ...]
    left: LeftRange | None
    commits: int
    measured: int
    launches: int
    earlier: int
    skipped: tuple[SkippedCommit, ...]
    runs: tuple[str, ...]
    machine: Machine
    environment: Environment
    budget_s: float
    wall_s: float
    exit_code: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PackageChange:
    """A package that differs between two environments; a version is None where it is absent."""

    name: str
    base: str | None
    head: str | None


@dataclass(frozen=True, kw_only=True)
class GuiltyPackages:
    """Packages whose upgrade changed a benchmark.

    All parts of ``together`` are needed for the change. A part of several packages is one of these, which
    could not be upgraded by themselves. Where that is ``confirmed``, the ratio is that of these packages
    alone, else that of upgrading the last of them.
    """

    together: tuple[tuple[PackageChange, ...], ...]
    confirmed: bool
    ratio: float
    low: float
    high: float
    probability: float
    before: Level | None
    after: Level | None
    explanation: Explanation | None = None


@dataclass(frozen=True, kw_only=True)
class LeftPackages:
    """The packages left by an undecided search."""

    packages: tuple[str, ...]
    probability: float


@dataclass(frozen=True, kw_only=True)
class PackagesReport:
    """A whole search among the ``packages`` that differ between two environments, at one commit.

    ``measured`` counts environments, in ``pairs``; ``earlier`` are the ``launches`` known from earlier runs.
    """

    recorded_at: datetime
    commit: Commit
    benchmark: Benchmark
    confidence: float
    answer: Answer
    why: str
    found: tuple[GuiltyPackages, ...]
    left: LeftPackages | None
    packages: int
    measured: int
    pairs: int
    launches: int
    earlier: int
    runs: tuple[str, ...]
    machine: Machine
    environment: Environment
    budget_s: float
    wall_s: float
    exit_code: int
    notes: tuple[str, ...] = ()
