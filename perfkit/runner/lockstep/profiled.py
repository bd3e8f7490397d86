"""One extra launch of a benchmark under cProfile, which explains a change; its times are never judged."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from perfkit.model import SIDES, Side
from perfkit.runner.lockstep.children import Child
from perfkit.runner.lockstep.runner import BenchmarkError, Runner

# A pause of the machine makes one turn of a side too long. The turn of median length is then another one.
_TURNS = 5


@dataclass(frozen=True, kw_only=True)
class ProfiledTurn:
    """Some calls of a benchmark: the seconds that cProfile saw of them, and the content of its file."""

    calls: int
    seconds: float
    stats: bytes


def profile_sides(
    node: str, start: Callable[[Side], Child], *, calls: int, limit_s: float, apart: bool = False
) -> Mapping[Side, ProfiledTurn] | None:
    """Return one turn of each side at a benchmark; None where one failed, as nothing can be compared then.

    ``calls`` are made in turns, and the turn with the median time per call is returned. A benchmark that
    allows fewer calls has fewer turns. Sides that have to be ``apart`` are profiled one after the other.
    """
    found: dict[Side, ProfiledTurn] = {}
    for sides in ((side,) for side in SIDES) if apart else (SIDES,):
        profiled = _profiled(node, [start(side) for side in sides], calls, limit_s)
        if profiled is None:
            return None
        found |= profiled
    return found


def _profiled(
    node: str, children: Sequence[Child], calls: int, limit_s: float
) -> Mapping[Side, ProfiledTurn] | None:
    runners = [Runner(child, node, limit_s=limit_s) for child in children]
    try:
        for runner in runners:
            runner.arrive()
        for runner in runners:
            runner.child.stop()
        turns = _by_turns(runners, max(1, round(calls / _TURNS)))
    except BenchmarkError:
        return None
    finally:
        for child in children:
            child.end()
    return {side: _middle(found) for side, found in turns.items()} if all(turns.values()) else None


def _by_turns(runners: Sequence[Runner], calls: int) -> Mapping[Side, list[ProfiledTurn]]:
    turns: dict[Side, list[ProfiledTurn]] = {runner.side: [] for runner in runners}
    for turn in range(_TURNS):
        for runner in runners[:: -1 if turn % 2 else 1]:
            answer = runner.profile(calls)
            if answer["calls"]:
                turns[runner.side].append(
                    ProfiledTurn(
                        calls=answer["calls"],
                        seconds=answer["seconds"],
                        stats=base64.b64decode(answer["stats"]),
                    )
                )
    return turns


def _middle(turns: Sequence[ProfiledTurn]) -> ProfiledTurn:
    return sorted(turns, key=lambda turn: turn.seconds / turn.calls)[len(turns) // 2]
