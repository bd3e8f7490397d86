"""Counts, in each iteration, operators, their waits, the bytes they allocate and save, and their FLOPs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .compiled import CompiledCode
from .dispatch import Dispatched
from .interventions import Patches, collect_recent, undone_in_forks, without_garbage_collection
from .memory import Memory, SavedTensors
from .model import Count, Counts, Tally, causes_of
from .places import Places
from .syncs import Syncs, WaitingMethods, Watching
from .torch_seam import backward_entries

COMPILED = "compiled"
UNITS: Mapping[str, str] = {
    "operators": "1",
    "syncs": "1",
    "allowed_syncs": "1",
    "allocated": "B",
    "peak": "B",
    "saved": "B",
    "flops": "FLOP",
}
_UNITS_WITH_DEVICE: Mapping[str, str] = {"to_device": "B", "to_host": "B"}


class TrainingSteps:
    """Notices backward passes and optimizers' steps between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self._went_backward = False
        self._stepped = False
        self._patches = Patches()
        self._hook: Any = None

    @property
    def seen(self) -> bool:
        """Whether a backward pass and an optimizer's step were noticed."""
        return self._went_backward and self._stepped

    def begin(self) -> None:
        """Begin to notice them."""
        from torch.optim.optimizer import register_optimizer_step_post_hook

        owner, names = backward_entries()
        for name in names:
            self._patches.replace(owner, name, self._noticing(getattr(owner, name)))
        self._hook = register_optimizer_step_post_hook(self._note_step)

    def end(self) -> None:
        """Restore torch as it was."""
        self._patches.undo()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _noticing(self, backward: Any) -> Any:  # noqa: ANN401 (torch's own signature)
        @functools.wraps(backward)
        def noticing(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (likewise)
            self._went_backward = True
            return backward(*args, **kwargs)

        return noticing

    def _note_step(self, *_: object) -> None:
        self._stepped = True


class TensorWatch:
    """Counts what this thread's operators do to tensors between ``with`` and the end of each iteration.

    ``end_iteration`` ends one iteration and begins the next: after a call, or after a training step. Tensors
    that existed before belong to no iteration. When compiled code is about to run, the watch ends for good
    and sets ``is_compiled``, since under the watch that code would run uncompiled. Entering it imports torch.
    """

    def __init__(self, root: Path) -> None:
        self.is_compiled = False
        self._watching = Watching()
        places = Places(root)
        self._memory, self._syncs = Memory(), Syncs(places)
        self._saved = SavedTensors(places, self._memory, self._watching)
        self._methods = WaitingMethods(self._watching, places, self._syncs)
        self._operators = Dispatched(self._watching, places, self._memory, self._syncs, self._saved)
        self._steps = TrainingSteps()
        self._values: dict[str, list[float]] = {}
        self._last: dict[str, Tally] = {}
        self._around = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as around:
            around.enter_context(without_garbage_collection())
            around.enter_context(undone_in_forks(self._leave_process))
            around.enter_context(CompiledCode(self._meet_compiled_code).noticed())
            around.callback(self._leave)
            self._methods.begin()
            self._saved.begin()
            self._steps.begin()
            self._operators.begin()
            self._around = around.pop_all()
        self._watching.on = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watching.on = False
        self._around.close()

    def end_iteration(self) -> None:
        """End an iteration and begin the next one."""
        if not self._watching.on:
            return
        self._watching.on = False
        self._last = self._tallies()
        for metric, tally in self._last.items():
            self._values.setdefault(metric, []).append(float(sum(tally.values())))
        collect_recent()
        for part in (self._memory, self._syncs, self._saved, self._operators):
            part.forget()
        self._watching.on = True

    def counts(self) -> Counts:
        """Return the counts of all iterations that were ended."""
        if self.is_compiled:
            return Counts(counts=(), not_counted=dict.fromkeys(UNITS, COMPILED))
        units = {**UNITS, **(_UNITS_WITH_DEVICE if self._watching.sees_device else {})}
        not_counted = {}
        if self._operators.failed_formula:
            units.pop("flops")
            not_counted["flops"] = f"torch's formula for {self._operators.failed_formula} failed"
        return Counts(
            counts=tuple(
                Count(
                    metric=metric,
                    unit=unit,
                    values=tuple(self._values[metric]),
                    causes=causes_of(self._last[metric]),
                )
                for metric, unit in units.items()
                if metric in self._values
            ),
            not_counted=not_counted,
            training=self._steps.seen,
        )

    def _tallies(self) -> dict[str, Tally]:
        with_device = self._watching.sees_device
        return {
            "operators": self._operators.operators.copy(),
            "syncs": self._syncs.tally(allowed=False, with_device=with_device),
            "allowed_syncs": self._syncs.tally(allowed=True, with_device=with_device),
            "allocated": self._memory.allocated(),
            "peak": self._memory.peak(),
            "saved": self._saved.tally(),
            "flops": self._operators.flops.copy(),
            "to_device": self._operators.to_device.copy(),
            "to_host": self._operators.to_host.copy(),
        }

    def _meet_compiled_code(self) -> None:
        if self._watching.on and self._watching.is_here():
            self._watching.on = False
            self.is_compiled = True
            self._leave()

    def _leave(self) -> None:
        """Remove the watch from torch, except what the watched code has replaced or covered since."""
        self._methods.end()
        self._saved.end()
        self._steps.end()
        self._operators.end()

    def _leave_process(self) -> None:
        """Count nothing in a forked process, where inherited modes and hooks do nothing from now on."""
        self._watching.on = False
        self._methods.end()
        self._steps.end()
        self._saved.leave_be()
