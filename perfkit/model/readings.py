"""A profile as read from a file, of any tool: functions, operators, steps, waits and memory."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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


_GIB = 1 << 30
# What a loop makes on first use, such as an optimizer's state, is there after this many steps; growth in each
# of at least this many others is no chance.
_STEPS_OF_SETUP = 2
_FEWEST_OF_GROWTH = 3


@dataclass(frozen=True, kw_only=True)
class LineMemory:
    """What one line allocated, in bytes: the storages of tensors, or Python's objects.

    ``allocated`` has the bytes of each step, freed ones too (unknown of Python's objects); ``alive`` those
    that were there at the end of each step. ``what`` is the operator that allocated most.
    """

    kind: Literal["tensors", "Python"]
    place: str
    alive: tuple[int, ...]
    allocated: tuple[int, ...] = ()
    what: str = ""
    text: str = ""

    @property
    def step_bytes(self) -> float | None:
        """The bytes allocated in a step, as the median of those after the set-up; None where not known."""
        return (
            statistics.median(self.allocated[_STEPS_OF_SETUP:] or self.allocated) if self.allocated else None
        )

    @property
    def stays_bytes(self) -> int:
        """The bytes alive after the last step."""
        return self.alive[-1]

    @property
    def growth_bytes(self) -> float:
        """The bytes by which it grew in a step, on average of those after the set-up; 0 without any."""
        later = self.alive[_STEPS_OF_SETUP - 1 :]
        return (later[-1] - later[0]) / (len(later) - 1) if len(later) > 1 else 0.0

    @property
    def leaks(self) -> bool:
        """Whether it grew in each step after the set-up, and there were enough of them to be no chance."""
        later = self.alive[_STEPS_OF_SETUP - 1 :]
        moves = [after - before for before, after in itertools.pairwise(later)]
        return len(moves) >= _FEWEST_OF_GROWTH and all(move > 0 for move in moves)


@dataclass(frozen=True, kw_only=True)
class MemoryProfile:
    """The memory of a loop by line, over ``steps`` steps (0: the whole run is one), in bytes."""

    steps: int
    lines: tuple[LineMemory, ...]
    peak: tuple[int, ...] = ()
    not_seen: str = ""

    @property
    def shows_growth(self) -> bool:
        """Whether there were enough steps to distinguish growth from chance."""
        return self.steps >= _STEPS_OF_SETUP + _FEWEST_OF_GROWTH


@dataclass(frozen=True, kw_only=True)
class PhaseMemory:
    """The peak bytes that an accelerator's allocator gave to tensors and reserved in one phase.

    ``unusable`` was free at its end in parts of segments; ``retries`` counts how often memory was given back
    first.
    """

    name: str
    allocated: int
    reserved: int
    unusable: int
    retries: int


@dataclass(frozen=True, kw_only=True)
class StackMemory:
    """The bytes of tensors by one stack of "file:line function", innermost first, if it was recorded."""

    device: int
    stack: tuple[str, ...]
    size: int
    blocks: int


@dataclass(frozen=True, kw_only=True)
class MemorySnapshot:
    """An allocator at one moment, in bytes: stacks, rounding, waiting, fragments and unused add up.

    ``stacks`` has the largest first. ``waiting`` is used by another stream, ``fragments`` are free parts of
    used segments, ``unused`` whole free segments. Peaks are per device while ``events`` were recorded.
    """

    name: str
    reserved: int
    segments: int
    stacks: tuple[StackMemory, ...]
    rounding: int
    waiting: int
    fragments: int
    unused: int
    largest_free: int
    peak_reserved: int
    peak_allocated: int
    events: int

    @property
    def requested(self) -> int:
        """What all tensors together asked for."""
        return sum(one.size for one in self.stacks)

    def fits(self, gib: float) -> bool | None:
        """Return whether it would fit into this many GiB; None where that depends on segments."""
        if self.peak_reserved <= gib * _GIB:
            return True
        return False if self.peak_allocated > gib * _GIB else None


@dataclass(frozen=True, kw_only=True)
class MemoryPart:
    """A part of what was reserved on both sides, in bytes and blocks; fragments have no stack."""

    name: str
    base: int
    head: int
    base_blocks: int | None = None
    head_blocks: int | None = None
    place: str = ""
    stack: tuple[str, ...] = ()

    @property
    def moved(self) -> int:
        """Head less base."""
        return self.head - self.base


@dataclass(frozen=True, kw_only=True)
class MemoryDifference:
    """Two snapshots compared: ``parts``, the most moved first, add up to ``whole``."""

    base: str
    head: str
    whole: MemoryPart
    parts: tuple[MemoryPart, ...]
    base_peak: int
    head_peak: int


def phase_title(name: str) -> str:
    """Return the words for a phase: what no hook or event saw is other code."""
    return "other code" if name == RESIDUAL else name
