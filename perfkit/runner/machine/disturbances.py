"""What disturbed this machine between two moments, as its clocks and the kernel's counters show it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from perfkit.model.policies import Disturbance
from perfkit.runner.agent.processes import tree
from perfkit.runner.machine.control_group import throttled_s

# The clock is set in small steps all the time; one of this many seconds moves a run in the order of runs.
_STEP_S = 0.5
_SUSPENDED_S = 0.1
# Shares of the time of all cores, or of the time between the moments, above which times are not as usual.
_STOLEN, _OTHER_WORK, _THROTTLED = 0.03, 0.2, 0.05
# The kernel counts CPU time in ticks of this length at most.
_TICK_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What clocks and counters show, in seconds.

    ``boot_s`` goes on while the machine is suspended, ``monotonic_s`` does not, and ``wall_s`` can be set.
    ``stolen_s``, ``others_s`` and ``cpu_s`` are sums over all cores: what other guests of the host took, what
    processes took that do not descend from this one, and all there was. ``throttled_s`` is how long the quota
    of this control group was used up, None where nobody says.
    """

    wall_s: float
    monotonic_s: float
    boot_s: float
    stolen_s: float
    others_s: float
    cpu_s: float
    throttled_s: float | None


def read_moment(root: Path = Path("/")) -> Moment:
    """Return the present moment; ``root`` holds the folder of the control groups."""
    cpu = psutil.cpu_times()
    monotonic_s = time.monotonic()
    return Moment(
        wall_s=time.time(),
        monotonic_s=monotonic_s,
        # Where there is no such clock, nothing is known of suspensions.
        boot_s=time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else monotonic_s,
        stolen_s=getattr(cpu, "steal", 0.0),
        others_s=_others_s(cpu),
        cpu_s=sum(cpu),
        throttled_s=throttled_s(root),
    )


def disturbances(before: Moment, after: Moment) -> Iterator[Disturbance]:
    """Yield what happened between two moments that makes times unlike others."""
    suspended_s = (after.boot_s - before.boot_s) - (after.monotonic_s - before.monotonic_s)
    step_s = (after.wall_s - before.wall_s) - (after.boot_s - before.boot_s)
    if abs(step_s) > _STEP_S:
        yield Disturbance(what="clock set", amount=round(step_s, 1))
    if suspended_s > _SUSPENDED_S:
        yield Disturbance(what="suspended", amount=round(suspended_s, 1))
    cpu_s = max(after.cpu_s - before.cpu_s, _TICK_S)
    if (share := (after.stolen_s - before.stolen_s) / cpu_s) > _STOLEN:
        yield Disturbance(what="stolen", amount=round(share, 2))
    if (share := (after.others_s - before.others_s) / cpu_s) > _OTHER_WORK:
        yield Disturbance(what="other work", amount=round(share, 2))
    if before.throttled_s is not None and after.throttled_s is not None:
        throttled_s = after.throttled_s - before.throttled_s
        if throttled_s > _THROTTLED * (after.monotonic_s - before.monotonic_s):
            yield Disturbance(what="throttled", amount=round(throttled_s, 1))


class Watch:
    """Tells what disturbed this machine since it was asked last."""

    def __init__(self) -> None:
        self._last = read_moment()

    def __call__(self) -> tuple[Disturbance, ...]:
        """Return what happened since the last call, or else since it was made."""
        before, self._last = self._last, read_moment()
        return tuple(disturbances(before, self._last))


def _others_s(cpu: tuple[float, ...]) -> float:
    """Return what others took of the time that was not idle, nothing where processes cannot be seen."""
    own = tree(os.getpid())
    if not own:
        return 0.0
    busy = sum(getattr(cpu, kind, 0.0) for kind in ("user", "nice", "system"))
    return busy - sum(process.cpu_s + process.ended_s for process in own)
