"""A launch that a throttled device spoilt is kept apart and made once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from perfkit.gating.run import WatchedLaunches
from perfkit.runner.lockstep.launch import Failure, LaunchRecord
from perfkit.runner.lockstep.schedule import Slot
from perfkit.runner.machine.devices import DeviceState

SLOT = Slot(launch=0, block=0, forked_first="base", begins="head")
COOL = DeviceState(index=0, temperature_c=40)
HOT = DeviceState(index=0, temperature_c=90, reasons=("too hot for the driver",))


@dataclass
class CountedLaunches:
    """Launches that are told apart by their number."""

    failures: tuple[Failure, ...] = ()
    made: int = 0
    asked: list[object] = field(default_factory=list)

    @property
    def preloader(self) -> int:
        """All have one."""
        return 1

    @property
    def group_s(self) -> float:
        """Beginning a group takes no time."""
        return 0.0

    def prepare(self) -> None:
        """Note it."""
        self.asked.append("prepare")

    def make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
        """Return a record with its number."""
        assert SLOT == slot
        self.made += 1
        return LaunchRecord(
            timings={}, failures=self.failures, reports={}, seconds=dict.fromkeys(nodes, float(self.made))
        )

    def learn(self, libraries: Sequence[str]) -> None:
        """Note it."""
        self.asked.append(libraries)

    def expect(self, shared_variance: float) -> None:
        """Note it."""
        self.asked.append(shared_variance)


@pytest.mark.parametrize(
    ("after", "counts", "spoilt", "marks"),
    [
        ([COOL], 1.0, [], ()),
        ([HOT, COOL], 2.0, [1.0], ()),
        ([HOT, HOT, COOL], 3.0, [1.0, 2.0], ()),
        ([HOT, HOT, HOT, COOL], 3.0, [1.0, 2.0], ("throttled",)),
    ],
)
def test_a_throttled_launch_is_repeated_twice_at_most(
    after: list[DeviceState], counts: float, spoilt: list[float], marks: tuple[str, ...]
) -> None:
    """What counts is the first good try; a device that stays hot has its third one count, marked."""
    states = iter([state for end in after for state in (COOL, end)])
    launches = WatchedLaunches(CountedLaunches(), lambda: (next(states),))

    record = launches.make(SLOT, ["test_a"])

    assert (counts, marks) == (record.seconds["test_a"], record.marks)
    assert spoilt == [one.seconds["test_a"] for one in record.set_aside]
    assert all(one.marks == ("throttled",) for one in record.set_aside)
    assert "40" == record.facts["gpu0_temperature_c_before"]


def test_what_the_launches_set_aside_is_kept_as_well() -> None:
    """That of a try that a throttled device spoilt, and that of the one that counts."""

    @dataclass
    class Alternating(CountedLaunches):
        def make(self, slot: Slot, nodes: Sequence[str]) -> LaunchRecord:
            """Return a record that has set one aside, as where sides have no room together."""
            record = super().make(slot, nodes)
            return replace(record, set_aside=(replace(record, marks=("no room for both sides",)),))

    states = iter([COOL, HOT, COOL, COOL])

    record = WatchedLaunches(Alternating(), lambda: (next(states),)).make(SLOT, ["test_a"])

    assert [(1.0, "no room for both sides"), (1.0, "throttled"), (2.0, "no room for both sides")] == [
        (one.seconds["test_a"], *one.marks) for one in record.set_aside
    ]
    assert all(not one.set_aside for one in record.set_aside)


def test_a_failure_is_not_tried_again() -> None:
    """The benchmark would fail on a cool device as well."""
    failure = Failure(node="test_a", side="head", status="error", message="ValueError")
    inner = CountedLaunches(failures=(failure,))

    record = WatchedLaunches(inner, lambda: (HOT,)).make(SLOT, ["test_a"])

    assert (1, ("throttled",)) == (inner.made, record.marks)


def test_without_devices_a_launch_is_what_it_was() -> None:
    """Nothing is added to it, and whatever else is asked goes to the launches themselves."""
    inner = CountedLaunches()
    launches = WatchedLaunches(inner, tuple)
    launches.prepare()
    launches.learn(["numpy"])
    launches.expect(0.5)

    record = launches.make(SLOT, ["test_a"])

    assert ({}, (), ()) == (record.facts, record.marks, record.set_aside)
    assert ["prepare", ["numpy"], 0.5] == inner.asked
    assert 1 == launches.preloader
