"""A profile as read from a file, of any tool: functions, operators, steps and waits."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perfkit.model.memory import PhaseMemory

Origin = Literal["cProfile", "torch trace", "perfkit summary"]
FunctionKind = Literal["own", "library", "builtin"]
Place = Literal["cpu", "device"]
# Why a device was idle: the host had not launched its next work, or had waited for the device first; or the
# work was launched in time and had not begun, since it waited for other work or for its start.
IdleCause = Literal["host", "sync", "queue"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """The part of a function's calls and times that one caller made, which is an index into the functions."""

    caller: int
    calls: int
    own_s: float
    cumulative_s: float


@dataclass(frozen=True, kw_only=True)
class FunctionTime:
    """One function of a cProfile; a builtin has an empty ``file``. Times are totals in seconds."""

    file: str
    line: int
    function: str
    kind: FunctionKind
    calls: int
    primitive_calls: int
    own_s: float
    cumulative_s: float
    callers: tuple[Call, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OperatorTime:
    """One operator on the processor, or one kernel on the device, in seconds.

    Over several threads or streams ``own_s`` adds up, and ``busy_s`` is the time of at least one.
    """

    name: str
    place: Place
    calls: int
    own_s: float
    cumulative_s: float
    busy_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """How many training steps a profile holds, the ``sign`` they were counted by, and ``seconds`` of each."""

    count: int
    sign: str
    seconds: tuple[float, ...] = ()

    @property
    def typical_s(self) -> float | None:
        """The median step; None where single steps are not known."""
        return statistics.median(self.seconds) if self.seconds else None


@dataclass(frozen=True, kw_only=True)
class PhaseTime:
    """A part of a training step: its seconds over all steps, and its calls of operators where known."""

    name: str
    seconds: float
    calls: int | None = None


@dataclass(frozen=True, kw_only=True)
class WaitTime:
    """Time in which the profiled thread waited: for whom, and through which calls, largest first."""

    whom: str
    seconds: float
    calls: int
    through: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DeviceTime:
    """What one device did within a trace's window, in seconds that add up to the window.

    ``communication_s`` and ``copy_s`` exclude what overlaps computing; ``waited_for`` are the host's phases
    while the device was idle; ``short_kernels`` take less than 5 us.
    """

    name: str
    compute_s: float
    communication_s: float
    copy_s: float
    idle_s: Mapping[IdleCause, float]
    waited_for: tuple[PhaseTime, ...]
    launches: int
    kernels: int
    short_kernels: int
    collectives_s: float
    launches_without_kernel: int
    kernels_without_launch: int


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The content of a profile's file; parts that its format does not have are empty or None.

    ``total_s`` is of the profiled thread, or of a trace's window; ``phases`` and their residual add up to the
    steps.
    """

    name: str
    origin: Origin
    total_s: float
    calls: int | None = None
    steps: StepTimes | None = None
    functions: tuple[FunctionTime, ...] = ()
    operators: tuple[OperatorTime, ...] = ()
    phases: tuple[PhaseTime, ...] = ()
    waits: tuple[WaitTime, ...] = ()
    device_busy_s: float | None = None
    devices: tuple[DeviceTime, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    samples: int | None = None
    memory: tuple[PhaseMemory, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def step_s(self) -> float | None:
        """Seconds per step: the whole over the number of steps; None without steps."""
        return self.total_s / self.steps.count if self.steps and self.steps.count else None


DATA = "data wait"
# What an agent acts in.
ENVIRONMENT = "environment"
TO_DEVICE = "host to device"
FORWARD = "forward"
LOSS = "loss"
# A trace does not distinguish the two.
FORWARD_AND_LOSS = "forward and loss"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
TO_HOST = "device to host"
# These are no part of a step.
EVALUATION = "evaluation"
ROLLOUT = "rollout"
CHECKPOINT = "checkpoint"
LOGGING = "logging"
# Collectives, such as an all-reduce: their own work, and the wait for the ranks that come later.
RANKS = "other ranks"
# A step goes through them in this order.
PHASES = (
    *(DATA, ENVIRONMENT, TO_DEVICE, FORWARD, LOSS, BACKWARD, RANKS, OPTIMIZER, TO_HOST),
    *(EVALUATION, LOGGING),
)
TRACED_PHASES = (DATA, TO_DEVICE, FORWARD_AND_LOSS, BACKWARD, OPTIMIZER, RANKS)
RESIDUAL = "residual"
# In a trace, the names of phases that the user has named begin with this.
MARK = "phase: "
