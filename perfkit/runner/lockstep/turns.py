"""The turns of one benchmark: while one side is timed, the other's whole process tree is stopped."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfkit.model import Side
from perfkit.runner.agent.clock import UNSETTLED, ColdStart, DeviceMemory, DeviceTimes
from perfkit.runner.lockstep.pace import ROUND_S, Pace, is_settled
from perfkit.runner.lockstep.runner import BenchmarkError, Runner
from perfkit.stats.settling import Settling

# A longer call is not repeated in order to time it, since that would cost too much.
_LONG_S = 0.2
_CALIBRATION_GROWTH = 10
_REPEATED = 2
# Child processes start and end during the first turns; after these the process tree is assumed to stay.
_TURNS_LOOKED_AT = 2
# The kernel counts CPU time in ticks of 10 ms, and stopping costs each process of a tree a little at every
# turn. So less than this share, or three ticks, does not show that a side went on running: a process that
# does so uses most of a core.
_IDLE_SHARE = 0.1
# A process may wait for a core for some slices of the scheduler's, but not for so long in one round.
_STOOD_STILL_S = 0.2
_IDLE_S = 0.035
# Where head's rounds take less than this share of base's, its threads and processes may finish what it left
# to them, for so many seconds at most: their CPU time is its own.
_MUCH_FASTER = 0.9
_BACKGROUND_LIMIT_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one launch measured of one benchmark: paired rounds, in seconds per iteration.

    ``base_s`` and ``head_s`` cover all iterations of a round. The typical times are lower quartiles over its
    slices, and empty where rounds were not sliced. ``faults_per_iteration`` are minor page faults, those of
    untimed iterations included. ``devices`` are the rounds of each side on an accelerator, where one was in
    use, with the marks of the side's values. ``stood_still_s`` is for how long rounds waited, for a core or
    for something of their own, beyond what the rounds of their launch and side usually did, where that is
    striking. ``cold`` is the first call of each side on an accelerator, where that was seen, and ``memory``
    what each held of devices at its end, without the sides of which that is not known. In a launch ``alone``
    each side had the device to itself. ``cpu_s`` is the CPU time of an iteration of each side, of all its
    threads and processes, untimed iterations included; empty where that was not read. ``collected_s`` is what
    an iteration of each side had left to collect of garbage after the last round.
    """

    base_s: tuple[float, ...]
    head_s: tuple[float, ...]
    pace: Pace
    faults_per_iteration: Mapping[Side, float]
    base_typical_s: tuple[float, ...] = ()
    head_typical_s: tuple[float, ...] = ()
    devices: Mapping[Side, DeviceTimes] = field(default_factory=dict)
    stood_still_s: Mapping[Side, float] = field(default_factory=dict)
    cold: Mapping[Side, ColdStart] = field(default_factory=dict)
    memory: Mapping[Side, tuple[DeviceMemory, ...]] = field(default_factory=dict)
    alone: bool = False
    cpu_s: Mapping[Side, float] = field(default_factory=dict)
    collected_s: Mapping[Side, float] = field(default_factory=dict)

    @property
    def on_device(self) -> bool:
        """Whether a side used an accelerator."""
        return bool(self.devices) or any(self.memory.values())


def stood_still(waited_s: Sequence[float], rounds_s: Sequence[float]) -> float:
    """Return the seconds that rounds waited beyond the usual, of those that waited strikingly longer.

    ``waited_s`` are the seconds of each round in which its process did not run, ``rounds_s`` whole rounds.
    """
    if not waited_s:
        return 0.0
    usual_s = statistics.median(waited_s)
    striking_s = max(_STOOD_STILL_S, statistics.median(rounds_s))
    return sum(one - usual_s for one in waited_s if one - usual_s > striking_s)


