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
    def text(self) -> str:
        """What people call it."""
        return f"{self.machine_id} ({self.python}, torch {self.torch})"


@dataclass(frozen=True, kw_only=True)
class Code:
    """Where a task finds its code: in the project's ``folder`` of a repository, configured as at ``head``.

    ``overlay`` is a commit of benchmark files laid over each checkout. A worker needs the git ``bundle`` on
    top of its clone of ``address``; both are empty where the repository is at hand.
    """

    head: str
    folder: str = ""
    overlay: str | None = None
    bundle: str = ""
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One piece of measuring on a class of machines; only its ``kind`` understands ``settings``.

    ``beside`` are known commits near by, each with its benchmarks by name: the version, and whether enough
    commits that run the same code are measured.
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
    beside: Mapping[str, Mapping[str, tuple[str, bool]]] = field(default_factory=dict)
