"""What surrounds measurements: how the environments and machines of two of them differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perfkit.records.results import Environment, Machine

# What a difference means: times cannot be compared, or may differ for this reason, or most likely do not.
Weight = Literal["forbids", "may matter", "by the way"]


@dataclass(frozen=True, kw_only=True)
class FactChange:
    """A fact of two environments or machines that is not the same; None where one does not say it."""

    of: Literal["environment", "machine"]
    fact: str
    before: str | None
    after: str | None
    weight: Weight


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where something was measured: one machine and environment of a run, or of a side of it.

    ``commits`` are those that it measured there.
    """

    run_id: str
    recorded_at: datetime
    source: str
    commits: tuple[str, ...]
    side: str | None
    machine: Machine
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class SurroundingsReport:
    """The surroundings of one run or two, and how each pair of them differs.

    ``changes`` has two surroundings' differences, those that forbid a comparison first.
    """

    found: tuple[Surroundings, ...]
    changes: tuple[FactChange, ...] = ()
    compared: bool = False
    titles: Mapping[str, str] = field(default_factory=dict)
