"""The engine of this machine: tasks one after another, in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from perfkit.errors import NotMeasuredError
from perfkit.features.cluster.records import MachineClass, Task
from perfkit.features.cluster.tasks import Work


@dataclass(frozen=True, kw_only=True)
class LocalEngine:
    """Does tasks by a function that returns the bytes of a task's file; ``machine`` is this one's class."""

    machine: MachineClass
    perform_task: Callable[[Task], bytes]

    def classes(self) -> tuple[MachineClass, ...]:
        """Return the class of this machine."""
        return (self.machine,)

    def perform(self, work: Work) -> None:
        """Do tasks until none is left; one that cannot be done does not keep the others from it."""
        while (task := work.next(self.machine)) is not None:
            begun = time.monotonic()
            try:
                content = self.perform_task(task)
            except NotMeasuredError as error:
                work.failed(task, str(error))
                continue
            work.done(task, content, seconds=time.monotonic() - begun)
