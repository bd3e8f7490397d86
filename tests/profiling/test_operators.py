"""The table of operators is made from a trace."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from perfkit.profiling.passes.torch_pass import write_operators


@dataclass
class Total:
    """The sum of one operator's events, in microseconds."""

    key: str
    count: int
    self_cpu_time_total: float
    cpu_time_total: float
    self_device_time_total: float = 0.0
    device_time_total: float = 0.0


def written(tmp_path: Path, *totals: Total, steps: int) -> list[dict[str, str]]:
    """Return the rows of the table."""
    write_operators(totals, tmp_path / "ops.csv", steps=steps)
    with (tmp_path / "ops.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_seconds_and_calls_are_per_step(tmp_path: Path) -> None:
    """Microseconds become seconds; calls and own time are also told per step."""
    (row,) = written(tmp_path, Total("aten::mm", 6, 3000.0, 4500.0), steps=3)
    assert ("aten::mm", "6", "2") == (row["operator"], row["calls"], row["calls_per_step"])
    assert (0.003, 0.0045, 0.001) == tuple(
        float(row[name]) for name in ("self_cpu_s", "cpu_s", "self_cpu_s_per_step")
    )


def test_without_device_times_are_empty(tmp_path: Path) -> None:
    """Where nothing ran on a device its time is not known, not 0."""
    (row,) = written(tmp_path, Total("aten::mm", 1, 1.0, 1.0), steps=1)
    assert ("", "") == (row["self_device_s"], row["device_s"])


def test_costliest_operator_comes_first(tmp_path: Path) -> None:
    """Rows are ordered by own time, on the host and the device together; the step's mark is left out."""
    rows = written(
        tmp_path,
        Total("ProfilerStep*", 1, 99.0, 99.0),
        Total("aten::add", 1, 2.0, 2.0),
        Total("aten::mm", 1, 1.0, 1.0, 5.0, 5.0),
        steps=1,
    )
    assert ["aten::mm", "aten::add"] == [row["operator"] for row in rows]


def test_without_steps_there_is_nothing_per_step(tmp_path: Path) -> None:
    """No step, no number per step."""
    (row,) = written(tmp_path, Total("aten::mm", 1, 1.0, 1.0), steps=0)
    assert ("", "") == (row["calls_per_step"], row["self_cpu_s_per_step"])
