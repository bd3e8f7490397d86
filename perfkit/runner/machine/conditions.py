"""What decides how steady this machine is, as the kernel shows it; what it hides is told as "unknown"."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from perfkit.model.calibration import Condition, State
from perfkit.runner.machine.control_group import cores_of_group

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
    *,
    root: Path = Path("/"),
    variables: Mapping[str, str] = os.environ,
    sample_s: float = _SAMPLE_S,
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
    yield Condition(
        name="load",
        found=f"{load:.2f} over the last minute, {cpus:g} cores",
        state=_state(load / cpus, _LOAD),
        advice=None if load / cpus <= _LOAD[0] else "stop what else runs (`top` shows it), or wait",
    )
    before = psutil.cpu_times()
    time.sleep(sample_s)
    after = psutil.cpu_times()
    total = max(sum(after) - sum(before), 1e-9)
    idle = sum(getattr(after, kind, 0.0) - getattr(before, kind, 0.0) for kind in ("idle", "iowait"))
    steal = getattr(after, "steal", 0.0) - getattr(before, "steal", 0.0)
    busy = max(1 - (idle + steal) / total, 0.0)
    yield Condition(
        name="other work",
        found=f"{100 * busy:.1f} % of all cores busy while nothing was measured",
        state=_state(busy, _BUSY),
        advice=None if busy <= _BUSY[0] else "stop what else runs (`top` shows it)",
    )
    yield Condition(
        name="steal",
        found=f"{100 * steal / total:.1f} % taken by other guests of the host",
        state=_state(steal / total, _STEAL),
        advice=None if steal / total <= _STEAL[0] else "measure at another hour, or on a machine of your own",
    )


def _governor(root: Path) -> Condition:
    governors = {_read(file) for file in (root / _CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor")} - {None}
    found = ", ".join(sorted(str(governor) for governor in governors))
    if not found:
        return Condition(name="governor", found=_HIDDEN, state="unknown")
    steady = governors == {"performance"}
    advice = None if steady else "`sudo cpupower frequency-set -g performance`"
    return Condition(name="governor", found=found, state="good" if steady else "notable", advice=advice)


def _turbo(root: Path) -> Condition:
    intel = _read(root / _CPUS / "intel_pstate/no_turbo")
    boost = _read(root / _CPUS / "cpufreq/boost")
    if intel is None and boost is None:
        return Condition(name="turbo", found=_HIDDEN, state="unknown")
    on = intel == "0" if intel is not None else boost == "1"
    advice = (
        "the clock follows heat and neighbours; switch it off for the narrowest intervals" if on else None
    )
    return Condition(
        name="turbo", found="on" if on else "off", state="notable" if on else "good", advice=advice
    )


def _throttling(root: Path, sample_s: float) -> Condition:
    before = _throttle_events(root)
    if before is None:
        return Condition(name="throttling", found=_HIDDEN, state="unknown")
    time.sleep(sample_s)
    news = (_throttle_events(root) or 0) - before
    if news:
        found, advice = f"{news} events in {sample_s:g} s", "let it cool, and mend its cooling"
        return Condition(name="throttling", found=found, state="bad", advice=advice)
    return Condition(name="throttling", found=f"none now, {before} events since the start", state="good")


def _throttle_events(root: Path) -> int | None:
    counts = [_read(file) for file in (root / _CPUS).glob("cpu[0-9]*/thermal_throttle/core_throttle_count")]
    known = [int(count) for count in counts if count is not None]
    return sum(known) if known else None


def _siblings(root: Path) -> Condition:
    active = _read(root / _CPUS / "smt/active")
    if active is None:
        return Condition(name="hyperthreads", found=_HIDDEN, state="unknown")
    if active == "0":
        return Condition(name="hyperthreads", found="off", state="good")
    return Condition(
        name="hyperthreads", found="on: two logical cores share one", state="notable",
        advice="leave the other half idle while measuring",
    )  # fmt: skip


def _virtual(root: Path) -> Condition:
    text = _read(root / "proc/cpuinfo")
    if text is None:
        return Condition(name="virtual", found=_HIDDEN, state="unknown")
    if "hypervisor" in text:
        advice = "the host's other guests cannot be seen, only felt"
        return Condition(name="virtual", found="a virtual machine", state="notable", advice=advice)
    return Condition(name="virtual", found="no", state="good")


def _threads(variables: Mapping[str, str], cpus: float) -> Condition:
    """Compare the threads that OpenMP will start, by default one for each physical core, with the cores."""
    said = variables.get("OMP_NUM_THREADS", "")
    threads = int(said) if said.isdigit() else psutil.cpu_count(logical=False) or 1
    found = f"{threads} for {cpus:g} cores"
    if threads <= cpus:
        return Condition(name="threads", found=found, state="good")
    advice = f"`export OMP_NUM_THREADS={max(int(cpus), 1)}`: more threads than cores wait for each other"
    return Condition(name="threads", found=found, state="bad", advice=advice)


def _memory() -> Condition:
    memory = psutil.virtual_memory()
    free = memory.available / memory.total
    scarce = free < _LEAST_FREE_MEMORY
    return Condition(
        name="memory",
        found=f"{100 * free:.0f} % available",
        state="bad" if scarce else "good",
        advice="free some: what is swapped or reclaimed is timed" if scarce else None,
    )


def _swap(sample_s: float) -> Condition:
    before = psutil.swap_memory()
    time.sleep(sample_s / 2)
    after = psutil.swap_memory()
    moved = after.sin + after.sout - before.sin - before.sout
    if moved:
        return Condition(name="swap", found="pages move right now", state="bad", advice="free some memory")
    if after.used:
        found, advice = f"{after.percent:.0f} % used, at rest", "`sudo swapoff -a` while measuring"
        return Condition(name="swap", found=found, state="notable", advice=advice)
    return Condition(name="swap", found="unused", state="good")


def _huge_pages(root: Path) -> Condition:
    text = _read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    if text is None or "[" not in text:
        return Condition(name="huge pages", found=_HIDDEN, state="unknown")
    mode = text.partition("[")[2].partition("]")[0]
    always = mode == "always"
    advice = "set to madvise: which memory gets them is chance, and changes its speed" if always else None
    return Condition(name="huge pages", found=mode, state="notable" if always else "good", advice=advice)


def _allocator(variables: Mapping[str, str]) -> Condition:
    loaded = variables.get("LD_PRELOAD", "")
    other = next((name for name in _OTHER_ALLOCATORS if name in loaded), None)
    if other is None:
        return Condition(name="allocator", found="the system's, held steady in gates", state="good")
    advice = "perfkit cannot hold it steady; make sure that all you compare uses it"
    return Condition(name="allocator", found=other, state="notable", advice=advice)


def _state(share: float, limits: tuple[float, float]) -> State:
    return "good" if share <= limits[0] else "notable" if share <= limits[1] else "bad"


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
