"""One extra launch of a benchmark under cProfile, a pass on each side: never a time, only an explanation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfkit.measure.lockstep.player import BenchmarkError, Player
from perfkit.measure.lockstep.preloading import Child
from perfkit.records import Side


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
    """Return the functions of each side; None where a side failed, for then there is nothing to compare."""
    players = [Player(child, limit_s=limit_s) for child in children]
    try:
        for player in players:
            player.arrive()
        for player in players:
            player.child.stop()
        return {player.side: _read(player, calls) for player in players}
    except BenchmarkError:
        return None
    finally:
        for child in children:
            child.end()


def _read(player: Player, calls: int) -> tuple[OwnTime, ...]:
    answer = player.profile(calls)
    return tuple(
        OwnTime(file=file, line=line, function=function, own_s=own / answer["calls"])
        for file, line, function, _, own in answer["functions"]
    )
