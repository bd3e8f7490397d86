"""Recorded launches of identical code, by gate and benchmark, out of the ledger of the calibration study."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

CALIBRATION = Path(__file__).parents[1] / "calibration"
sys.path.append(str(CALIBRATION))

import plan  # noqa: E402 (it lies in the calibration study's folder)

from perfkit.gating.judge import pair_location  # noqa: E402
from perfkit.gating.rows import pairs_of  # noqa: E402
from perfkit.ledger.store import Ledger  # noqa: E402
from perfkit.model import Row  # noqa: E402
from perfkit.stats.bisection import FloatArray  # noqa: E402

Hours = Literal["quiet", "noisy"]
# What the search was made with, and what was kept for the end.
TUNED_ON, HELD_OUT = plan.OLDER, plan.NEWER
BOTH = "both"
_SD_PER_MAD = 1.4826  # of a normal distribution
_PART = 1 / 3
_FEWEST = 6


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The log ratios of one gate by benchmark, in measured order and without the slowed benchmark."""

    study: str
    launches: dict[str, FloatArray]

    @property
    def scatter(self) -> float:
        """The robust deviation of a launch, in the middle of the benchmarks."""
        return float(np.median([_deviation(found) for found in self.launches.values()]))


@dataclass(frozen=True, kw_only=True)
class Pool:
    """The launches of the quiet or the noisy third of gates, by benchmark one array for each gate."""

    gates: int
    least_scatter: float
    most_scatter: float
    launches: dict[str, list[FloatArray]]


@cache
def read_pool(study: str, hours: Hours) -> Pool:
    """Return the third of a study's gates, or of both studies', whose launches scatter least or most."""
    gates = sorted(
        (gate for one in (TUNED_ON, HELD_OUT) if study in {one, BOTH} for gate in _read_gates(one)),
        key=lambda gate: gate.scatter,
    )
    count = round(_PART * len(gates))
    chosen = gates[:count] if hours == "quiet" else gates[-count:]
    launches: dict[str, list[FloatArray]] = defaultdict(list)
    for gate in chosen:
        for name, found in gate.launches.items():
            launches[name].append(found)
    return Pool(
        gates=count,
        least_scatter=chosen[0].scatter,
        most_scatter=chosen[-1].scatter,
        launches={name: launches[name] for name in plan.SIX},
    )


@cache
def _read_gates(study: str) -> tuple[Gate, ...]:
    """Return the gates of a study that measured the six benchmarks."""
    cases = {case.subject: case for case in plan.plan_study(study)}
    by_gate: dict[tuple[str, str], list[Row]] = defaultdict(list)
    subjects: dict[str, str] = {}
    for row in Ledger(CALIBRATION / "ledger" / study).rows():
        name = row.outcome.benchmark.name.rpartition("test_")[2]
        by_gate[row.run_id, name].append(row)
        if row.placement.side == "head" and row.commit.subject is not None:
            subjects[row.run_id] = row.commit.subject
    launches: dict[str, dict[str, FloatArray]] = defaultdict(dict)
    for (run_id, name), rows in by_gate.items():
        found = _log_ratios(rows)
        if name in plan.SIX and name != cases[subjects[run_id]].benchmark and len(found) >= _FEWEST:
            launches[run_id][name] = found
    return tuple(Gate(study=study, launches=found) for found in launches.values())


def _log_ratios(rows: Sequence[Row]) -> FloatArray:
    return np.array([pair_location(pair, "all") for pair in pairs_of(rows)])


def _deviation(values: FloatArray) -> float:
    return _SD_PER_MAD * float(np.median(np.abs(values - np.median(values))))
