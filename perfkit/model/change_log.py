"""The change log as records: a table for each machine, an entry for each commit, a cell for each column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from perfkit.model import Environment, Machine
from perfkit.model.results import meant_by


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
