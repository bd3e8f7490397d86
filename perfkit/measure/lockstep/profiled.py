"""One extra launch of a benchmark under cProfile, by turns: never a time, only an explanation."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfkit.measure.agent.channel import Message
from perfkit.measure.lockstep.player import BenchmarkError, Player
from perfkit.measure.lockstep.preloading import Child
from perfkit.records import SIDES, Side

# A stall of the machine spoils one turn of one side, and a median does not see it.
_TURNS = 5


_Function = tuple[str, int, str]


@dataclass(frozen=True, kw_only=True)
class OwnTime:
    """A function's own time under cProfile, in seconds per call of the benchmark."""

    file: str
    line: int
    function: str
    own_s: float


def profile_sides(
    children: Sequence[Child], *, calls: int, limit_s: float
) -> Mapping[Side, tuple[OwnTime, ...]] | None:
    """Return the functions of each side; None where a side failed, for then there is nothing to compare.

    ``calls`` are made by turns, and each function has the median over its side's turns; a benchmark that
    allows fewer calls has fewer turns.
    """
    players = [Player(child, limit_s=limit_s) for child in children]
    try:
        for player in players:
            player.arrive()
        for player in players:
            player.child.stop()
        return _by_turns(players, max(1, round(calls / _TURNS)))
    except BenchmarkError:
        return None
    finally:
        for child in children:
            child.end()


def _by_turns(players: Sequence[Player], calls: int) -> Mapping[Side, tuple[OwnTime, ...]]:
    turns: dict[Side, list[Mapping[_Function, float]]] = {side: [] for side in SIDES}
    for turn in range(_TURNS):
        for player in players[:: -1 if turn % 2 else 1]:
            answer = player.profile(calls)
            if answer["calls"]:
                turns[player.side].append(_own_times(answer))
    return {side: _medians(found) for side, found in turns.items()}


def _own_times(answer: Message) -> Mapping[_Function, float]:
    return {
        (file, line, function): own / answer["calls"] for file, line, function, _, own in answer["functions"]
    }


def _medians(turns: Sequence[Mapping[_Function, float]]) -> tuple[OwnTime, ...]:
    functions = {function for turn in turns for function in turn}
    return tuple(
        OwnTime(
            file=file,
            line=line,
            function=function,
            own_s=statistics.median(turn.get((file, line, function), 0.0) for turn in turns),
        )
        for file, line, function in functions
    )
