"""Launches that look closer at a benchmark that became faster: one side after the other, beside no timing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    coordinator's. ``touched`` are the files and processes that calls opened and started.
    """

    times: Mapping[str, float] = field(default_factory=dict)
    follows: bool | None = None
    own_s: float | None = None
    whole_s: float | None = None
    touched: frozenset[str] = frozenset()


def look_closer(
    launcher: Launcher, node: str, order: Sequence[Side], *, watch: bool, limit_s: float, base_s: float
) -> Mapping[Side, Look] | None:
    """Look at a benchmark once on each side, with inputs that are alike; None where it failed on one.

    With ``watch`` what calls open is noted, which makes their times longer. A call takes ``base_s`` on base.
    """
    launcher.draw_layout()
    found = {}
    for side in order:
        child = launcher.start(side, nodes=[node])
        runner = Runner(child, node, limit_s=limit_s)
        try:
            found[side] = _look(runner, launcher.layout, watch=watch, base_s=base_s)
        except BenchmarkError:
            return None
        finally:
            child.end()
    return found


def _look(runner: Runner, seed: int, *, watch: bool, base_s: float) -> Look:
    wishes = runner.arrive()
    most = math.inf if wishes["rounds"] is None else wishes["rounds"] * (wishes["loops"] or 1)
    looks = most >= _FEW_CALLS
    seen = runner.look(seed, watch=watch) if looks else {"times": {}, "follows": None, "touched": ()}
    calls = int(min(max(_TO_THE_END_S / base_s, 1), _MOST_CALLS))
    if math.isfinite(most):
        calls = 0 if looks else int(min(calls, most))
    look = Look(times=seen["times"], follows=seen["follows"], touched=frozenset(seen["touched"]))
    if watch or not calls:
        return look
    whole_s, own_s = runner.call_to_the_end(calls, _LIMIT_S)
    return Look(times=look.times, follows=look.follows, own_s=own_s / calls, whole_s=whole_s / calls)
