"""The order for the process of a pass and its result, as JSON files."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from perfkit.model import (
    Balance,
    Environment,
    LineTime,
    MemoryProfile,
    PassName,
    PassSummary,
    ProfileEntry,
    RoleProfile,
    Status,
)
from perfkit.profiling.passes.targets import StepLine, Target
from perfkit.runner.agent.counters.model import Counts

RESULT_FILE = "result.json"
OUTPUT_FILE = "output.log"
# Times at which a pass with turns was stopped: [begin, end] in seconds of the monotonic clock, one a line.
STOPS_FILE = "stops.jsonl"
# What a rank leaves for the case that all of them hang: its steps so far, and where it stands when asked.
STEPS_FILE = "steps"
STACK_FILE = "stack"
# The signal that asks a rank where it stands.
ASKING = signal.SIGUSR2
DONE = "done"
WAITING = "waiting"
# A turn is sent as a number of steps, in this many bytes, the lowest first.
TURN_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """Which of ``ranks`` processes of a distributed loop one is, and the port at which they meet."""

    rank: int
    ranks: int
    port: int


@dataclass(frozen=True, kw_only=True)
class PassSpec:
    """One pass to make: paths are absolute, ``steps`` ends it early, ``artifact`` begins each file's name.

    ``known_steps`` is how many optimizer steps an earlier pass saw. ``environment_reader`` names, as
    "module:function", what is called at the end of the pass: settings are known only where torch is loaded.
    ``line_entries`` are functions of an earlier cProfile whose lines are to be timed, ``lines`` named ones.
    ``step_at`` is the line that ends a step in place of an optimizer.
    ``from_root`` runs the target as if it were started there. ``rank_place`` makes the process one rank of a
    distributed loop.
    """

    name: PassName
    target: Target
    arguments: tuple[str, ...]
    root: str
    own: tuple[str, ...]
    folder: str
    artifact: str
    steps: int | None = None
    known_steps: int | None = None
    trace_all: bool = False
    lines: tuple[str, ...] = ()
    line_entries: tuple[ProfileEntry, ...] = ()
    environment_reader: str | None = None
    from_root: bool = False
    rank_place: RankPlace | None = None
    step_at: StepLine | None = None

    @property
    def started_in(self) -> Path:
        """The folder in which the target is started."""
        return self.target.started_in or (Path(self.root) if self.from_root else Path.cwd())


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a pass gave nothing; ``message`` is one line.

    The request was wrong ("usage"), the target failed ("failed"), or perfkit did ("internal").
    """

    kind: Literal["usage", "failed", "internal"]
    message: str
    status: Status = "error"
    details: str = ""


@dataclass(frozen=True, kw_only=True)
class PassResult:
    """What a pass gave: a summary or a problem, and the names of the files it left in its folder.

    ``version`` has 16 hex digits of a hash of the target's own source, or is empty where it was not reached;
    ``steps_before`` counts the optimizer steps that were done when a target failed.
    """

    summary: PassSummary | None = None
    problem: Problem | None = None
    steps_before: int = 0
    version: str = ""
    environment: Environment | None = None
    entries: tuple[ProfileEntry, ...] = ()
    files: tuple[str, ...] = ()
    balance: Balance | None = None
    roles: tuple[RoleProfile, ...] = ()
    lines: tuple[LineTime, ...] = ()
    counts: Counts | None = None
    memory: MemoryProfile | None = None


def read_result(folder: Path) -> PassResult | None:
    """Read what a pass gave; None where its process died before it could write any."""
    try:
        return msgspec.json.decode((folder / RESULT_FILE).read_bytes(), type=PassResult)
    except (OSError, msgspec.DecodeError):
        return None
