"""The results of profiling a training loop: passes, functions, samples, summary, and differences."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from perfkit.agent.counters.model import Counts
from perfkit.model.readings import PHASES, MemoryProfile, OperatorTime, PhaseMemory, WaitTime
from perfkit.model.results import Commit, Environment, Machine

PassName = Literal["clean", "balance", "counts", "cprofile", "torch", "lines", "memory"]


def _place(phase: PhaseSeconds | PhaseMemory) -> int:
    return PHASES.index(phase.name) if phase.name in PHASES else len(PHASES)


@dataclass(frozen=True, kw_only=True)
class RatioInterval:
    """The ratio of two loops' step times with its interval, from ``pairs`` of turns of both."""

    ratio: float
    low: float
    high: float
    confidence: float
    pairs: int


@dataclass(frozen=True, kw_only=True)
class PhaseSeconds:
    """One phase of the training step: its time in every step, in measured order."""

    name: str
    seconds: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Balance:
    """The phases of training steps as hooks saw them, and the time of each step, in seconds.

    ``cost`` is the ratio to a loop without hooks that took turns with it. ``loader_s`` is the workers' time
    for the batches of a step, ``memory`` an accelerator's by phase.
    """

    step_s: tuple[float, ...]
    phases: tuple[PhaseSeconds, ...]
    loader_s: float | None = None
    cost: RatioInterval | None = None
    memory: tuple[PhaseMemory, ...] = ()

    def seconds_of(self, name: str) -> tuple[float, ...]:
        """Return the time of a phase in every step: nothing where no step had that phase."""
        found = next((phase.seconds for phase in self.phases if phase.name == name), None)
        return (0.0,) * len(self.step_s) if found is None else found

    @property
    def residual_s(self) -> tuple[float, ...]:
        """The seconds of each step that no hook saw."""
        return tuple(
            whole - sum(phase.seconds[step] for phase in self.phases)
            for step, whole in enumerate(self.step_s)
        )

    @property
    def in_order(self) -> tuple[PhaseSeconds, ...]:
        """The phases as a step goes through them, then those that the user named."""
        return tuple(sorted(self.phases, key=_place))

    @property
    def memory_in_order(self) -> tuple[PhaseMemory, ...]:
        """The memory of phases as a step goes through them, then that of phases which the user named."""
        return tuple(sorted(self.memory, key=_place))

    @property
    def typical(self) -> slice:
        """The steps that represent the loop: without the first, the set-up's, if there are three or more."""
        return slice(1 if len(self.step_s) >= 3 else 0, None)  # noqa: PLR2004 (a median needs two)


@dataclass(frozen=True, kw_only=True)
class PeriodTime:
    """What a run did besides training, such as evaluations: seconds, and how often."""

    name: str
    seconds: float
    times: int


@dataclass(frozen=True, kw_only=True)
class PassSummary:
    """One pass over a training loop; ``step_s`` are the times between the ends of steps, in order.

    The first step counts from the target's start; ``periods`` are no part of any. ``data_wait_s`` is spent in
    loaders that are trained with. ``unit`` describes a step; ``marked`` ones end with no optimizer's step.
    ``ended`` is why nothing that was asked for made the pass shorter than the target.
    """

    name: PassName
    total_s: float
    step_s: tuple[float, ...]
    samples: int | None
    data_wait_s: float | None = None
    data_workers: int | None = None
    profiled_from: int = 0
    on_device: bool = False
    marked: bool = False
    unit: str = ""
    periods: tuple[PeriodTime, ...] = ()
    ended: Literal["", "limit", "interrupted"] = ""

    @property
    def steps(self) -> int:
        """The number of steps that the pass saw."""
        return len(self.step_s)

    @property
    def typical_steps(self) -> tuple[float, ...]:
        """The steps that represent the loop: those watched, without the first if there are three or more."""
        skipped = max(self.profiled_from, 1 if self.steps >= 3 else 0)  # noqa: PLR2004 (a median needs two)
        return self.step_s[skipped:] or self.step_s

    @property
    def typical_step_s(self) -> float | None:
        """The median of ``typical_steps``; None where no step was seen."""
        return statistics.median(self.typical_steps) if self.step_s else None

    @property
    def mean_step_s(self) -> float | None:
        """The mean of ``typical_steps``; None where no step was seen."""
        return statistics.fmean(self.typical_steps) if self.step_s else None

    @property
    def sample_s(self) -> float | None:
        """Seconds per training sample; None where steps or samples are not known."""
        return self.mean_step_s * self.steps / self.samples if self.mean_step_s and self.samples else None


