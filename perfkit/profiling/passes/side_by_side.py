"""Two passes that take turns of a few steps, so that whatever the machine does affects both alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from perfkit.model import RatioInterval
from perfkit.profiling.passes.exchange import PassResult, PassSpec
from perfkit.profiling.passes.launch import PassLauncher, RunningPass, running
from perfkit.stats.interval import location_interval

_TURN_S = 0.3
_MOST_STEPS = 50
_FEWEST_TURNS = 12
# The number of steps that is assumed where it is not known.
_UNKNOWN_STEPS = 120
# Turns of this many steps leave out the first one after a switch, when caches are cold.
_FEW_STEPS = 3
_ERROR = 0.01
# Steps of one process are many, and bursts slow some of them: of ten already, one at each end is left out.
_TRIMMED_FROM = 10


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """The results of two passes, and the steps of each of their turns; the first turn has the set-up."""

    results: tuple[PassResult, PassResult]
    turns: tuple[int, ...]

    @property
    def ratio(self) -> RatioInterval | None:
        """The second pass over the first, from pairs of turns; None where a pass failed or was too short."""
        first, second = (result.summary for result in self.results)
        if first is None or second is None:
            return None
        logs = [
            math.log(statistics.median(later) / statistics.median(earlier))
            for earlier, later in zip(
                _by_turns(first.step_s, self.turns), _by_turns(second.step_s, self.turns), strict=True
            )
            if earlier and later
        ]
        return ratio_of_turns(logs)


def run_side_by_side(
    specs: tuple[PassSpec, PassSpec], on_steps: Callable[[int], None], launcher: PassLauncher
) -> SideBySide:
    """Make two passes at once: while one has its turn, every process of the other is stopped.

    ``on_steps`` hears of the second one's steps. Both must have the same number of steps before them.
    """
    with ExitStack() as stack:
        listeners = (_hear_nothing, on_steps)
        sides = [
            stack.enter_context(running(spec, listener, launcher, by_turns=True))
            for spec, listener in zip(specs, listeners, strict=True)
        ]
        turns = _alternate(sides, most_steps=_most_steps(specs))
        first, second = (side.result() for side in sides)
    return SideBySide(results=(first, second), turns=tuple(turns))


def _most_steps(specs: Sequence[PassSpec]) -> int:
    """Return how long a turn may be, so that a short loop has turns enough to tell how they scatter."""
    known = [steps for spec in specs for steps in (spec.steps, spec.known_steps) if steps is not None]
    return max(1, min(_MOST_STEPS, min(known, default=_UNKNOWN_STEPS) // _FEWEST_TURNS))


def _alternate(sides: Sequence[RunningPass], *, most_steps: int) -> list[int]:
    """Give turns until a side has no more steps, then let the other end; return the steps of each turn."""
    waiting = [side.follow() for side in sides]
    for side in sides:
        side.stop()
    turns: list[int] = []
    steps = 1
    while all(waiting):
        order = (0, 1) if len(turns) % 2 == 0 else (1, 0)
        begun = time.monotonic()
        for place in order:
            waiting[place] = _take_turn(sides[place], steps)
        turns.append(steps)
        each_s = (time.monotonic() - begun) / (2 * steps)
        steps = max(1, min(most_steps, math.ceil(_TURN_S / each_s)))
    for side, waits in zip(sides, waiting, strict=True):
        side.resume()
        if waits:
            side.give_turn(2**31 - 1)
            side.follow()
    return turns


def _take_turn(side: RunningPass, steps: int) -> bool:
    """Let a side make its steps and stop it; tell whether it waits for more."""
    side.resume()
    side.give_turn(steps)
    waits = side.follow()
    if waits:
        side.stop()
    return waits


def _by_turns(seconds: Sequence[float], turns: Sequence[int]) -> list[Sequence[float]]:
    """Return the steps of each turn but the first, without the one after a switch where there are enough."""
    parts: list[Sequence[float]] = []
    begin = 0
    for number, steps in enumerate(turns):
        part = seconds[begin : begin + steps]
        begin += steps
        if number > 0:
            parts.append(part[1:] if len(part) >= _FEW_STEPS else part)
    return parts


def ratio_of_turns(logs: Sequence[float]) -> RatioInterval | None:
    """Return a ratio with its interval from its logarithm in each pair of turns; None of too few of them."""
    if len(logs) < _FEW_STEPS:
        return None
    found = location_interval(logs, [0] * len(logs), error=_ERROR, trimmed_from=_TRIMMED_FROM)
    centre, half_width = float(found.centre), float(found.half_width)
    return RatioInterval(
        ratio=math.exp(centre),
        low=math.exp(centre - half_width),
        high=math.exp(centre + half_width),
        confidence=1 - _ERROR,
        pairs=len(logs),
    )


def _hear_nothing(_: int) -> None:
    """Report no steps of the first pass."""
