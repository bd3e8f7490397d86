"""torch.profiler over a window of steps: its trace, and a table of operators."""

from __future__ import annotations

import csv
import functools
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from perfkit.model.phases import MARK

_ACTIVE_STEPS = 3
_FULL_WINDOW = 5
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


@dataclass(frozen=True, kw_only=True)
class Window:
    """Steps that pass unwatched, then steps that warm the profiler up, then steps that it keeps."""

    wait: int
    warmup: int
    active: int

    @property
    def begin(self) -> int:
        """Number of steps before the first one kept."""
        return self.wait + self.warmup

    @property
    def end(self) -> int:
        """Number of steps after which the run can stop."""
        return self.begin + self.active


class PhaseMarks:
    """Marks the phases that the user names as ranges in a trace, each on the thread that it is in."""

    def __init__(self) -> None:
        self._here = threading.local()

    def enter(self, name: str) -> None:
        """Begin a range."""
        from torch.profiler import record_function

        mark: Any = record_function(f"{MARK}{name}")
        mark.__enter__()
        self._open.append((name, mark))

    def leave(self, name: str) -> None:
        """End the last range of that name, and what is still open in it."""
        if all(name != begun for begun, _ in self._open):
            return
        while self._open:
            begun, mark = self._open.pop()
            mark.__exit__(None, None, None)
            if begun == name:
                return

    @property
    def _open(self) -> list[tuple[str, Any]]:
        if not hasattr(self._here, "ranges"):
            self._here.ranges = []
        ranges: list[tuple[str, Any]] = self._here.ranges
        return ranges


def choose_window(steps: int | None) -> Window:
    """Return the window for a loop of ``steps`` optimizer steps (None: not known, assumed to be enough)."""
    if steps is None or steps >= _FULL_WINDOW:
        return Window(wait=1, warmup=1, active=_ACTIVE_STEPS)
    return Window(wait=0, warmup=int(steps > 1), active=max(1, steps - 1))


def call_after_each_step(callback: Callable[[], None]) -> None:
    """Have ``callback`` called once an optimizer's ``step`` is over and its range in the trace is closed.

    A post hook runs inside that range, so a step of the trace that ended in one would overlap the range.
    """
    from torch.optim import Optimizer

    hook_step = Optimizer.profile_hook_step

    def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
        hooked = hook_step(function)

        @functools.wraps(hooked)
        def step(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (an optimizer's own signature)
            result = hooked(*args, **kwargs)
            callback()
            return result

        return step

    Optimizer.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore[method-assign,assignment]


class OperatorTotal(Protocol):
    """What torch.profiler sums up for one operator; times in microseconds."""

    key: str
    count: int
    self_cpu_time_total: float
    cpu_time_total: float
    self_device_time_total: float
    device_time_total: float


def write_operators(totals: Iterable[OperatorTotal], file: Path, *, steps: int) -> None:
    """Write one line an operator, costliest first, in seconds over the watched steps."""
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
