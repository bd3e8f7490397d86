"""The machine: what identifies it, and what else is known of it."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from perfkit.agent.provenance import read_torch_settings
from perfkit.errors import NotMeasuredError
from perfkit.extras import is_installed
from perfkit.identity import fingerprint
from perfkit.model import ABSENT, Environment, Machine
from perfkit.model.surroundings import MACHINE_SPEEDS
from perfkit.runner.machine.devices import own_devices

_GIB = 1 << 30
_SPEED_S = 0.05
_MEMORY = Path("/proc/meminfo")
# The lines of /proc/cpuinfo that cpuinfo takes a CPU's name from.
_NAMES_OF_CPU = frozenset({"model name", "cpu", "processor", "uarch"})


def read_machine(*, timed: bool = False) -> Machine:
    """Return this machine, ``timed`` with what fixed work takes on it.

    Only CPU model, logical CPUs, RAM in GiB and GPUs identify it.
    """
    check_proc()
    identity = {
        "cpu": _cpu_model(),
        "logical_cpus": str(psutil.cpu_count(logical=True)),
        "ram_gib": str(round(psutil.virtual_memory().total / _GIB)),
        "gpus": ", ".join(_gpu_models()),
    }
    other = {
        "node": platform.node(),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "physical_cpus": str(psutil.cpu_count(logical=False)),
        "load_1min": f"{psutil.getloadavg()[0]:.2f}",
        **_governor(),
        **own_devices().facts(),
        **(_speeds() if timed else {}),
    }
    return Machine(machine_id=fingerprint(identity), facts={**identity, **other})


def free_memory() -> int:
    """Return the bytes that processes can still take of the host's memory."""
    return int(psutil.virtual_memory().available)


def _speeds() -> dict[str, str]:
    """Time a Python loop and, where numpy is imported anyway, a matrix product."""
    work: list[Callable[[], object]] = [_python_loop]
    if (numpy := sys.modules.get("numpy")) is not None:
        # Small enough for one thread.
        square = numpy.ones((64, 64))
        work.append(lambda: [square @ square for _ in range(10)])
    return {name: f"{1e3 * _quickest(one):.4g}" for name, one in zip(MACHINE_SPEEDS, work, strict=False)}


def _python_loop() -> None:
    """Make random numbers: of simple loops, this one differs least from process to process."""
    number = 1
    for _ in range(5000):
        number = (number * 1103515245 + 12345) & 0x7FFFFFFF


def _quickest(work: Callable[[], object]) -> float:
    now = time.perf_counter
    begun, quickest = now(), math.inf
    while (start := now()) < begun + _SPEED_S:
        work()
        quickest = min(quickest, now() - start)
    return quickest


def check_proc() -> None:
    """Refuse a Linux without ``/proc``, where no process can be followed and no machine recognised."""
    if sys.platform == "linux" and not _MEMORY.exists():
        raise NotMeasuredError(
            "/proc is not mounted, so neither this machine nor its processes can be seen and nothing was"
            " measured: mount -t proc proc /proc"
        )


def _cpu_model() -> str:
    named = _named_by_kernel()
    if named is not None:
        return named
    # This module comes with pytest-benchmark, which depends on one of the two distributions that have it.
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return str(info.get("brand_raw") or info.get("arch") or platform.processor())


def _named_by_kernel() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    fields = (line.partition(":") for line in lines)
    named = (value.strip() for name, _, value in fields if name.strip().lower() in _NAMES_OF_CPU)
    return next((model for model in named if model and not model.isdigit()), None)


def _governor() -> dict[str, str]:
    places = Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    try:
        found = sorted({place.read_text(encoding="utf-8").strip() for place in places})
    except OSError:
        return {}
    return {"governor": ", ".join(found)} if found else {}


def _gpu_models() -> list[str]:
    if not is_installed("pynvml"):
        return _gpus_named_by_driver()
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [str(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()


def _gpus_named_by_driver(root: Path = Path("/")) -> list[str]:
    named = {}
    for file in (root / "proc/driver/nvidia/gpus").glob("*/information"):
        fields = (line.partition(":") for line in _text(file).splitlines())
        named[file.parent.name] = next((text.strip() for name, _, text in fields if name == "Model"), "")
    return [named[place] for place in sorted(named) if named[place]]


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "LD_PRELOAD",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "PYTORCH_CUDA_ALLOC_CONF",
)


def read_environment(
    variables: Mapping[str, str] = os.environ,
    *,
    torch_settings: Mapping[str, str] | None = None,
    installed: Mapping[str, str] | None = None,
) -> Environment:
    """Return the environment of this process, or of another one by its variables and torch's settings."""
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "torch": _version("torch"),
        **{name: variables[name] for name in _VARIABLES if name in variables},
        **(installed or {}),
        **(read_torch_settings() if torch_settings is None else torch_settings),
        **own_devices().environment(),
    }
    return Environment(env_id=fingerprint(facts), facts=facts)


@functools.cache
def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT


def about_lines() -> Iterator[str]:
    """Yield versions, system, CPU and GPUs without importing torch, which may be broken."""
    software, machine = read_environment(torch_settings={}).facts, read_machine().facts
    yield f"perfkit {_version('perfkit')}"
    yield f"Python: {software['python']}"
    yield f"torch: {software['torch']}"
    yield f"pytest: {_version('pytest')}"
    yield f"pytest-benchmark: {_version('pytest-benchmark')}"
    yield f"OS: {platform.platform()}"
    yield f"CPU: {machine['cpu']}"
    yield f"cores: {machine['physical_cpus']} physical, {machine['logical_cpus']} logical"
    yield f"GPU: {machine['gpus'] or 'none seen'}"
