"""The machine: what identifies it, and what else is known of it."""

from __future__ import annotations

import platform

import psutil

from perfkit.identity import fingerprint
from perfkit.records import Machine

_GIB = 1 << 30


def read_machine() -> Machine:
    """Return this machine; only CPU model, logical CPUs, RAM in GiB and GPUs identify it."""
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
    }
    return Machine(machine_id=fingerprint(identity), facts={**identity, **other})


def _cpu_model() -> str:
    # This module comes with pytest-benchmark, which depends on one of the two distributions that have it.
    import cpuinfo

    info = cpuinfo.get_cpu_info()
    return str(info.get("brand_raw") or info.get("arch") or platform.processor())


def _gpu_models() -> list[str]:
    """Return the names of NVIDIA devices, without initialising CUDA in this process."""
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
