"""Whether both sides of a comparison stay on one device at the same time, and what that does to their times.

Each side's first launch shows what it reserves. Where both have no room together, or where the resident other
side is seen to disturb, each side has the device to itself and the launches of both alternate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from perfkit.agent.clock import DeviceMemory
from perfkit.model import SIDES, Side
from perfkit.runner.lockstep.children import Child
from perfkit.runner.lockstep.launch import LaunchRecord, LaunchRules, other
from perfkit.runner.lockstep.runner import BenchmarkError, Runner
from perfkit.runner.lockstep.turns import LoopPlan, Timing, error_of_median
from perfkit.units import human_bytes, human_seconds

Residency = Literal["together", "by turns"]

# Marks of times that do not count, since the sides were on the device together.
NO_ROOM = "no room for both sides"
DISTURBED = "disturbed by the other side"
# What a process takes besides its tensors: the driver's context, kernels and workspaces of libraries.
_CONTEXT_BYTES = 1 << 30
# Nearly full, an allocator gives memory back and asks again, which takes time of its own.
_KEPT_FREE = 0.1
# The other side disturbs where rounds beside it differ by more than this share, beyond doubt.
_TOLERATED = 0.005
_ERRORS = 3.0
# A side has three blocks of this many turns: without the other one, beside it, and without it again.
_BLOCKS, _TURNS = 3, 8
IN_USE = "it failed while both ran, as where both need the same port or lock file"
_DISTURBS = "the other side on the device disturbs"


@dataclass(frozen=True, kw_only=True)
class Room:
    """A device's memory in bytes: all of it, and what is free before either side has begun."""

    total: int
    free: int


def residency(room: Room, base_peak: int | None, head_peak: int | None) -> Residency:
    """Return whether base and head stay on a device together, and take turns by rounds.

    The peaks are what each side's allocator reserved at most in a launch of its own. Together they and two
    contexts have to leave a tenth of the device free; else each launch has the device to itself, and the
    launches of both sides alternate. A side whose peak is not known yet runs alone.
    """
    if base_peak is None or head_peak is None:
        return "by turns"
    needed = base_peak + head_peak + 2 * _CONTEXT_BYTES
    return "together" if needed <= room.free - _KEPT_FREE * room.total else "by turns"


def launches_that_fit(memory: Mapping[Side, Sequence[DeviceMemory]]) -> int:
    """Return of how many launches both sides have room on the devices at once, 0 where that is not known."""
    rooms = list(_rooms(memory))
    if not rooms or any(side not in memory for side in SIDES):
        return 0
    return min(
        int((room.free - _KEPT_FREE * room.total) / (base + head + 2 * _CONTEXT_BYTES))
        for room, base, head in rooms
    )


def _rooms(memory: Mapping[Side, Sequence[DeviceMemory]]) -> Iterator[tuple[Room, int, int]]:
    """Yield the room of each device without the sides, and the peaks of both."""
    by_device: dict[int, dict[Side, DeviceMemory]] = {}
    for side in SIDES:
        for one in memory.get(side, ()):
            by_device.setdefault(one.index, {})[side] = one
    for found in by_device.values():
        base, head = (found[side].peak if side in found else 0 for side in SIDES)
        held = sum(one.reserved + _CONTEXT_BYTES for one in found.values())
        total = max(one.total for one in found.values())
        yield (
            Room(total=total, free=min(min(one.free for one in found.values()) + held, total)),
            base,
            head,
        )


def why_alone(memory: Mapping[Side, Sequence[DeviceMemory]]) -> str | None:
    """Return why sides that were on the devices together should not be; None where they may stay.

    ``memory`` is what each side held at the end of its rounds, the other one being there.
    """
    if any(side not in memory for side in SIDES):
        return "the device does not report what they reserve and what is free"
    for room, base, head in _rooms(memory):
        if residency(room, base, head) == "by turns":
            return (
                f"base reserves {human_bytes(base)} of the device and head {human_bytes(head)}, and"
                f" {human_bytes(room.free)} of {human_bytes(room.total)} are free for both"
            )
    return None


@dataclass(frozen=True, kw_only=True)
class Effect:
    """By which share rounds of one side take longer beside the other one than without it: an interval."""

    low: float
    high: float

    @property
    def disturbs(self) -> bool:
        """Whether the other side disturbs beyond doubt."""
        return self.low > _TOLERATED or self.high < -_TOLERATED

    @property
    def is_small(self) -> bool:
        """Whether it is proven that the other side does not disturb, as far as anybody need care."""
        return self.low > -_TOLERATED and self.high < _TOLERATED


def effect_of(before_s: Sequence[float], beside_s: Sequence[float], after_s: Sequence[float]) -> Effect:
    """Return the effect of the other side on rounds that took this many seconds before, beside it, and after.

    It is the log of the median beside it over the mean of those without, so that a steady drift cancels out.
    The interval has three standard errors of that, and half of what the two without differ by.
    """
    before, beside, after = ([math.log(one) for one in block] for block in (before_s, beside_s, after_s))
    middles = [statistics.median(block) for block in (before, beside, after)]
    errors = [error_of_median(block) for block in (before, beside, after)]
    effect = middles[1] - (middles[0] + middles[2]) / 2
    error = math.hypot(errors[1], errors[0] / 2, errors[2] / 2)
    width = _ERRORS * error + abs(middles[0] - middles[2]) / 2
    return Effect(low=math.expm1(effect - width), high=math.expm1(effect + width))


