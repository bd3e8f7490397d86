"""Samples of the running line of a training loop, and what was tried beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

    ``phase`` is the outermost part of torch on the stack, ``inner`` the library that the innermost own line
    called. ``no_grad`` means that gradients were off.
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
