"""Launches of identical code on both sides for a given time, whose differences all come from the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfkit.gating.sequential import launch_pair
from perfkit.gating.sides import LockstepLaunches
from perfkit.model.comparisons import LaunchPair
from perfkit.runner.lockstep.launch import shared_libraries
from perfkit.runner.lockstep.launcher import Launcher
from perfkit.runner.lockstep.schedule import schedule

_LIMIT_S = 30.0
# At least this many are made, however slow the machine is, since fewer would not show their scatter.
_FEWEST_LAUNCHES = 6


@dataclass(frozen=True, kw_only=True)
class Alike:
    """The launches of each benchmark, and the mean seconds that a launch of one took, overhead included.

    ``served`` says that they were forked after the import of the code, as those of a gate are.
    """

    pairs: Mapping[str, tuple[LaunchPair, ...]]
    launch_s: float
    served: bool


def measure_alike(launcher: Launcher, *, seconds: float, seed: int, tell: Callable[[float], None]) -> Alike:
    """Measure what the launcher's sides hold until the time is over and there are launches enough to compare.

    ``tell`` receives the share that is done, from 0 to 1.
    """
    listed = launcher.survey()
    launches = LockstepLaunches(launcher, limit_s=lambda _: _LIMIT_S)
    launches.learn(shared_libraries(listed["base"].report, listed["head"].report))
    nodes = list(listed["head"].found)
    pairs: dict[str, list[LaunchPair]] = {node: [] for node in nodes}
    begun = time.monotonic()
    for number, slot in enumerate(schedule(seed=seed)):
        elapsed = time.monotonic() - begun
        tell(min(elapsed / seconds, 1.0))
        if elapsed >= seconds and number >= _FEWEST_LAUNCHES:
            break
        launches.prepare()
        record = launches.make(slot, nodes)
        for node, timing in record.timings.items():
            pairs[node].append(launch_pair(timing, slot, launches.preloader))
    made = max(sum(map(len, pairs.values())), 1)
    return Alike(
        pairs={node: tuple(found) for node, found in pairs.items()},
        launch_s=(time.monotonic() - begun) / made,
        served=launcher.serves,
    )
