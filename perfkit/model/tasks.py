"""Tasks: one piece of measuring each, as plain values that JSON can carry to another machine."""

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
