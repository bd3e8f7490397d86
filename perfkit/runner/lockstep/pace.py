"""How long to measure a benchmark in one launch: iterations in a round, rounds in a turn, turns in a launch.

All of them follow from the time of one iteration, so that the same rules serve for microseconds and seconds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
class Pace:
    """The plan for one benchmark in each launch.

    A launch has ``turns`` turns of each side, and up to ``most_turns`` while they scatter; a turn is
    ``untimed`` iterations and then ``rounds`` rounds of ``loops`` iterations, each timed in ``slices`` of as
    many iterations. The first turn, which also warms its launch up, begins with ``first_untimed`` iterations.
    On an accelerator it begins with ``warmup`` iterations at least: so many passed until times had settled.
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


def plan_pace(
    iteration_s: float,
    *,
    launch_s: float,
    fixed_loops: int | None = None,
    most_rounds: int | None = None,
    pipeline: bool = False,
) -> Pace:
    """Return the pace for a benchmark whose iteration takes ``iteration_s`` seconds.

    ``launch_s`` is the least time to spend on both sides together in one launch; ``pipeline`` says that
    processes of its own work for the benchmark. A benchmark that allows only ``most_rounds`` rounds gets no
    more calls than those, and nothing of it is untimed.
    """
    if most_rounds is not None:
        loops = fixed_loops or 1
        return Pace(
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
    return Pace(
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


def corrected(pace: Pace, base_s: Sequence[float], head_s: Sequence[float], *, launch_s: float) -> Pace:
    """Return the pace for later launches, after one whose rounds took so many seconds per iteration.

    It stays unless an iteration takes less than half or more than twice as long as planned, as where threads
    were only starting in the few calls that the plan was made from.
    """
    seen_s = max(statistics.median(base_s), statistics.median(head_s))
    if pace.iteration_s is None or 1 / _TOLERATED_MISTAKE <= seen_s / pace.iteration_s <= _TOLERATED_MISTAKE:
        return pace
    return replace(plan_pace(seen_s, launch_s=launch_s, pipeline=pace.pipeline), warmup=pace.warmup)


def is_settled(base_s: Sequence[float], head_s: Sequence[float]) -> bool:
    """Tell whether there are enough paired rounds: whether the error of their median log ratio is small.

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
