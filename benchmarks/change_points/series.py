"""The series that detectors are tried on: levels of identical code, simulated noise, and steps put into them.

The real ones are what the gates of the calibration study measured of their base, which is the same code in
every gate but for the slowed benchmark of some: those cells are left out. A run is a gate, some 20 to 60 s
of six benchmarks in turn; the runs of a ledger were measured within three or four hours of one machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

CALIBRATION = Path(__file__).parents[1] / "calibration"
sys.path.append(str(CALIBRATION))

import plan  # noqa: E402 (it lies in the calibration study's folder)

from perfkit.stats.change_points import FloatArray, remove_common_factor  # noqa: E402 (likewise)

# What the detector was made with, and what was kept for the end.
TUNED_ON, HELD_OUT = plan.OLDER, plan.NEWER
RUNS = 100
STRIDE = 20
FIRST_LAUNCHES = 3
Level = Literal["quickest", "median", "mean", "launch 1", "launch 2", "launch 3"]
_LOWER = 0.25


@dataclass(frozen=True, kw_only=True)
class Window:
    """A hundred runs that followed one another: runs x benchmarks, NaN where a benchmark was not measured."""

    study: str
    start: int
    table: FloatArray

    def series(self, benchmark: int, *, without_factor: bool) -> FloatArray:
        """Return one benchmark's levels in the order of runs, as they are or without the machine's part."""
        table = remove_common_factor(self.table).levels if without_factor else self.table
        column = table[:, benchmark]
        return column[np.isfinite(column)]

    def stepped(self, benchmark: int, *, run: int, ratio: float) -> Window:
        """Return the window with one benchmark's levels multiplied by a ratio from a run on."""
        table = self.table.copy()
        table[run:, benchmark] *= ratio
        return Window(study=self.study, start=self.start, table=table)

    def place(self, benchmark: int, run: int) -> int:
        """Return how many levels the benchmark has before a run."""
        return int(np.isfinite(self.table[:run, benchmark]).sum())


def read_windows(study: str, level: Level = "quickest", *, stride: int = STRIDE) -> list[Window]:
    """Return the windows of a study's runs, which begin ``stride`` runs apart."""
    table = read_levels(study, level)
    starts = range(0, len(table) - RUNS + 1, stride)
    return [Window(study=study, start=start, table=table[start : start + RUNS]) for start in starts]


def read_levels(study: str, level: Level) -> FloatArray:
    """Return the levels of a study's runs in the order of time, runs x six benchmarks, in seconds.

    A level is the lower quartile over launches of the launch's quickest round, median or mean of rounds; or
    the quickest round of one of the first launches alone.
    """
    import pandas as pd
    import pyarrow.parquet as pq

    columns = [
        "run_id",
        "recorded_at",
        "subject",
        "benchmark",
        "metric",
        "side",
        "launch",
        "values",
        "median",
        "mean",
    ]
    files = sorted((CALIBRATION / "ledger" / study).glob("*.parquet"))
    rows = pd.concat([pq.read_table(file, columns=columns).to_pandas() for file in files])
    rows["name"] = rows["benchmark"].str.rpartition("test_")[2]
    rows = rows[(rows["metric"] == "time") & rows["name"].isin(plan.SIX)]
    order = rows.groupby("run_id")["recorded_at"].min().sort_values().index
    subjects = rows[rows["side"] == "head"].groupby("run_id")["subject"].first()
    dosed = set(_dosed(study, subjects.to_dict()))
    base = rows[rows["side"] == "base"]
    base = base[[pair not in dosed for pair in zip(base["run_id"], base["name"], strict=True)]].copy()
    if level.startswith("launch"):
        base = base[base["launch"] == base.groupby("run_id")["launch"].transform("min") + int(level[-1]) - 1]
    rounds = level if level in {"median", "mean"} else "quickest"
    base["quickest"] = [min(values) for values in base["values"]]
    levels = base.pivot_table(
        index="run_id", columns="name", values=rounds, aggfunc=lambda column: column.quantile(_LOWER)
    )
    return np.asarray(levels.reindex(index=order, columns=list(plan.SIX)), dtype=np.float64)


