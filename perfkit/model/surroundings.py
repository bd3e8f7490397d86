"""What surrounds measurements: the machines and environments of runs, and how they differ."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from perfkit.model.results import Environment, Machine, Side

# What a difference means: no times of the two are compared, or they may differ for it, or it means little.
Weight = Literal["forbids", "may matter", "means little"]


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
    """Where a run measured, or one ``side`` of a run that compared environments, and of which ``commits``."""

    run_id: str
    recorded_at: datetime
    source: str
    commits: tuple[str, ...]
    side: Side | None
    machine: Machine
    environment: Environment


@dataclass(frozen=True, kw_only=True)
class SurroundingsReport:
    """Where one or two runs measured; of two places, what differs: what forbids a comparison comes first."""

    found: tuple[Surroundings, ...]
    changes: tuple[FactChange, ...] = ()
