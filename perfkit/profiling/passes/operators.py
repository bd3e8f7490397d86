"""The operators torch.profiler saw, as a table."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

_MICROSECOND = 1e-6
_STEP_MARK = "ProfilerStep"
COLUMNS = (
    "operator",
    "calls",
    "calls_per_step",
    "self_cpu_s",
    "cpu_s",
    "self_cpu_s_per_step",
    "self_device_s",
    "device_s",
)


class OperatorTotal(Protocol):
    """What torch.profiler sums up for one operator; times in microseconds."""

    key: str
    count: int
    self_cpu_time_total: float
    cpu_time_total: float
    self_device_time_total: float
    device_time_total: float


def write_operators(totals: Iterable[OperatorTotal], file: Path, *, steps: int) -> None:
    """Write one line an operator, costliest first, in seconds over the watched steps.

    Device columns are empty where nothing ran on a device, per-step columns where no step was seen.
    """
    operators = sorted((total for total in totals if not total.key.startswith(_STEP_MARK)), key=_self_time)
    on_device = any(total.device_time_total for total in operators)
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_cells(total, steps, on_device=on_device) for total in operators)


def _self_time(total: OperatorTotal) -> float:
    return -(total.self_cpu_time_total + total.self_device_time_total)


def _cells(total: OperatorTotal, steps: int, *, on_device: bool) -> tuple[Any, ...]:
    self_cpu_s = total.self_cpu_time_total * _MICROSECOND
    return (
        total.key,
        total.count,
        _number(total.count / steps) if steps else "",
        _number(self_cpu_s),
        _number(total.cpu_time_total * _MICROSECOND),
        _number(self_cpu_s / steps) if steps else "",
        _number(total.self_device_time_total * _MICROSECOND) if on_device else "",
        _number(total.device_time_total * _MICROSECOND) if on_device else "",
    )


def _number(value: float) -> str:
    return f"{value:.9g}"
