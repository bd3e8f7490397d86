"""Writes a large ledger of realistic runs, to see how perfkit fares with years of measurements.

python benchmarks/ledger_scale/generate.py FOLDER RUNS BENCHMARKS [--launches N] [--seed N] [--years N]

Each run measures a commit of its own: 10,000 runs of 100 benchmarks are a million rows. The same arguments
give the same files, to the byte. Times scatter as on a shared machine, some benchmarks step up or down for
good, and a launch in a thousand fails. Tables are built by column: a Python object for each row would take
minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from perfkit.ledger.files import run_stem, write_table
from perfkit.ledger.schema import SCHEMA, SCHEMA_VERSION

VALUES = 10
_LAST = datetime(2026, 11, 1, tzinfo=UTC)
_FAILURE_SHARE = 0.001
_STEP_SHARE = 0.3
_BETWEEN_LAUNCHES, _WITHIN_LAUNCH = 0.02, 0.03
_SUBJECTS = ("Tidy the sampler", "Cache the distances", "Fix a typo", "Upgrade torch", "Vectorise the loss")
_MACHINES = (
    {
        "cpu": "AMD EPYC",
        "logical_cpus": "8",
        "ram_gib": "32",
        "gpus": "",
        "node": "runner-1",
        "architecture": "x86_64",
    },
    {
        "cpu": "Intel Xeon",
        "logical_cpus": "16",
        "ram_gib": "64",
        "gpus": "",
        "node": "runner-2",
        "architecture": "x86_64",
    },
)
_ENVIRONMENT = {"python": "CPython 3.11.7", "torch": "2.13.0+cpu", "cuda": "None", "threads": "2"}
_POLICY = {"mode": "benchmark(...)", "disable_gc": "False", "min_rounds": "5", "max_time": "1.0"}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much to write, and from which seed it is drawn."""

    runs: int
    benchmarks: int
    launches: int = 1
    years: float = 4.0
    seed: int = 1


def commit_sha(number: int) -> str:
    """Return the 40 digits of the commit that a run measures; runs are numbered from 0 in order of time."""
    return hashlib.sha1(f"commit {number}".encode(), usedforsecurity=False).hexdigest()


def commit_time(scale: Scale, number: int) -> datetime:
    """Return when a commit was made; its run follows within minutes."""
    return _LAST - timedelta(days=365.25 * scale.years) * (1 - number / scale.runs)


def benchmark_name(number: int) -> str:
    """Return the node id of a benchmark."""
    return f"benchmarks/bench_part_{number // 10}.py::test_case_{number % 10}[{2 ** (number % 7)}]"


def typical_seconds(scale: Scale) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the true seconds of each benchmark (axis 1) at each commit (axis 0), steps included."""
    draw = np.random.default_rng(scale.seed)
    level = np.exp(draw.uniform(np.log(1e-5), np.log(0.3), scale.benchmarks))
    seconds = np.tile(level, (scale.runs, 1))
    for number in np.flatnonzero(draw.random(scale.benchmarks) < _STEP_SHARE):
        for begin in draw.integers(0, scale.runs, 2):
            seconds[begin:, number] *= np.exp(draw.normal(0.0, 0.12))
    return seconds


def tables(scale: Scale) -> Any:  # noqa: ANN401 (an iterator of names and Arrow's tables, which have no types)
    """Yield the stem of each run's file and its table, oldest first."""
    seconds = typical_seconds(scale)
    constant = _constant_columns(scale)
    for number in range(scale.runs):
        recorded = commit_time(scale, number) + timedelta(minutes=3)
        draw = np.random.default_rng((scale.seed, number))
        run_id = _run_id(recorded, draw)
        columns = (
            constant | _run_columns(scale, number, recorded, run_id) | _measured(scale, seconds[number], draw)
        )
        yield (
            run_stem(recorded, "pytest", run_id),
            pa.table([columns[name] for name in SCHEMA.names], schema=SCHEMA),
        )


