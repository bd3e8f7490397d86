"""Launches whose devices are looked at: one that a throttled device spoilt is made once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from perfkit.gating.sequential import Launches
from perfkit.runner.lockstep.launch import LaunchRecord
from perfkit.runner.lockstep.schedule import Slot
from perfkit.runner.machine.devices import THROTTLED, DeviceState, passage

# A device that is too hot for good would else use up the budget: the third try counts, and is marked.
_MOST_REPEATS = 2


class WatchedLaunches:
    """Makes launches by others, and reads the states of the devices before and after each.

    A launch while clocks were held back is kept apart and repeated, twice at most. Without devices nothing is
    read but that there are none.
    """

    def __init__(self, launches: Launches, states: Callable[[], Sequence[DeviceState]]) -> None:
        self._launches, self._states = launches, states

    @property
    def preloader(self) -> int:
        """The number of the last launch's group."""
        return self._launches.preloader

    @property
    def group_s(self) -> float:
        """The seconds that beginning a group takes for each of its launches."""
        return self._launches.group_s

    def prepare(self) -> None:
        """Get ready for the next launch."""
        self._launches.prepare()

    def make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
        """Measure benchmarks on both sides, again where a device was throttled meanwhile.

        Raises:
            NotMeasuredError: no process can be started any more.
        """
        spoilt: list[LaunchRecord] = []
        while True:
            before = self._states()
            made = self._launches.make(slot, nodes)
            found = passage(before, self._states())
            record = replace(made, facts=found.facts, marks=found.marks)
            if THROTTLED not in found.marks or len(spoilt) == _MOST_REPEATS or record.failures:
                return replace(record, set_aside=(*spoilt, *record.set_aside))
            spoilt += [*record.set_aside, replace(record, set_aside=())]

    def learn(self, libraries: Sequence[str]) -> None:
        """Have preloaders import modules that both sides import."""
        self._launches.learn(libraries)

    def expect(self, shared_variance: float) -> None:
        """Choose the size of later groups."""
        self._launches.expect(shared_variance)
