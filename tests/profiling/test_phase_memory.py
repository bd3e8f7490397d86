"""Each phase of a step has the peaks of its own memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from perfkit.model.readings import PhaseMemory
from perfkit.profiling.passes.balance import PhaseClock
from perfkit.profiling.passes.memory import PeakWatch


@dataclass
class FakeAllocator:
    """Counts as torch's allocator does; ``hold`` takes memory, or gives it back."""

    held: int = 0
    peak: int = 0
    reserved: int = 0
    retries: int = 0
    asked: list[str] = field(default_factory=list)

    def hold(self, size: int) -> None:
        """Take or give back so many bytes."""
        self.held += size
        self.peak = max(self.peak, self.held)
        self.reserved = max(self.reserved, self.held)

    def memory_stats_as_nested_dict(self) -> dict[str, Any]:
        """Return the counters by torch's names."""
        self.asked.append("stats")
        return {
            "allocated_bytes": {"all": {"peak": self.peak}},
            "reserved_bytes": {"all": {"peak": self.reserved}},
            "inactive_split_bytes": {"all": {"current": self.reserved - self.held}},
            "num_alloc_retries": self.retries,
        }

    def reset_peak_memory_stats(self) -> None:
        """Begin anew."""
        self.asked.append("reset")
        self.peak = self.held


def test_a_phase_has_its_own_peak() -> None:
    allocator = FakeAllocator()
    watch = PeakWatch(lambda: allocator)
    clock = PhaseClock(watch=watch.change)
    clock.start_step()
    allocator.hold(10)
    for phase, takes, gives in (("forward", 50, 0), ("backward", 30, 75), ("optimizer", 5, 0)):
        clock.begin(phase)
        allocator.hold(takes)
        allocator.hold(-gives)
        clock.end()
    clock.end_step()

    assert (
        PhaseMemory(name="forward", allocated=60, reserved=60, unusable=0, retries=0),
        PhaseMemory(name="backward", allocated=90, reserved=90, unusable=75, retries=0),
        PhaseMemory(name="optimizer", allocated=20, reserved=90, unusable=70, retries=0),
    ) == watch.phases()


def test_over_steps_the_largest_counts_and_retries_add_up() -> None:
    allocator = FakeAllocator(retries=3)
    watch = PeakWatch(lambda: allocator)
    for size, retries in ((40, 1), (20, 2)):
        watch.change("forward")
        allocator.hold(size)
        allocator.hold(-size)
        allocator.retries += retries
        watch.change(None)
        allocator.retries += 7

    (forward,) = watch.phases()
    assert (40, 3) == (forward.allocated, forward.retries)


def test_without_a_device_nothing_is_noted() -> None:
    used: list[FakeAllocator] = []
    watch = PeakWatch(lambda: used[0] if used else None)
    watch.change("forward")
    watch.change("backward")
    used.append(FakeAllocator())
    watch.change("optimizer")
    used[0].hold(8)
    watch.change(None)

    assert [("optimizer", 8)] == [(one.name, one.allocated) for one in watch.phases()]