def _constant_columns(scale: Scale) -> dict[str, Any]:
    """Return the columns that all runs share."""
    names = [benchmark_name(number) for number in range(scale.benchmarks) for _ in range(scale.launches)]
    rows = len(names)
    texts = {
        "source": "pytest",
        "branch": "main",
        "metric": "time",
        "unit": "s",
        "better": "lower",
        "env_id": "07735a6bd58f",
        "schema_version": SCHEMA_VERSION,
        "dirty": False,
        "exact": False,
        "training": False,
        "partial": False,
        "loops": 1,
        "env": list(_ENVIRONMENT.items()),
        "policy": list(_POLICY.items()),
    }
    columns = {field.name: pa.nulls(rows, field.type) for field in SCHEMA}
    columns |= {name: _repeated(name, value, rows) for name, value in texts.items()}
    params = [[("size", name.partition("[")[2][:-1])] for name in names]
    launches = list(range(scale.launches)) * scale.benchmarks
    versions = [hashlib.sha256(name.encode()).hexdigest()[:16] for name in names]
    named = {"benchmark": names, "params": params, "launch": launches, "version": versions}
    columns |= {name: pa.array(cells, SCHEMA.field(name).type) for name, cells in named.items()}
    columns["group"] = pa.array([name.partition("::")[0] for name in names], pa.string())
    return columns


def _run_columns(scale: Scale, number: int, recorded: datetime, run_id: str) -> dict[str, Any]:
    machine = number * 7 // 10 % len(_MACHINES)
    cells = {
        "run_id": run_id,
        "recorded_at": recorded,
        "commit": commit_sha(number),
        "commit_time": commit_time(scale, number),
        "subject": f"{_SUBJECTS[number % len(_SUBJECTS)]} ({number})",
        "machine_id": f"{machine:012x}",
        "machine": list(_MACHINES[machine].items()),
    }
    rows = scale.benchmarks * scale.launches
    return {name: _repeated(name, value, rows) for name, value in cells.items()}


def _measured(scale: Scale, typical: Any, draw: np.random.Generator) -> dict[str, Any]:  # noqa: ANN401
    """Return what differs from row to row: values and what follows from them, and the failures."""
    rows = scale.benchmarks * scale.launches
    failed = draw.random(rows) < _FAILURE_SHARE
    level = np.repeat(typical, scale.launches) * np.exp(draw.normal(0.0, _BETWEEN_LAUNCHES, rows))
    values = level[:, None] * np.exp(np.abs(draw.normal(0.0, _WITHIN_LAUNCH, (rows, VALUES))))
    counts = np.where(failed, 0, VALUES)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    statistics = {"mean": values.mean(1), "sd": values.std(1, ddof=1), "median": np.median(values, 1)}
    return {
        "values": pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[~failed].ravel())),
        "n": pa.array(counts, pa.int64()),
        **{name: pa.array(cells, pa.float64(), mask=failed) for name, cells in statistics.items()},
        "status": pa.array(np.where(failed, "error", "ok").tolist(), pa.string()),
        "message": pa.array([("ValueError: no" if one else None) for one in failed], pa.string()),
    }


def _repeated(name: str, value: object, rows: int) -> Any:  # noqa: ANN401
    """Return a column that has the same in each row."""
    one = pa.array([value], SCHEMA.field(name).type)
    return one.take(pa.array(np.zeros(rows, dtype=np.int64)))


def _run_id(recorded: datetime, draw: np.random.Generator) -> str:
    """Return the id of a run of that time, as ``new_run_id`` draws it."""
    digits = f"{int(recorded.timestamp() * 1000):012x}7{draw.bytes(10).hex()}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-8{digits[17:20]}-{digits[20:32]}"


def main() -> int:
    """Write the ledger and print how long it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("runs", type=int)
    parser.add_argument("benchmarks", type=int)
    parser.add_argument("--launches", type=int, default=1)
    parser.add_argument("--years", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    given = vars(parser.parse_args())
    folder = given.pop("folder")
    scale = Scale(**given)
    begun = time.monotonic()
    for stem, table in tables(scale):
        write_table(table, folder / f"{stem}.parquet")
    rows = scale.runs * scale.benchmarks * scale.launches
    print(f"{rows} rows in {scale.runs} files of {folder}, in {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
