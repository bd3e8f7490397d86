"""The turns of one benchmark: how long they are, and how each side is timed while the other is stopped.

All lengths follow from the time of one iteration, so that the same rules serve for microseconds and seconds.
What measures raises BenchmarkError where a side raised, died or hung.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfkit.agent.clock import NOT_WARM, ColdStart, DeviceMemory, DeviceTimes
from perfkit.agent.processes import take_peak
from perfkit.model import Side
from perfkit.runner.lockstep.runner import BenchmarkError, Runner
from perfkit.stats.summary import WarmUp

# A round is long compared with a reading of the clock and a switch between sides, and short compared with the
# tens of milliseconds within which the speed of a shared machine drifts.
ROUND_S = 0.005
# Worker processes refill their queues after each switch between sides, and a round must outlast that.
_PIPELINE_ROUND_S = 0.02
# A round is timed in slices this long: another user's burst of work lasts milliseconds, so some slices escape
# it. A quartile of fewer slices would mean little. Calls up to the longest slice are short enough for a round
# to hold several of them.
_SLICE_S = 0.00025
_FEWEST_SLICES = 4
_LONGEST_SLICE_S = 0.005
# After a switch caches are cold and threads may be on the wrong core. The effect ends after this long, or
# after one longer iteration. Sliced rounds need half of it, since their lower quartile ignores slow slices.
_CARRY_OVER_S = 0.002
_SLICED_CARRY_OVER_S = 0.001
# A longer iteration hardly notices its cold start, so none is left untimed, not even the first of a launch:
# in the same time there are twice as many launches, and their interval is narrower.
_LONG_ITERATION_S = 0.15
_TIMED_TO_UNTIMED = 1.5
# A forked child copies memory as it first writes to it. A longer warm-up did not steady the first round.
_FIRST_WARMUP_S = 0.005
# The scatter of fewer rounds could not be estimated. Slow calls have fewer rounds, since launches replicate
# them: ten launches of one call each allow a verdict, and one launch of ten calls does not.
_FEWEST_ROUNDS = 4
# No side spends more than this on a launch to estimate its scatter, or on rounds that a benchmark allows.
_ENOUGH_S = 0.25
# A launch in a noisy period may take this many times the usual turns.
_MOST_STRETCH = 3
_MOST_TURNS = 200
_TOLERATED_MISTAKE = 2.0
# A launch goes on until its own error is this small: by then launches differ more than rounds do.
_AIMED_ERROR = 0.012
_DEVIATION_PER_MAD = 1.4826  # of a normal distribution
_ERROR_OF_A_MEDIAN = 1.2533  # in units of the error of a mean, likewise


@dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """The plan for one benchmark in each launch.

    A launch has ``turns`` turns of each side, and up to ``most_turns`` while they scatter; a turn is
    ``untimed`` iterations and then ``rounds`` rounds of ``loops`` iterations, each timed in ``slices`` of as
    many iterations. The first turn, which also warms its launch up, begins with ``first_untimed`` iterations.
    On an accelerator it begins with ``warmup`` iterations at least: this many passed until it was warm.
    It is made for iterations of ``iteration_s`` seconds, None where the benchmark itself counts its calls;
    then it may end before its last turn, once both sides' rounds have taken ``enough_s`` seconds.
    """

    loops: int
    rounds: int
    untimed: int
    turns: int
    most_turns: int
    first_untimed: int
    slices: int = 1
    iteration_s: float | None = None
    pipeline: bool = False
    enough_s: float = math.inf
    warmup: int = 0

    @property
    def begins_with(self) -> int:
        """The untimed iterations at the begin of a launch."""
        return max(self.first_untimed, self.warmup)


def plan_loops(
    iteration_s: float,
    *,
    launch_s: float,
    fixed_loops: int | None = None,
    most_rounds: int | None = None,
    pipeline: bool = False,
) -> LoopPlan:
    """Return the plan for a benchmark whose iteration takes ``iteration_s`` seconds.

    ``launch_s`` is the least time to spend on both sides together in one launch; ``pipeline`` means that
    processes of its own work for the benchmark. A benchmark that allows only ``most_rounds`` rounds gets no
    more calls than those, and nothing of it is untimed.
    """
    if most_rounds is not None:
        loops = fixed_loops or 1
        return LoopPlan(
            loops=loops,
            rounds=1,
            untimed=0,
            turns=most_rounds,
            most_turns=most_rounds,
            first_untimed=0,
            enough_s=2 * _ENOUGH_S,
        )
    aimed_s = _PIPELINE_ROUND_S if pipeline else ROUND_S
    loops, slices = fixed_loops or max(1, round(aimed_s / iteration_s)), 1
    # In a pipeline the quickest calls find their batch ready, so they do not show how fast the workers are.
    if fixed_loops is None and not pipeline:
        loops, slices = _sliced(loops, iteration_s)
    round_s = loops * iteration_s
    carry_over_s = _CARRY_OVER_S if slices == 1 else _SLICED_CARRY_OVER_S
    untimed = 0 if iteration_s > _LONG_ITERATION_S else math.ceil(carry_over_s / iteration_s)
    rounds = max(1, round(_TIMED_TO_UNTIMED * untimed * iteration_s / round_s))
    turn_s = untimed * iteration_s + rounds * round_s
    fewest_rounds = min(_FEWEST_ROUNDS, math.ceil(_ENOUGH_S / round_s))
    fewest = math.ceil(fewest_rounds / rounds)
    turns = min(max(round(launch_s / (2 * turn_s)), fewest), _MOST_TURNS)
    return LoopPlan(
        loops=loops,
        rounds=rounds,
        untimed=untimed,
        turns=turns,
        most_turns=_MOST_STRETCH * turns if turns * turn_s < _ENOUGH_S else turns,
        first_untimed=0 if iteration_s > _LONG_ITERATION_S else math.ceil(_FIRST_WARMUP_S / iteration_s),
        slices=slices,
        iteration_s=iteration_s if fixed_loops is None else None,
        pipeline=pipeline,
    )


def _sliced(loops: int, iteration_s: float) -> tuple[int, int]:
    """Return a round's iterations, enough for its slices, and its slices: one where an iteration is long."""
    if iteration_s > _LONGEST_SLICE_S:
        return loops, 1
    in_slice = max(1, round(_SLICE_S / iteration_s))
    slices = max(round(loops / in_slice), _FEWEST_SLICES)
    return in_slice * slices, slices


