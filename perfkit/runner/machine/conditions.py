"""What decides how steady this machine is, as the kernel shows it; what it hides is "unknown"."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import psutil

from perfkit.agent.processes import tree
from perfkit.model.calibration import Condition, State
from perfkit.model.policies import Disturbance

_OWN = "proc/self/cgroup"
# Where groups of the newer version are, and those of the older one that share cores out.
_NEWER, _OLDER = "sys/fs/cgroup", "sys/fs/cgroup/cpu"
_QUOTA, _OLDER_QUOTA = "cpu.max", ("cpu.cfs_quota_us", "cpu.cfs_period_us")
# The counter of each version, and how many of its units are a second.
_COUNTERS = {"throttled_usec": 1e6, "throttled_time": 1e9}


def cores_of_group(root: Path = Path("/")) -> float | None:
    """Return how many cores this process's groups may use, None where it may use all."""
    return min((share for group in _groups(root) if (share := _share(group)) is not None), default=None)


def throttled_s(root: Path = Path("/")) -> float | None:
    """Return for how many seconds the quotas of its groups were used up, None where that is not known."""
    found = [seconds for group in _groups(root) if (seconds := _throttled_s(group)) is not None]
    return sum(found) if found else None


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's groups, from its own one up to the topmost that can be seen."""
    paths = {_NEWER: "/", _OLDER: "/"}
    for line in (_read(root / _OWN) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            paths[_OLDER if controllers else _NEWER] = path
    for mount, path in paths.items():
        own = PurePosixPath(path.lstrip("/"))
        # A path that begins with ".." is that of a group outside of what can be seen.
        for one in [PurePosixPath()] if ".." in own.parts else [own, *own.parents]:
            yield root / mount / one


def _share(group: Path) -> float | None:
    quota = (_read(group / _QUOTA) or "").split() or [_read(group / name) or "" for name in _OLDER_QUOTA]
    if not all(one.isdigit() for one in quota):
        # Without a quota the newer version has "max" and the older one -1.
        return None
    share, period = quota
    return int(share) / int(period)


def _throttled_s(group: Path) -> float | None:
    for name, _, value in (line.partition(" ") for line in (_read(group / "cpu.stat") or "").splitlines()):
        if name in _COUNTERS:
            return int(value) / _COUNTERS[name]
    return None


_CPUS = "sys/devices/system/cpu"
_HIDDEN = "not shown here"
_SAMPLE_S = 1.0
# Shares of all cores: above the first a condition may disturb times, above the second it is bad.
_LOAD = (0.25, 0.5)
_BUSY = (0.05, 0.2)
_STEAL = (0.005, 0.03)
_LEAST_FREE_MEMORY = 0.1
_OTHER_ALLOCATORS = ("jemalloc", "tcmalloc", "mimalloc")


def read_conditions(
    *, root: Path = Path("/"), variables: Mapping[str, str] = os.environ, sample_s: float = _SAMPLE_S
) -> tuple[Condition, ...]:
    """Return the conditions; loads are sampled for ``sample_s`` seconds. ``root`` holds proc and sys."""
    cpus = usable_cpus(root)
    return (
        *_processor_time(sample_s, cpus),
        _governor(root),
        _turbo(root),
        _throttling(root, sample_s),
        _siblings(root),
        _virtual(root),
        _threads(variables, cpus),
        _memory(),
        _swap(sample_s),
        _huge_pages(root),
        _allocator(variables),
    )


def usable_cpus(root: Path = Path("/")) -> float:
    """Return how many cores this process may use: its affinity, or a container's share if that is less."""
    allowed = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    share = cores_of_group(root)
    return allowed if share is None else min(allowed, share)


def _processor_time(sample_s: float, cpus: float) -> Iterator[Condition]:
    load = psutil.getloadavg()[0]
    before = psutil.cpu_times()
    time.sleep(sample_s)
    after = psutil.cpu_times()
    total = max(sum(after) - sum(before), 1e-9)
    idle = sum(getattr(after, kind, 0.0) - getattr(before, kind, 0.0) for kind in ("idle", "iowait"))
    steal = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    busy = max(1 - (idle + steal) / total, 0.0)
    quiet = "stop what else runs (`top` shows it)"
    others = f"{100 * busy:.1f} % of all cores busy while nothing was measured"
    stolen = f"{100 * steal / total:.1f} % taken by other guests of the host"
    alone = "measure at another hour, or on a machine of your own"
    for name, found, share, limits, advice in (
        ("load", f"{load:.2f} over the last minute, {cpus:g} cores", load / cpus, _LOAD, f"{quiet}, or wait"),
        ("other work", others, busy, _BUSY, quiet),
        ("steal", stolen, steal / total, _STEAL, alone),
    ):
        state: State = "good" if share <= limits[0] else "notable" if share <= limits[1] else "bad"
        yield _condition(name, found, advice, state)


def _condition(name: str, found: str | None, advice: str, state: State) -> Condition:
    """Return a condition; what is not ``found`` is unknown, and a good one needs no advice."""
    if found is None:
        return Condition(name=name, found=_HIDDEN, state="unknown")
    return Condition(name=name, found=found, state=state, advice=None if state == "good" else advice)


def _notable_if(truth: bool) -> State:  # noqa: FBT001 (the only argument)
    return "notable" if truth else "good"


def _governor(root: Path) -> Condition:
    governors = {_read(file) for file in (root / _CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    found = ", ".join(sorted(map(str, governors))) or None
    state = _notable_if(governors != {"performance"})
    return _condition("governor", found, "`sudo cpupower frequency-set -g performance`", state)


def _turbo(root: Path) -> Condition:
    intel = _read(root / _CPUS / "intel_pstate/no_turbo")
    boost = _read(root / _CPUS / "cpufreq/boost")
    on = intel == "0" if intel is not None else boost == "1"
    found = None if intel is None and boost is None else "on" if on else "off"
    advice = "the clock follows heat and neighbours; switch it off for the narrowest intervals"
    return _condition("turbo", found, advice, _notable_if(on))


def _throttling(root: Path, sample_s: float) -> Condition:
    before, found, news = _throttle_events(root), None, 0
    if before is not None:
        time.sleep(sample_s)
        news = (_throttle_events(root) or 0) - before
        found = f"{news} events in {sample_s:g} s" if news else f"none now, {before} events since the start"
    return _condition("throttling", found, "let it cool, and mend its cooling", "bad" if news else "good")


def _throttle_events(root: Path) -> int | None:
    counts = [_read(file) for file in (root / _CPUS).glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known else None


def _siblings(root: Path) -> Condition:
    active = _read(root / _CPUS / "smt/active")
    found = None if active is None else "off" if active == "0" else "on: two logical cores share one"
    return _condition(
        "hyperthreads", found, "leave the other half idle while measuring", _notable_if(active != "0")
    )


def _virtual(root: Path) -> Condition:
    text = _read(root / "proc/cpuinfo")
    is_virtual = "hypervisor" in (text or "")
    found = None if text is None else "a virtual machine" if is_virtual else "no"
    advice = "the host's other guests cannot be seen, only felt"
    return _condition("virtual", found, advice, _notable_if(is_virtual))


def _threads(variables: Mapping[str, str], cpus: float) -> Condition:
    variable = variables.get("OMP_NUM_THREADS", "")
    threads = int(variable) if variable.isdigit() else psutil.cpu_count(logical=False) or 1
    advice = f"`export OMP_NUM_THREADS={max(int(cpus), 1)}`: more threads than cores wait for each other"
    return _condition(
        "threads", f"{threads} for {cpus:g} cores", advice, "good" if threads <= cpus else "bad"
    )


def _memory() -> Condition:
    memory = psutil.virtual_memory()
    free = memory.available / memory.total
    advice = "free some: what is swapped or reclaimed is timed"
    state: State = "bad" if free < _LEAST_FREE_MEMORY else "good"
    return _condition("memory", f"{100 * free:.0f} % available", advice, state)


def _swap(sample_s: float) -> Condition:
    before = psutil.swap_memory()
    time.sleep(sample_s / 2)
    after = psutil.swap_memory()
    if after.sin + after.sout - before.sin - before.sout:
        return _condition("swap", "pages move right now", "free some memory", "bad")
    found = f"{after.percent:.0f} % used, at rest" if after.used else "unused"
    return _condition("swap", found, "`sudo swapoff -a` while measuring", _notable_if(after.used > 0))


def _huge_pages(root: Path) -> Condition:
    text = _read(root / "sys/kernel/mm/transparent_hugepage/enabled") or ""
    mode = text.partition("[")[2].partition("]")[0] or None
    advice = "set to madvise: which memory gets them is chance, and changes its speed"
    return _condition("huge pages", mode, advice, _notable_if(mode == "always"))


def _allocator(variables: Mapping[str, str]) -> Condition:
    loaded = variables.get("LD_PRELOAD", "")
    other = next((name for name in _OTHER_ALLOCATORS if name in loaded), None)
    found = other or "the system's, held steady in gates"
    advice = "perfkit cannot hold it steady; make sure that all you compare uses it"
    return _condition("allocator", found, advice, _notable_if(other is not None))


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


# The clock is set in small steps all the time; one of this many seconds moves a run in the order of runs.
_STEP_S = 0.5
_SUSPENDED_S = 0.1
# Shares of the time of all cores, or of the time between the moments, above which times are not as usual.
_STOLEN, _OTHER_WORK, _THROTTLED_SHARE = 0.03, 0.2, 0.05
# The kernel counts CPU time in ticks of this length at most.
_TICK_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What clocks and counters show, in seconds; sums are over all cores.

    ``boot_s`` goes on while the machine is suspended, ``wall_s`` can be set. ``stolen_s`` went to other
    guests, ``others_s`` to processes that do not descend from this one; ``throttled_s`` is how long the quota
    was used up.
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
        if throttled_s > _THROTTLED_SHARE * (after.monotonic_s - before.monotonic_s):
            yield Disturbance(what="throttled", amount=round(throttled_s, 1))


class Watch:
    """Reports what disturbed this machine since it was asked last."""

    def __init__(self) -> None:
        self._last = read_moment()

    def __call__(self) -> tuple[Disturbance, ...]:
        """Return what happened since the last call, or else since it was made."""
        before, self._last = self._last, read_moment()
        return tuple(disturbances(before, self._last))


def _others_s(cpu: tuple[float, ...]) -> float:
    own = tree(os.getpid())
    if not own:
        return 0.0
    busy = sum(getattr(cpu, kind, 0.0) for kind in ("user", "nice", "system"))
    return busy - sum(process.cpu_s + process.ended_s for process in own)
