"""Facts about the workers of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from perfkit.model.tasks import MachineClass


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
