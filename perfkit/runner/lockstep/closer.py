"""Launches that look closer at a benchmark that became faster: one side after the other, beside no timing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from perfkit.agent.channel import Message
from perfkit.errors import NotMeasuredError
from perfkit.model import Side
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.runner import BenchmarkError, Runner

# Calls to their end take so long on base. What ends later is not waited for.
_TO_THE_END_S, _MOST_CALLS, _LIMIT_S = 0.15, 20_000, 1.0
# Of a benchmark that allows fewer calls, these alone are made.
_FEW_CALLS = 12


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one process of a side saw: ``times`` in seconds by the form of calls (``perfkit.agent.fresh``).

    A call took ``own_s`` by its own clock, and ``whole_s`` with all that it leaves to others, by the
    coordinator's. ``touched`` are the files and processes that calls opened and started. Before them, the
    test's set-up took ``set_up_s``, in which it made ``warm_up`` calls.
    """

    times: Mapping[str, float] = field(default_factory=dict)
    follows: bool | None = None
    own_s: float | None = None
    whole_s: float | None = None
    touched: frozenset[str] = frozenset()
    set_up_s: float = 0.0
    warm_up: int = 0

    @property
    def before_s(self) -> float:
        """What its set-up took besides calls like the later ones."""
        return self.set_up_s - self.warm_up * self.times.get("same", self.own_s or 0.0)


def look_closer(
    launcher: Launcher, node: str, order: Sequence[Side], *, watch: bool, limit_s: float, base_s: float
) -> Mapping[Side, Look] | None:
    """Look at a benchmark once on each side, with inputs that are alike; None where it failed on one.

    With ``watch`` what calls open is noted, which makes their times longer. A call takes ``base_s`` on base.
    """
    launcher.draw_layout()
    calls = int(min(max(_TO_THE_END_S / base_s, 1), _MOST_CALLS))

    def look(side: Side) -> Look:
        with _arrived(launcher, side, node, limit_s) as (runner, most, wishes):
            found = Look(set_up_s=wishes.get("set_up_s", 0.0), warm_up=wishes.get("warm_up", 0))
            if most >= _FEW_CALLS:
                seen = runner.look(launcher.layout, watch=watch)
                touched = frozenset(seen["touched"])
                found = replace(found, times=seen["times"], follows=seen["follows"], touched=touched)
            if most == math.inf:
                return _to_the_end(runner, found, calls)
        # What allows few calls makes them in another process.
        with _arrived(launcher, side, node, limit_s) as (runner, most, _):
            return _to_the_end(runner, found, int(min(calls, most)))

    try:
        return {side: look(side) for side in order}
    except (BenchmarkError, NotMeasuredError, OSError):
        # The verdicts are known by now.
        return None


@contextmanager
def _arrived(
    launcher: Launcher, side: Side, node: str, limit_s: float
) -> Iterator[tuple[Runner, float, Message]]:
    """Bring a process of a side to a benchmark; yield its runner, the calls it allows, and its wishes."""
    child = launcher.start(side, nodes=[node])
    try:
        runner = Runner(child, node, limit_s=limit_s)
        wishes = runner.arrive()
        rounds = wishes["rounds"]
        yield runner, math.inf if rounds is None else rounds * (wishes["loops"] or 1), wishes
    finally:
        child.end()


def _to_the_end(runner: Runner, look: Look, calls: int) -> Look:
    whole_s, own_s = runner.call_to_the_end(calls, _LIMIT_S)
    return replace(look, own_s=own_s / calls, whole_s=whole_s / calls)