@dataclass(frozen=True, kw_only=True)
class ProfileEntry:
    """One function of a cProfile, times in seconds over the whole pass."""

    file: str
    line: int
    function: str
    calls: int
    own_s: float
    cumulative_s: float
    kind: Literal["wait", "own", "library"]


@dataclass(frozen=True, kw_only=True)
class LineTime:
    """One line of a function whose lines were timed: its text, how often it ran, and seconds in all."""

    file: str
    line: int
    text: str
    hits: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class RoleProfile:
    """What all processes or threads of one role in the loop did, such as "worker0" or "pin_memory"."""

    role: str
    file: str
    total_s: float
    entries: tuple[ProfileEntry, ...]


@dataclass(frozen=True, kw_only=True)
class RankProfile:
    """One process of a distributed loop: its passes, what its steps are made of, and its cProfile's file."""

    rank: int
    passes: tuple[PassSummary, ...]
    balance: Balance | None = None
    file: str | None = None

    def pass_named(self, name: PassName) -> PassSummary | None:
        """Return one of the passes, None where it was not made."""
        return next((found for found in self.passes if found.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Straggler:
    """The rank that the others wait for in ``last`` of ``of`` representative steps.

    They wait ``waited_s`` seconds in the median, ``share`` of a step; it spends ``phase_s`` more in
    ``phase``.
    """

    rank: int
    last: int
    of: int
    waited_s: float
    share: float
    phase: str
    phase_s: float


@dataclass(frozen=True, kw_only=True)
class ProfileSummary:
    """What ``perfkit profile`` found, as saved in ``NAME.json``.

    ``backward`` divides the backward pass of the torch pass by its nodes. ``problem`` describes what could
    not be measured. Of a distributed loop all but ``ranks`` is of rank 0.
    """

    schema_version: int
    name: str
    target: str
    arguments: tuple[str, ...]
    recorded_at: datetime
    commit: Commit | None
    machine: Machine
    environment: Environment
    configuration: Mapping[str, str]
    passes: tuple[PassSummary, ...]
    entries: tuple[ProfileEntry, ...]
    artifacts: tuple[str, ...]
    balance: Balance | None = None
    roles: tuple[RoleProfile, ...] = ()
    lines: tuple[LineTime, ...] = ()
    waits: tuple[WaitTime, ...] = ()
    backward: tuple[OperatorTime, ...] = ()
    counts: Counts | None = None
    memory: MemoryProfile | None = None
    problem: str | None = None
    waited_s: float = 0.0
    ranks: tuple[RankProfile, ...] = ()
    straggler: Straggler | None = None

    def pass_named(self, name: PassName) -> PassSummary | None:
        """Return one of the passes, None where it was not asked for."""
        return next((found for found in self.passes if found.name == name), None)

    @property
    def main_pass(self) -> PassSummary:
        """The pass whose times are reported: the clean one where there is one."""
        return self.pass_named("clean") or self.passes[0]

    @property
    def waiting_share(self) -> float | None:
        """The share of the main pass that was spent waiting for data; None where it is not known."""
        main = self.main_pass
        return None if main.data_wait_s is None or not main.total_s else main.data_wait_s / main.total_s

    def distortion(self, name: PassName) -> float | None:
        """Return profiled / clean: by median step, or by all steps together where fewer than three."""
        clean, profiled = self.pass_named("clean"), self.pass_named(name)
        if clean is None or profiled is None or clean is profiled:
            return None
        if min(clean.steps, profiled.steps) >= 3:  # noqa: PLR2004 (below, a median is no better than a total)
            return _ratio(profiled.typical_step_s, clean.typical_step_s)
        if profiled.steps != clean.steps:
            return None
        if clean.steps:
            return _ratio(sum(profiled.step_s), sum(clean.step_s))
        # The total of the torch pass includes the processing of the trace.
        return None if name == "torch" else _ratio(profiled.total_s, clean.total_s)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


# What of torch is on the stack of a sample; the outermost one decides.
DATA, COMPILING, UPDATE, BACKWARD, MODEL = "data", "compiling", "optimizer", "backward", "model"
# What the innermost own line called, where that shows what it does.
WAIT, LOGGING, COPY, LIBRARY = "wait", "logging", "copy", "library"
_PHASES = (
    ("torch/utils/data/", DATA),
    ("torch/optim/", UPDATE),
    ("torch/autograd/__init__.py", BACKWARD),
    ("torch/nn/modules/module.py", MODEL),
)
_COMPILER = "torch/_dynamo/convert_frame.py"
_INNER = (
    *(
        (f"/{name}/", LOGGING)
        for name in ("logging", "tensorboard", "tensorboardX", "wandb", "mlflow", "json")
    ),
    ("/tqdm/", LOGGING),
    ("torch/serialization.py", LOGGING),
    ("/copy.py", COPY),
    *((f"/{name}", WAIT) for name in ("multiprocessing/", "selectors.py", "threading.py", "queue.py")),
)


@dataclass(frozen=True, kw_only=True)
class OwnLine:
    """A line of the user's own code, in the function that it belongs to."""

    file: str
    line: int
    function: str
    text: str = ""

    @property
    def place(self) -> str:
        """The line as people write it."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class LineSample:
    """The seconds at one stack of own ``lines``, innermost first, in each block of steps.

    ``phase`` is the outermost part of torch on the stack, but an optimizer's closure is no part of it;
    ``inner`` is the library that the innermost own line called. ``no_grad`` means that gradients were off.
    """

    lines: tuple[OwnLine, ...]
    phase: str
    inner: str
    no_grad: bool
    seconds: tuple[float, ...]

    @property
    def total_s(self) -> float:
        """The seconds of all blocks."""
        return sum(self.seconds)


@dataclass(frozen=True, kw_only=True)
class LoopSamples:
    """Where the time of a loop's steps went, in blocks of ``block_steps`` steps after the set-up.

    ``worker_samples`` are of the loader's processes, for all of their ``worker_batches``. ``trials`` have the
    ratios of a changed part's time to the present one, measured by turns; ``facts`` are of the loop's set-up.
    """

    block_s: tuple[float, ...]
    block_steps: int
    samples: tuple[LineSample, ...]
    worker_samples: tuple[LineSample, ...] = ()
    worker_batches: int = 0
    trials: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def step_s(self) -> float:
        """Seconds of a step, everything between two ends of steps included."""
        return sum(self.block_s) / (len(self.block_s) * self.block_steps)


def part_of_library(file: str) -> tuple[str, str]:
    """Return the part of torch that a file is of, or "", and what a call of it from own code does."""
    phase = next((name for part, name in _PHASES if part in file), "")
    inner = next((name for part, name in _INNER if part in file), LIBRARY)
    return COMPILING if file.endswith(_COMPILER) else phase, inner


# Both profiles are divided by the number of these, so that they describe equal work.
Unit = Literal["step", "sample", "whole run", "call"]
PartKind = Literal["own code", "library", "wait", "phase", "operator", "kernel", "worker"]


@dataclass(frozen=True, kw_only=True)
class Amount:
    """The time of something on both sides in seconds per unit of work, and its calls per unit where known."""

    base_s: float
    head_s: float
    base_calls: float | None = None
    head_calls: float | None = None

    @property
    def moved_s(self) -> float:
        """Head less base."""
        return self.head_s - self.base_s


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part of a whole, with its own parts, the most moved first; ``was`` is its name on base."""

    name: str
    kind: PartKind
    amount: Amount
    place: str = ""
    was: str = ""
    through: tuple[Part, ...] = ()


def most_moved_first(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Return the parts sorted by how far they moved, in either direction."""
    return tuple(sorted(parts, key=lambda part: -abs(part.amount.moved_s)))


@dataclass(frozen=True, kw_only=True)
class Section:
    """One way to divide a step, or a whole run: parts that add up to it together with the remainder."""

    title: str
    whole: Amount
    parts: tuple[Part, ...]

    @property
    def remainder_s(self) -> float:
        """The seconds of the whole's move that no part explains."""
        return self.whole.moved_s - sum(part.amount.moved_s for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two profiles compared per ``unit`` of equal work; ``ratio`` is of steps without a profiler."""

    base: str
    head: str
    unit: Unit
    whole: Amount
    sections: tuple[Section, ...]
    findings: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    ratio: RatioInterval | None = None


@dataclass(frozen=True, kw_only=True)
class FlameFrame:
    """A function along one path of callers: ``amount`` with all that it called, ``own`` without.

    ``own`` includes calls too small for a frame; ``was`` is its name on base.
    """

    name: str
    place: str
    amount: Amount
    own: Amount
    was: str = ""
    inner: tuple[FlameFrame, ...] = ()
