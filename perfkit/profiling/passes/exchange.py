"""The request for a pass, the changes that it makes to the loop, and the messages of its process."""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perfkit.agent.counters.model import Counts
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
from perfkit.model.profiles import LoopSamples
from perfkit.profiling.passes.targets import Target, Unit

OUTPUT_FILE = "output.log"
# Times at which a pass with turns was stopped: [begin, end] in seconds of the monotonic clock, one a line.
STOPS_FILE = "stops.jsonl"
# Where a rank writes its stack when it gets the signal: all of them may hang.
STACK_FILE = "stack"
_NO_UNIT = Unit()
# The address at which the ranks meet.
HERE = "127.0.0.1"
ASKING = signal.SIGUSR2
# Ends a pass that is to report what it has; programs rarely use this one themselves.
ENDING = getattr(signal, "SIGRTMIN", signal.SIGUSR1)


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """Which of ``ranks`` processes of a distributed loop one is, and the port at which they meet."""

    rank: int
    ranks: int
    port: int


@dataclass(frozen=True, kw_only=True)
class PassSpec:
    """One pass to make: paths are absolute, ``steps`` ends it early, ``artifact`` begins each file's name.

    ``known_steps`` is from an earlier pass. ``environment_reader`` ("module:function") is called at the end,
    when torch is loaded. ``line_entries`` and ``lines`` are functions whose lines are timed. ``unit`` is what
    ends a step, as far as it is known, and ``limit_s`` ends the pass too. With ``by_turns`` the loop waits
    for a number of steps before it makes them. With ``samples`` a clean pass samples the running line;
    ``trial`` is a change to make in it.
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
    unit: Unit = _NO_UNIT
    limit_s: float | None = None
    by_turns: bool = False
    samples: bool = False
    trial: Trial | None = None

    @property
    def started_in(self) -> Path:
        """The folder in which the target is started."""
        return self.target.started_in or (Path(self.root) if self.from_root else Path.cwd())


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a pass gave nothing; ``message`` is one line."""

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
    unit: Unit | None = None
    entries: tuple[ProfileEntry, ...] = ()
    files: tuple[str, ...] = ()
    balance: Balance | None = None
    roles: tuple[RoleProfile, ...] = ()
    lines: tuple[LineTime, ...] = ()
    counts: Counts | None = None
    memory: MemoryProfile | None = None
    samples: LoopSamples | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether Ctrl-C ended the pass, with what was measured until then."""
        return self.summary is not None and self.summary.ended == "interrupted"


@dataclass(frozen=True, kw_only=True)
class PassNews:
    """A message of a pass: how many steps it made, that it waits for its turn, or its result."""

    steps: int | None = None
    waits: bool = False
    result: PassResult | None = None


@dataclass(frozen=True)
class Trial:
    """A change by the name of the cause that it removes, and its ``number`` of workers or threads."""

    name: str
    number: int = 0


def make_change(trial: Trial) -> None:
    """Change torch in this process, before the loop is loaded."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    def with_workers(given: Mapping[str, Any]) -> dict[str, Any]:
        # Workers of an iterable data set would repeat each other.
        if given.get("num_workers") or isinstance(given["dataset"], IterableDataset):
            return {}
        return {"num_workers": trial.number, "persistent_workers": True}

    if trial.name == "loader":
        _construct_with(DataLoader, with_workers)
    elif trial.name == "threads":
        torch.set_num_threads(trial.number)
        _replace(torch, "set_num_threads", lambda _: None)
    elif trial.name == "float64":
        _replace(torch, "set_default_dtype", lambda _: None)
        for kind in (torch.nn.Module, torch.Tensor):
            _replace(kind, "double", kind.float)
    elif trial.name == "optimizer":
        for kind in vars(torch.optim).values():
            if isinstance(kind, type) and "fused" in inspect.signature(kind).parameters:
                _construct_with(kind, lambda _: {"fused": True, "foreach": None})


def _construct_with(kind: type, change: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    construct: Callable[..., None] = vars(kind)["__init__"]
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def changed(*args: object, **keywords: object) -> None:
        passed = signature.bind(*args, **keywords)
        passed.arguments.update(change(passed.arguments))
        construct(*passed.args, **passed.kwargs)

    _replace(kind, "__init__", changed)


def _replace(owner: object, name: str, value: object) -> None:
    setattr(owner, name, value)
