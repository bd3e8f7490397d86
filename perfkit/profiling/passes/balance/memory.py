"""The peaks of an accelerator's memory in each phase of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from perfkit.model.readings import PhaseMemory
from perfkit.runner.agent.clock import accelerator_in_use

_ALLOCATED, _RESERVED = "allocated_bytes.all", "reserved_bytes.all"
_UNUSABLE, _RETRIES = "inactive_split_bytes.all.current", "num_alloc_retries"


class Allocator(Protocol):
    """What is asked of an allocator: ``torch.cuda`` and ``torch.xpu`` have it."""

    def memory_stats(self) -> Mapping[str, int]:
        """Return its counters."""

    def reset_peak_memory_stats(self) -> None:
        """Let peaks begin at what is held now."""


def allocator_in_use() -> Allocator | None:
    """Return the allocator of the accelerator in use; None where there is none that keeps count."""
    device = accelerator_in_use()
    module: Allocator | None = None if device is None else device.module
    return module if hasattr(module, "memory_stats") else None


class PeakWatch:
    """Reads an allocator's peaks at each change of the phase, and resets them: each phase has its own.

    The allocator counts on the host, so nothing is waited for. What lies between steps is of no phase.
    """

    def __init__(self, find: Callable[[], Allocator | None] = allocator_in_use) -> None:
        self._find = find
        self._label: str | None = None
        self._retries = 0
        self._found: dict[str, PhaseMemory] = {}

    def change(self, label: str | None) -> None:
        """Note what the present phase took, and begin another one; a device may be first used at any time."""
        allocator = self._find()
        if allocator is None:
            return
        stats = allocator.memory_stats()
        retries = int(stats.get(_RETRIES, 0))
        if self._label is not None:
            self._note(self._label, stats, retries - self._retries)
        self._label, self._retries = label, retries
        allocator.reset_peak_memory_stats()

    def phases(self) -> tuple[PhaseMemory, ...]:
        """Return the phases in the order in which they came first."""
        return tuple(self._found.values())

    def _note(self, label: str, stats: Mapping[str, int], retries: int) -> None:
        known = self._found.get(label) or PhaseMemory(
            name=label, allocated=0, reserved=0, unusable=0, retries=0
        )
        self._found[label] = replace(
            known,
            allocated=max(known.allocated, int(stats.get(f"{_ALLOCATED}.peak", 0))),
            reserved=max(known.reserved, int(stats.get(f"{_RESERVED}.peak", 0))),
            unusable=max(known.unusable, int(stats.get(_UNUSABLE, 0))),
            retries=known.retries + retries,
        )