def corrected(
    plan: LoopPlan, base_s: Sequence[float], head_s: Sequence[float], *, launch_s: float
) -> LoopPlan:
    """Return the plan for later launches, after one whose rounds took this many seconds per iteration.

    It stays unless an iteration takes less than half or more than twice as long as planned, as where threads
    were only starting in the few calls that the plan was made from.
    """
    seen_s = max(statistics.median(base_s), statistics.median(head_s))
    if plan.iteration_s is None or 1 / _TOLERATED_MISTAKE <= seen_s / plan.iteration_s <= _TOLERATED_MISTAKE:
        return plan
    return replace(plan_loops(seen_s, launch_s=launch_s, pipeline=plan.pipeline), warmup=plan.warmup)


def is_precise(base_s: Sequence[float], head_s: Sequence[float]) -> bool:
    """Return whether there are enough paired rounds: whether the error of their median log ratio is small.

    Kalibera and Jones (2013, section 5) weigh the cost of a launch against that of a round; here each launch
    goes on until its own error is as small as the difference between launches. Only the scatter is used,
    never the ratio itself, so that stopping favours no verdict.
    """
    logs = [math.log(head) - math.log(base) for base, head in zip(base_s, head_s, strict=True)]
    return error_of_median(logs) <= _AIMED_ERROR


