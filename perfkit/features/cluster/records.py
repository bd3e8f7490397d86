"""What an engine is given to do and what it knows of those who do it: plain values that JSON can carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class MachineClass:
    """Machines whose times may be compared: one machine's identity, with the same Python and torch."""

    machine_id: str
    python: str
    torch: str

    @property
    def told(self) -> str:
        """What people call it."""
        return f"{self.machine_id} ({self.python}, torch {self.torch})"


@dataclass(frozen=True, kw_only=True)
class Code:
    """Where a task finds its code: in a repository, the project's ``folder`` below its top.

    ``head`` is the commit whose configuration holds. ``overlay`` is a commit with nothing but the benchmark
    files that are laid over each checkout, None where each commit keeps its own. ``bundle`` names the git
    bundle that a worker needs, and ``address`` is what it clones; both are empty where the repository itself
    is at hand.
    """

    head: str
    folder: str = ""
    overlay: str | None = None
    bundle: str = ""
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of measuring: what, of which commits, on which class of machines.

    ``settings`` are what only its ``kind`` understands. ``stamp`` is the time in the name of its file.
    """

    kind: str
    commits: tuple[str, ...]
    machine: MachineClass
    code: Code
    stamp: datetime
    benchmarks: str = ""
    select: str | None = None
    launches: int = 1
    seed: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """What a worker is: software, machine, free bytes on the disk of its clones, and remarks on its quiet.

    ``version`` is perfkit's, with a hash of its source; ``conditions`` are what a doctor would remark on.
    """

    version: str
    machine: MachineClass
    node: str
    git: str
    free_bytes: int
    conditions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckedWorker:
    """What a check found of one worker; it is fit where ``problems`` is empty."""

    address: str
    facts: WorkerFacts | None = None
    problems: tuple[str, ...] = ()
    task_s: float | None = None

    @property
    def fit(self) -> bool:
        """Whether it may measure."""
        return not self.problems