def take_turns(runners: Sequence[Runner], *, pace: Pace) -> Timing:
    """Measure a benchmark that is ready on both sides; the first runner begins.

    Raises:
        BenchmarkError: one side raised, died, hung, or went on running while the other was timed.
    """
    for runner in runners:
        runner.child.stop()
    # One core may be slower than another for seconds, by up to half, while another virtual machine uses its
    # hyperthread. By itself each side would stay on one core, so both begin on the same one.
    core = runners[0].core
    begun = {runner.side: (runner.used_s(), runner.iterations) for runner in runners}
    timed_s, turn = 0.0, 0
    while (turn < pace.turns and timed_s < pace.enough_s) or (
        pace.turns <= turn < pace.most_turns and not _is_settled(runners)
    ):
        timed_s += _take_turn(runners, pace, turn, core)
        turn += 1
    for runner in runners:
        _prove_idle(runner, timed_s / 2)
    for runner in runners:
        read_memory(runner)
    sides = {runner.side: runner for runner in runners}
    middle_s = {side: statistics.median(runner.values) for side, runner in sides.items()}
    if middle_s["head"] < _MUCH_FASTER * middle_s["base"]:
        sides["head"].finish_background_work(_BACKGROUND_LIMIT_S)
    calls = {side: runner.iterations - begun[side][1] for side, runner in sides.items()}
    collected_s = {side: runner.collect_garbage() / calls[side] for side, runner in sides.items()}
    cpu_s = {side: (runner.used_s() - begun[side][0]) / calls[side] for side, runner in sides.items()}
    return replace(timing_of(sides, pace), cpu_s=cpu_s, collected_s=collected_s)


def take_rounds(runner: Runner, *, pace: Pace, turns: int | None = None, core: int | None = None) -> int:
    """Measure a benchmark that is ready while the other side has no process; return how many turns it had.

    It has ``turns`` where they are given, and is begun on ``core``.

    Raises:
        BenchmarkError: it raised, died, or hung.
    """
    runner.child.stop()
    timed_s, turn = 0.0, 0
    while turn < turns if turns is not None else turn < pace.turns and timed_s < pace.enough_s / 2:
        answer = runner.run(
            untimed=pace.untimed if turn else pace.begins_with,
            loops=pace.loops,
            slices=pace.slices,
            rounds=pace.rounds,
            core=core,
        )
        timed_s += sum(answer["values"]) * pace.loops
        turn += 1
    read_memory(runner)
    return turn


def settle(runners: Sequence[Runner]) -> int:
    """Call a benchmark on an accelerator until its times have settled, and return how many calls that took.

    One side after the other is called while the other is stopped; the slower one to settle counts. Where
    times do not settle, the rows of that side say so.

    Raises:
        BenchmarkError: one side raised, died, or hung.
    """
    for runner in runners:
        runner.child.stop()
    return max(_settle(runner) for runner in runners)


def _settle(runner: Runner) -> int:
    settling = Settling()
    while not settling.is_over:
        answer = runner.run(untimed=1, loops=1, rounds=0, watch=True)
        settling.add(answer["untimed_s"], reserved=answer["reserved"], clock=answer["clock_mhz"])
    if settling.settled_from is None:
        runner.marks.add(UNSETTLED)
        return 1
    return settling.settled_from


def read_memory(runner: Runner) -> None:
    """Read what a side holds of devices, where it has used one."""
    if runner.on_device or runner.host_s or runner.marks:
        runner.read_memory()


def calibrate(runners: Sequence[Runner], *, with_setup: bool) -> float:
    """Return about how many seconds one iteration takes; a first one is ignored, unless it is long.

    A call's setup is included: it is not part of a round's time, but it takes time in a launch.
    """
    first_s = time_first_call(runners)
    if first_s > _LONG_S:
        # One-time work is a small part of a long call, and a launch that shows otherwise corrects the plan.
        return first_s
    time_one = _time_call if with_setup else _time_iteration
    return max(time_one(runner) for runner in runners)


def time_first_call(runners: Sequence[Runner]) -> float:
    """Return how many seconds one call takes on the slower side, both of which are stopped before it."""
    for runner in runners:
        runner.child.stop()
    return max(float(runner.run(untimed=1, loops=1, rounds=0)["untimed_s"]) for runner in runners)


