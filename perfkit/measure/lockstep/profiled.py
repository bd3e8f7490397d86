"""One extra launch of a benchmark under cProfile, by turns: never a time, only an explanation."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfkit.measure.lockstep.player import BenchmarkError, Player
from perfkit.measure.lockstep.preloading import Child
from perfkit.records import SIDES, Side

# A stall of the machine spoils one turn of one side, and the turn in the middle is another one.
_TURNS = 5


@dataclass(frozen=True, kw_only=True)
class ProfiledTurn:
    """Some calls of a benchmark: the seconds that cProfile saw of them, and the content of its file."""

    calls: int
    seconds: float
    stats: bytes


def profile_sides(
    children: Sequence[Child], *, calls: int, limit_s: float
) -> Mapping[Side, ProfiledTurn] | None:
    """Return a turn of each side; None where a side failed, for then there is nothing to compare.

    ``calls`` are made by turns, and the one in the middle by its time per call is returned; a benchmark that
    allows fewer calls has fewer turns.
    """
    players = [Player(child, limit_s=limit_s) for child in children]
    try:
        for player in players:
            player.arrive()
        for player in players:
            player.child.stop()
        turns = _by_turns(players, max(1, round(calls / _TURNS)))
    except BenchmarkError:
        return None
    finally:
        for child in children:
            child.end()
    return {side: _middle(found) for side, found in turns.items()} if all(turns.values()) else None


def _by_turns(players: Sequence[Player], calls: int) -> Mapping[Side, list[ProfiledTurn]]:
    turns: dict[Side, list[ProfiledTurn]] = {side: [] for side in SIDES}
    for turn in range(_TURNS):
        for player in players[:: -1 if turn % 2 else 1]:
            answer = player.profile(calls)
            if answer["calls"]:
                turns[player.side].append(
                    ProfiledTurn(
                        calls=answer["calls"],
                        seconds=answer["seconds"],
                        stats=base64.b64decode(answer["stats"]),
                    )
                )
    return turns


def _middle(turns: Sequence[ProfiledTurn]) -> ProfiledTurn:
    return sorted(turns, key=lambda turn: turn.seconds / turn.calls)[len(turns) // 2]