@dataclass(frozen=True, kw_only=True)
class Presence:
    """What the presence of the other side did to the rounds of a benchmark on each side."""

    node: str
    effects: Mapping[Side, Effect]

    @property
    def disturbs(self) -> bool:
        """Whether one of the sides disturbs the other beyond doubt."""
        return any(one.disturbs for one in self.effects.values())

    @property
    def is_small(self) -> bool:
        """Whether it is proven that neither disturbs the other."""
        return all(one.is_small for one in self.effects.values())


def measure_presence(
    node: str, start: Callable[[Side], Child], *, plan: LoopPlan, limit_s: float
) -> Presence | None:
    """Measure a benchmark on each side without the other one, beside it, and without it; None where it fails.

    All three are of one process, so that what differs between processes has no part in it.
    """
    try:
        effects = {side: _effect_on(node, side, start, plan, limit_s) for side in SIDES}
    except BenchmarkError:
        return None
    return Presence(node=node, effects=effects)


def _effect_on(
    node: str, side: Side, start: Callable[[Side], Child], plan: LoopPlan, limit_s: float
) -> Effect:
    own = start(side)
    try:
        runner = Runner(own, node, limit_s=limit_s)
        runner.arrive()
        own.stop()
        before_s = _block(runner, plan, first=True)
        guest = start(other(side))
        try:
            visitor = Runner(guest, node, limit_s=limit_s)
            visitor.arrive()
            guest.stop()
            visitor.run(untimed=plan.begins_with, loops=plan.loops, rounds=plan.rounds)
            visitor.watch()
            beside_s = _block(runner, plan)
        finally:
            guest.end()
        return effect_of(before_s, beside_s, _block(runner, plan))
    finally:
        own.end()


def _block(runner: Runner, plan: LoopPlan, *, first: bool = False) -> list[float]:
    """Return the rounds of some turns."""
    return [
        value
        for turn in range(_TURNS)
        for value in runner.run(
            untimed=plan.untimed if turn or not first else plan.begins_with,
            loops=plan.loops,
            rounds=plan.rounds,
        )["values"]
    ]


@dataclass
class Residents:
    """What launches have shown of benchmarks on an accelerator: which have to be ``alone`` there, and why.

    ``room`` is of how many launches both sides have room there at once. ``presence`` is what a check found,
    None where there was none; ``not_checked`` is the reason, "" where no benchmark used an accelerator.
    """

    alone: dict[str, str] = field(default_factory=dict)
    room: dict[str, int] = field(default_factory=dict)
    presence: Presence | None = None
    not_checked: str = ""
    _together: set[str] = field(default_factory=set)
    _looked: bool = False

    def are_apart(self, node: str) -> bool:
        """Return whether the sides of a benchmark are measured without one another on the device."""
        return node in self.alone

    def learn(self, record: LaunchRecord) -> list[str]:
        """Return the benchmarks of a launch whose sides have no room together and are to be made again."""
        again = {
            failure.node: IN_USE if failure.in_use else "the device had no memory left while both were there"
            for failure in record.failures
            if (failure.device_full or failure.in_use) and failure.node not in self.alone
        }
        for node, timing in record.timings.items():
            if timing.on_device and not timing.alone and node not in self._together:
                disturbs = self.presence is not None and self.presence.disturbs
                why = _DISTURBS if disturbs else why_alone(timing.memory)
                if why is None:
                    self._together.add(node)
                    self.room[node] = launches_that_fit(timing.memory)
                else:
                    again[node] = why
        self.alone |= again
        return list(again)

    def check(
        self,
        record: LaunchRecord,
        start: Callable[[str, Side], Child],
        *,
        plans: Mapping[str, LoopPlan],
        rules: LaunchRules,
        overhead_s: float,
    ) -> list[str]:
        """Check once whether sides that stay together disturb one another; return what has to be made again.

        Of the benchmarks that have room, the one that reserves most is checked, if that takes ``check_s``
        seconds at most. ``overhead_s`` is how long processes take to start.
        """
        wanted = {
            node: timing
            for node, timing in record.timings.items()
            if timing.on_device and not timing.alone and math.isinf(plans[node].enough_s)
        }
        if self._looked or not rules.check_s or not wanted:
            return []
        self._looked = True
        costs_s = {node: _cost_s(timing, overhead_s) for node, timing in wanted.items()}
        cheap = [node for node in wanted if costs_s[node] <= rules.check_s]
        if not cheap:
            least_s = min(costs_s.values())
            spared = human_seconds(rules.check_s)
            self.not_checked = f"it would take {human_seconds(least_s)}, and {spared} are spared for it"
            return []
        node = max(cheap, key=lambda one: _reserved(wanted[one]))
        self.presence = measure_presence(
            node, lambda side: start(node, side), plan=plans[node], limit_s=rules.limit_s(node)
        )
        if self.presence is None:
            self.not_checked = f"{node} failed while it was checked"
        if self.presence is None or not self.presence.disturbs:
            return []
        again = [one for one, timing in record.timings.items() if timing.on_device and not timing.alone]
        self.alone |= dict.fromkeys(again, _DISTURBS)
        return again


def _cost_s(timing: Timing, overhead_s: float) -> float:
    plan = timing.plan
    call_s = statistics.median(timing.base_s) + statistics.median(timing.head_s)
    calls = _BLOCKS * _TURNS * (plan.untimed + plan.rounds * plan.loops) + 2 * plan.begins_with
    return 4 * overhead_s + calls * call_s


def _reserved(timing: Timing) -> int:
    return sum(one.peak for side in SIDES for one in timing.memory.get(side, ()))