def _take_turn(runners: Sequence[Runner], pace: Pace, turn: int, core: int | None) -> float:
    """Let each side run once, begun on the same core, while the other rests; return the seconds they ran."""
    seconds = 0.0
    untimed = pace.untimed if turn else pace.begins_with
    for runner, other in (runners, runners[::-1]):
        before = other.watch() if turn < _TURNS_LOOKED_AT else other.cpu_s()
        answer = runner.run(
            untimed=untimed, loops=pace.loops, slices=pace.slices, rounds=pace.rounds, core=core
        )
        other.idle_cpu_s += max(other.cpu_s() - before, 0.0)
        seconds += answer["untimed_s"] + sum(answer["values"]) * pace.loops
    return seconds


def _is_settled(runners: Sequence[Runner]) -> bool:
    first, second = runners
    if _are_sliced(runners):
        return is_settled(first.typical, second.typical)
    return is_settled(first.values, second.values)


def _are_sliced(runners: Iterable[Runner]) -> bool:
    """Tell whether every round of both sides was sliced; a round on an accelerator is not."""
    return all(len(runner.typical) == len(runner.values) for runner in runners)


def _time_call(runner: Runner) -> float:
    return min(_wall_time(runner) for _ in range(1 + _REPEATED))


def _wall_time(runner: Runner) -> float:
    begun = time.monotonic()
    runner.run(untimed=1, loops=1, rounds=0)
    return time.monotonic() - begun


def _time_iteration(runner: Runner) -> float:
    iterations = 1
    while True:
        seconds = float(runner.run(untimed=iterations, loops=1, rounds=0)["untimed_s"])
        if seconds >= ROUND_S / 2:
            # It is timed again, since the first calls may have included one-time work of the benchmark.
            again = (runner.run(untimed=iterations, loops=1, rounds=0) for _ in range(_REPEATED))
            return min(seconds, *(float(answer["untimed_s"]) for answer in again)) / iterations
        wanted = round(ROUND_S * iterations / max(seconds, 1e-9))
        iterations = max(iterations + 1, min(wanted, iterations * _CALIBRATION_GROWTH))


def _prove_idle(runner: Runner, idle_s: float) -> None:
    if runner.idle_cpu_s > max(_IDLE_S, _IDLE_SHARE * idle_s):
        used = f"it used {runner.idle_cpu_s:.2f} s of CPU in {idle_s:.2f} s"
        raise BenchmarkError(
            runner.side, "error", f"could not be stopped while the other side was timed: {used}"
        )


def timing_of(runners: Mapping[Side, Runner], pace: Pace, *, alone: bool = False) -> Timing:
    """Return what both sides measured; ``alone`` says that each had the device to itself."""
    sliced = _are_sliced(runners.values())
    return Timing(
        base_s=tuple(runners["base"].values),
        head_s=tuple(runners["head"].values),
        pace=pace,
        faults_per_iteration={
            side: runner.faults / max(runner.iterations, 1) for side, runner in runners.items()
        },
        base_typical_s=tuple(runners["base"].typical) if sliced else (),
        head_typical_s=tuple(runners["head"].typical) if sliced else (),
        devices={side: found for side, runner in runners.items() if (found := _device_times(runner))},
        stood_still_s={
            side: stood_still(runner.waited, [value * pace.loops for value in runner.values])
            for side, runner in runners.items()
        },
        cold={side: runner.cold for side, runner in runners.items() if runner.cold is not None},
        memory={side: runner.memory for side, runner in runners.items() if runner.memory is not None},
        alone=alone,
    )


def _device_times(runner: Runner) -> DeviceTimes | None:
    """Return the rounds of a side on an accelerator; times are there only where each round has one."""
    if not (runner.host_s or runner.marks):
        return None
    rounds = len(runner.values)
    return DeviceTimes(
        host_s=tuple(runner.host_s) if len(runner.host_s) == rounds else (),
        device_s=tuple(runner.device_s) if len(runner.device_s) == rounds else (),
        marks=tuple(sorted(runner.marks)),
    )