def error_of_median(values: Sequence[float]) -> float:
    """Return the standard error of the median of values, from their median absolute deviation."""
    middle = statistics.median(values)
    deviation = _DEVIATION_PER_MAD * statistics.median(abs(value - middle) for value in values)
    return _ERROR_OF_A_MEDIAN * deviation / math.sqrt(len(values))


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
# One odd reading of a process's own clock may be the machine's.
_MOST_ODD = 3
# Where head's rounds take less than this share of base's, its threads and processes may finish what it left
# to them, for this many seconds at most: their CPU time is its own.
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
    striking. ``first_s`` is the first call of each side, where that was timed by itself, ``cold`` what it was
    made of on an accelerator, and ``memory`` what each held of devices at its end, without the sides of which
    that is not known. In a launch ``alone`` each side had the device to itself. ``cpu_s`` is the CPU time of
    an iteration of each side, of all its threads and processes, untimed iterations included; empty where that
    was not read. ``collected_s`` is what an iteration of each side had left to collect of garbage after the
    last round, and ``peak_bytes`` the peak of its process's resident size.
    """

    base_s: tuple[float, ...]
    head_s: tuple[float, ...]
    plan: LoopPlan
    faults_per_iteration: Mapping[Side, float]
    base_typical_s: tuple[float, ...] = ()
    head_typical_s: tuple[float, ...] = ()
    devices: Mapping[Side, DeviceTimes] = field(default_factory=dict)
    stood_still_s: Mapping[Side, float] = field(default_factory=dict)
    first_s: Mapping[Side, float] = field(default_factory=dict)
    cold: Mapping[Side, ColdStart] = field(default_factory=dict)
    memory: Mapping[Side, tuple[DeviceMemory, ...]] = field(default_factory=dict)
    alone: bool = False
    cpu_s: Mapping[Side, float] = field(default_factory=dict)
    collected_s: Mapping[Side, float] = field(default_factory=dict)
    peak_bytes: Mapping[Side, int] = field(default_factory=dict)

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


def take_turns(runners: Sequence[Runner], *, plan: LoopPlan) -> Timing:
    """Measure a benchmark that is ready on both sides; the first runner begins."""
    for runner in runners:
        runner.child.stop()
    # One core may be slower than another for seconds, by up to half, while another virtual machine uses its
    # hyperthread. By itself each side would stay on one core, so both begin on the same one.
    core = runners[0].core
    begun = {runner.side: (runner.used_s(), runner.iterations) for runner in runners}
    timed_s, turn = 0.0, 0
    while (turn < plan.turns and timed_s < plan.enough_s) or (
        plan.turns <= turn < plan.most_turns and not _are_precise(runners)
    ):
        timed_s += _take_turn(runners, plan, turn, core)
        turn += 1
    for runner in runners:
        _prove_idle(runner, timed_s / 2)
        _prove_clock(runner)
    for runner in runners:
        read_memory(runner)
    sides = {runner.side: runner for runner in runners}
    middle_s = {side: statistics.median(runner.values) for side, runner in sides.items()}
    if middle_s["head"] < _MUCH_FASTER * middle_s["base"]:
        sides["head"].finish_background_work(_BACKGROUND_LIMIT_S)
    calls = {side: runner.iterations - begun[side][1] for side, runner in sides.items()}
    collected_s = {side: runner.collect_garbage() / calls[side] for side, runner in sides.items()}
    cpu_s = {side: (runner.used_s() - begun[side][0]) / calls[side] for side, runner in sides.items()}
    peaks = {
        side: peak for side, runner in sides.items() if (peak := take_peak(runner.child.pid)) is not None
    }
    return replace(timing_of(sides, plan), cpu_s=cpu_s, collected_s=collected_s, peak_bytes=peaks)


def take_rounds(runner: Runner, *, plan: LoopPlan, turns: int | None = None, core: int | None = None) -> int:
    """Measure a benchmark that is ready while the other side has no process; return how many turns it had.

    It has ``turns`` where they are given, and is begun on ``core``.
    """
    runner.child.stop()
    timed_s, turn = 0.0, 0
    while turn < turns if turns is not None else turn < plan.turns and timed_s < plan.enough_s / 2:
        answer = runner.run(
            untimed=plan.untimed if turn else plan.begins_with,
            loops=plan.loops,
            slices=plan.slices,
            rounds=plan.rounds,
            core=core,
        )
        timed_s += sum(answer["values"]) * plan.loops
        turn += 1
    read_memory(runner)
    return turn


def warm(runners: Sequence[Runner]) -> int:
    """Call a benchmark on an accelerator until it is warm, and return how many calls that took.

    One side after the other is called while the other is stopped; the slower one counts. Where
    it does not warm up, the rows of that side are marked.
    """
    for runner in runners:
        runner.child.stop()
    return max(_warm(runner) for runner in runners)


def _warm(runner: Runner) -> int:
    warm_up = WarmUp()
    while not warm_up.is_over:
        answer = runner.run(untimed=1, loops=1, rounds=0, watch=True)
        warm_up.add(answer["untimed_s"], reserved=answer["reserved"], clock=answer["clock_mhz"])
    if warm_up.warm_from is None:
        runner.marks.add(NOT_WARM)
        return 1
    return warm_up.warm_from


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


def _take_turn(runners: Sequence[Runner], plan: LoopPlan, turn: int, core: int | None) -> float:
    """Let each side run once, begun on the same core, while the other rests; return the seconds they ran."""
    seconds = 0.0
    for runner, other in (runners, runners[::-1]):
        untimed = plan.untimed if turn or runner.warm else plan.begins_with
        before = other.watch() if turn < _TURNS_LOOKED_AT else other.cpu_s()
        answer = runner.run(
            untimed=untimed, loops=plan.loops, slices=plan.slices, rounds=plan.rounds, core=core
        )
        other.idle_cpu_s += max(other.cpu_s() - before, 0.0)
        seconds += answer["untimed_s"] + sum(answer["values"]) * plan.loops
    return seconds


def _are_precise(runners: Sequence[Runner]) -> bool:
    first, second = runners
    if _are_sliced(runners):
        return is_precise(first.typical, second.typical)
    return is_precise(first.values, second.values)


def _are_sliced(runners: Iterable[Runner]) -> bool:
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
        _prove_clock(runner)
        if seconds >= ROUND_S / 2:
            # It is timed again, since the first calls may have included one-time work of the benchmark.
            again = (runner.run(untimed=iterations, loops=1, rounds=0) for _ in range(_REPEATED))
            return min(seconds, *(float(answer["untimed_s"]) for answer in again)) / iterations
        if runner.odd:
            # More iterations only take longer by a clock that may stand still.
            continue
        wanted = round(ROUND_S * iterations / max(seconds, 1e-9))
        iterations = max(iterations + 1, min(wanted, iterations * _CALIBRATION_GROWTH))


def _prove_idle(runner: Runner, idle_s: float) -> None:
    if runner.idle_cpu_s > max(_IDLE_S, _IDLE_SHARE * idle_s):
        used = f"it used {runner.idle_cpu_s:.2f} s of CPU in {idle_s:.2f} s"
        raise BenchmarkError(
            runner.side, "error", f"could not be stopped while the other side was timed: {used}"
        )


def _prove_clock(runner: Runner) -> None:
    """Check that the process's own clock does not contradict the coordinator's again and again."""
    if runner.by_wall and len(runner.odd) >= _MOST_ODD:
        saw = f"its clock saw {100 * runner.odd[-1]:.0f} % of the time that passed"
        raise BenchmarkError(runner.side, "error", f"{saw}: something replaces or stops it")


def timing_of(runners: Mapping[Side, Runner], plan: LoopPlan, *, alone: bool = False) -> Timing:
    """Return what both sides measured; ``alone`` means that each had the device to itself."""
    sliced = _are_sliced(runners.values())
    return Timing(
        base_s=tuple(runners["base"].values),
        head_s=tuple(runners["head"].values),
        plan=plan,
        faults_per_iteration={
            side: runner.faults / max(runner.iterations, 1) for side, runner in runners.items()
        },
        base_typical_s=tuple(runners["base"].typical) if sliced else (),
        head_typical_s=tuple(runners["head"].typical) if sliced else (),
        devices={side: found for side, runner in runners.items() if (found := _device_times(runner))},
        stood_still_s={
            side: stood_still(runner.waited, [value * plan.loops for value in runner.values])
            for side, runner in runners.items()
        },
        first_s={side: runner.first_s for side, runner in runners.items() if runner.first_s is not None},
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
