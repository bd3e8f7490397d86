"""Launches that look closer at a benchmark that became faster: one side after the other, beside no timing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from perfkit.agent.channel import Message
from perfkit.errors import NotMeasuredError
from perfkit.model import Side
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.runner import BenchmarkError, Others, Runner

# Calls to their end take so long on base. What ends later is not waited for.
_TO_THE_END_S, _MOST_CALLS, _LIMIT_S = 0.15, 20_000, 1.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """What one process of a side saw: ``times`` in seconds by the form of calls (``perfkit.agent.fresh``).

    A call took ``own_s`` by its own clock, and ``outside_s`` more with all that it leaves to others.
    ``touched`` are the files and processes that calls opened and started. The test took ``before_s`` up to
    its calls, besides calls like these. ``others`` are results for inputs drawn from ``layout``, by form, and
    ``others_at`` is when these calls were made: where they came first, the times are of later calls.
    """

    times: Mapping[str, float]
    own_s: float
    outside_s: float
    before_s: float
    follows: bool | None
    overwritten: bool
    touched: Collection[str]
    others: Mapping[str, Message]
    others_at: Others
    layout: int


def look_closer(
    launcher: Launcher,
    node: str,
    order: Sequence[Side],
    *,
    watch: bool,
    others: Others,
    limit_s: float,
    base_s: float,
) -> Mapping[Side, Look] | None:
    """Look at a benchmark once on each side, with inputs that are alike; None where it failed on one.

    With ``watch`` what calls open is noted, which makes their times longer; with ``others`` calls with other
    inputs are made, as the first or the last ones. A call takes ``base_s`` on base.
    """
    launcher.draw_layout()
    calls = int(min(max(_TO_THE_END_S / base_s, 1), _MOST_CALLS))

    def look(side: Side) -> Look:
        with _arrived(launcher, side, node, limit_s) as (runner, most, wishes):
            seen = runner.look(launcher.layout, launcher.root(side), watch=watch, others=others)
            if most == math.inf:
                whole_s, own_s = runner.call_to_the_end(calls, _LIMIT_S)
        made = int(min(calls, most))
        if most != math.inf:
            # What allows few calls makes them in another process.
            with _arrived(launcher, side, node, limit_s) as (runner, _, _):
                whole_s, own_s = runner.call_to_the_end(made, _LIMIT_S)
        call_s = seen["times"].get("same", own_s / made)
        return Look(
            times=seen["times"],
            follows=seen["follows"],
            overwritten=seen["overwritten"],
            touched=seen["touched"],
            others=seen["others"],
            others_at=others,
            own_s=own_s / made,
            outside_s=(whole_s - own_s) / made,
            before_s=wishes.get("set_up_s", 0.0) - wishes.get("warm_up", 0) * call_s,
            layout=launcher.layout,
        )

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