def _dosed(study: str, subjects: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (run, benchmark) where base itself does another amount of work than in the other runs."""
    cases = {case.subject: case for case in plan.plan_study(study)}
    for run_id, subject in subjects.items():
        case = cases[subject]
        if case.benchmark is not None and case.base != plan.UNDOSED:
            yield run_id, case.benchmark


Noise = Callable[[np.random.Generator], FloatArray]


def _correlated(correlation: float) -> Noise:
    def draw(source: np.random.Generator) -> FloatArray:
        innovations = source.standard_normal(RUNS) * np.sqrt(1 - correlation**2)
        levels = [float(source.standard_normal())]
        for innovation in innovations:
            levels.append(correlation * levels[-1] + innovation)
        return np.array(levels[1:])

    return draw


def _wandering(drift: float) -> Noise:
    return lambda source: source.standard_normal(RUNS) + drift * np.cumsum(source.standard_normal(RUNS))


def _sessions(sd: float) -> Noise:
    def draw(source: np.random.Generator) -> FloatArray:
        sizes = source.integers(3, 13, size=RUNS)
        offsets = np.repeat(sd * source.standard_normal(RUNS), sizes)[:RUNS]
        return np.asarray(source.standard_normal(RUNS) + offsets)

    return draw


def _bursts(source: np.random.Generator) -> FloatArray:
    noise = source.standard_normal(RUNS)
    for start in source.integers(RUNS, size=source.poisson(3)):
        noise[start : start + source.integers(1, 4)] += source.exponential(10)
    return noise


def _spikes(source: np.random.Generator) -> FloatArray:
    return source.standard_normal(RUNS) + (source.random(RUNS) < 0.1) * source.exponential(10, RUNS)


def _two_speeds(share: float) -> Noise:
    return lambda source: source.standard_normal(RUNS) / 2 + 5.0 * (source.random(RUNS) < share)


# Noise of logarithms, in parts of the sd of single runs; none of it has a step.
NOISES: Mapping[str, Noise] = {
    "normal": lambda source: source.standard_normal(RUNS),
    "heavy tails: t of 3 degrees": lambda source: source.standard_t(3, RUNS),
    "t of 2 degrees": lambda source: source.standard_t(2, RUNS),
    "skewed: lognormal": lambda source: source.lognormal(0, 1, RUNS),
    "neighbours correlate by 0.3": _correlated(0.3),
    "... by 0.5": _correlated(0.5),
    "... by 0.8": _correlated(0.8),
    "wandering by 0.05 of the sd from run to run": _wandering(0.05),
    "... by 0.1": _wandering(0.1),
    "... by 0.3": _wandering(0.3),
    "a random walk and nothing else": lambda source: np.cumsum(source.standard_normal(RUNS)),
    "occasions of 3 to 12 runs that differ by half the sd": _sessions(0.5),
    "... by the whole sd": _sessions(1.0),
    "spikes in every tenth run": _spikes,
    "bursts of one to three runs": _bursts,
    "each run fast or slow, by a coin": _two_speeds(0.5),
    "every fifth run slow, at random": _two_speeds(0.2),
    "noise that grows threefold": lambda source: source.standard_normal(RUNS) * np.linspace(1, 3, RUNS),
    "a steady rise by two sds": lambda source: source.standard_normal(RUNS) + np.linspace(0, 2, RUNS),
}
SD = 0.01


def simulate(noise: str, number: int) -> FloatArray:
    """Return levels about 1 of a kind of noise, the same for the same number."""
    source = np.random.default_rng([list(NOISES).index(noise), number])
    return np.asarray(np.exp(SD * NOISES[noise](source)))
