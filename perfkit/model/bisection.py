"""Results of a bisection: the commits that changed a benchmark, with their probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from perfkit.model.comparisons import ExactComparison, Explanation
from perfkit.model.progress import Log
from perfkit.model.results import Benchmark, Commit, Environment, Machine, Metric

Answer = Literal["found", "no change", "undecided"]
SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A commit that may have made a step, with its author and the size of its change.

    ``skipped`` is why it could not be measured, None where it was measured or not needed.
    """

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
    """A step between two commits that were measured, and the commits between which it lies.

    Attributes:
        suspects: The commits one of which made it, oldest first; one where it is known.
        last_before: The last commit that was measured before it.
        ratio: After / before, None where a count was zero before; ``low`` to ``high`` is its interval at the
            bisection's confidence, both None of a count.
        probability: How probable it is that one of the suspects made it.
        before: The launches before it, None where these two were never measured side by side.
        after: Those after it.
        counted: The counts on both sides with their causes, where a count was bisected.
        explanation: Which functions' times moved, where both sides were profiled.
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
    """The part of a range that the change is in, as far as is known when a bisection ends undecided.

    One of the ``commits`` after ``last_before`` up to ``bad`` made it, with this probability.
    """

    last_before: Commit
    bad: Commit
    commits: int
    probability: float


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """The next measurement of a search: two places (or one twice), and how many launches they have had.

    ``left`` is how many commits are suspected, ``left_s`` how many seconds of the budget are left.
    """

    base: int
    head: int
    launches: int
    left: int
    left_s: float


class BisectProgress(Log, Protocol):
    """Receives the state of a bisection, between launches only: nothing may run while something is timed."""

    def begin(self, commits: Sequence[Commit], benchmark: str) -> None:
        """Begin the search for a benchmark's change; the places of commits count from 0."""

    def update(self, state: SearchState) -> None:
        """Report what is measured next."""


@dataclass(frozen=True, kw_only=True)
class BisectionReport:
    """A whole bisection of one metric of one benchmark between a good and a bad commit.

    Attributes:
        benchmark: With its whole node id and version.
        why: The reason for the answer, in words.
        steps: The largest first; empty where none was found.
        left: What is left of the range where the answer is undecided.
        commits: How many commits the range has after the good one.
        measured: How many commits were measured, ends and earlier runs included.
        launches: How many launches of pairs there are, those of earlier runs included; counts have none.
        earlier: How many of ``launches``, or of the counted commits, are from earlier runs.
        runs: The runs in the ledger that this bisection recorded.
        wall_s: Seconds that it took, of ``budget_s`` that it might take to find the commit.
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
