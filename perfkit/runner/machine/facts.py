"""The machine: what identifies it, and what else is known of it."""

from __future__ import annotations

import functools
import importlib.metadata
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from perfkit.agent.provenance import read_torch_settings
from perfkit.errors import NotMeasuredError
from perfkit.extras import is_installed
from perfkit.identity import fingerprint
from perfkit.model import ABSENT, Environment, Machine
from perfkit.model.surroundings import MACHINE_SPEEDS

THROTTLED = "throttled"
POWER_CAPPED = "power-capped"
CROWDED = "other processes on the device"

# The bits that NVML names, by the end of the name: these slow a device down since it is too hot or badly fed.
_THROTTLES: Mapping[str, str] = {
    "HwSlowdown": "slowed down by the hardware",
    "HwThermalSlowdown": "too hot for the hardware",
    "SwThermalSlowdown": "too hot for the driver",
    "HwPowerBrakeSlowdown": "power brake",
    "BoardLimit": "limit of the board",
    "Reliability": "limit of reliability",
}
# A device under full load is often at its power cap, so that is reported and does not spoil a launch.
_CAPS: Mapping[str, str] = {"SwPowerCap": "at its power cap"}
# The clocks of a device are held back for this share of a launch before the launch counts as throttled.
_LEAST_SHARE = 0.01
_COMPUTE_MODES = ("default", "exclusive thread", "prohibited", "exclusive process")
_MILLI, _NANO = 1e-3, 1e-9


@dataclass(frozen=True, kw_only=True)
class DeviceState:
    """One device at one moment; None is what its driver does not report.

    ``throttled_s`` and ``capped_s`` are the seconds for which heat and power held clocks back since the
    driver was loaded; ``others`` counts other processes on the device.
    """

    index: int
    at_s: float | None = None
    temperature_c: int | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    power_w: float | None = None
    reasons: tuple[str, ...] = ()
    throttled_s: float | None = None
    capped_s: float | None = None
    others: int | None = None


@dataclass(frozen=True, kw_only=True)
class Passage:
    """What happened to the devices between two moments: facts of both, and marks of what was measured."""

    facts: Mapping[str, str] = field(default_factory=dict)
    marks: tuple[str, ...] = ()


class Devices:
    """The devices that this process may use; none where there is no driver, or no library to ask it."""

    def __init__(self, nvml: Any = None, *, variables: Mapping[str, str] = os.environ) -> None:  # noqa: ANN401 (see the module)
        self._nvml = _pynvml() if nvml is None else nvml
        self._handles = tuple(self._open(variables))

    def __len__(self) -> int:
        return len(self._handles)

    def facts(self) -> dict[str, str]:
        """Return what does not change while the machine is up: driver, versions, modes and caps."""
        if not self._handles:
            return {}
        cuda = self._ask("nvmlSystemGetCudaDriverVersion")
        found = {
            "gpu_driver": self._ask("nvmlSystemGetDriverVersion"),
            "gpu_driver_cuda": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "cudnn": _cudnn(),
        }
        for index, handle in self._handles:
            found |= {f"gpu{index}_{name}": value for name, value in self._facts_of(handle)}
        return {name: str(value) for name, value in found.items() if value is not None}

    def environment(self) -> dict[str, str]:
        """Return what forbids to compare times where it differs: the driver's major version, and MIG."""
        known = self.facts()
        driver = known.get("gpu_driver", "").partition(".")[0]
        parts = [name for name, value in known.items() if name.endswith("_mig") and value == "on"]
        return {**({"gpu_driver": driver} if driver else {}), **({"mig": "on"} if parts else {})}

    def states(self) -> tuple[DeviceState, ...]:
        """Return the state of each device now."""
        return tuple(self._state(index, handle) for index, handle in self._handles)

    def _open(self, variables: Mapping[str, str]) -> Iterator[tuple[int, Any]]:
        if self._nvml is None or self._ask("nvmlInit", default=False) is False:
            return
        wanted = variables.get("CUDA_VISIBLE_DEVICES")
        count = self._ask("nvmlDeviceGetCount") or 0
        names = [str(index) for index in range(count)] if wanted is None else wanted.split(",")
        for place, name in enumerate(name.strip() for name in names):
            by_number = name.isdigit()
            ask = "nvmlDeviceGetHandleByIndex" if by_number else "nvmlDeviceGetHandleByUUID"
            handle = self._ask(ask, int(name) if by_number else name)
            # As CUDA does, all devices behind a name that stands for none are invisible.
            if handle is None:
                return
            yield (int(name) if by_number else place), handle

    def _facts_of(self, handle: object) -> Iterator[tuple[str, object]]:
        yield "name", self._ask("nvmlDeviceGetName", handle)
        mode = self._ask("nvmlDeviceGetComputeMode", handle)
        known = mode is not None and mode < len(_COMPUTE_MODES)
        yield "compute_mode", _COMPUTE_MODES[mode] if known else mode
        mig = self._ask("nvmlDeviceGetMigMode", handle)
        yield "mig", None if mig is None else "on" if mig[0] else "off"
        cap = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        yield "power_cap_w", None if cap is None else f"{cap * _MILLI:g}"
        most = self._ask("nvmlDeviceGetMaxClockInfo", handle, self._value("NVML_CLOCK_SM"))
        yield "most_sm_mhz", most
        ecc = self._ask("nvmlDeviceGetEccMode", handle)
        yield "ecc", None if ecc is None else "on" if ecc[0] else "off"

    def _state(self, index: int, handle: object) -> DeviceState:
        power = self._ask("nvmlDeviceGetPowerUsage", handle)
        heat = self._held_back(handle, "NVML_PERF_POLICY_THERMAL")
        cap = self._held_back(handle, "NVML_PERF_POLICY_POWER")
        return DeviceState(
            index=index,
            at_s=heat[0] if heat else cap[0] if cap else None,
            temperature_c=self._ask("nvmlDeviceGetTemperature", handle, self._value("NVML_TEMPERATURE_GPU")),
            sm_mhz=self._ask("nvmlDeviceGetClockInfo", handle, self._value("NVML_CLOCK_SM")),
            memory_mhz=self._ask("nvmlDeviceGetClockInfo", handle, self._value("NVML_CLOCK_MEM")),
            power_w=None if power is None else power * _MILLI,
            reasons=self._reasons(handle),
            throttled_s=heat[1] if heat else None,
            capped_s=cap[1] if cap else None,
            others=self._others(handle),
        )

    def _held_back(self, handle: object, policy: str) -> tuple[float, float] | None:
        value = self._ask("nvmlDeviceGetViolationStatus", handle, self._value(policy))
        return None if value is None else (value.referenceTime / 1e6, value.violationTime * _NANO)

    def _reasons(self, handle: object) -> tuple[str, ...]:
        bits = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if bits is None:
            bits = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle) or 0
        named = {**_THROTTLES, **_CAPS}
        return tuple(words for end, words in named.items() if bits & (self._value(_REASON + end) or 0))

    def _others(self, handle: object) -> int | None:
        found = self._ask("nvmlDeviceGetComputeRunningProcesses", handle)
        return None if found is None else len({one.pid for one in found} - _family())

    def _value(self, name: str) -> Any:  # noqa: ANN401 (a constant of NVML)
        return getattr(self._nvml, name, None)

    def _ask(self, name: str, *arguments: object, default: Any = None) -> Any:  # noqa: ANN401 (any value of NVML)
        function: Callable[..., Any] | None = getattr(self._nvml, name, None)
        if function is None:
            return default
        try:
            return function(*arguments)
        except self._nvml.NVMLError:
            return default


_REASON = "nvmlClocksThrottleReason"


def passage(before: Sequence[DeviceState], after: Sequence[DeviceState]) -> Passage:
    """Return what happened between two readings of the same devices.

    Heat, the power brake and other faults throttle: found at either end, or, where the driver counts the time
    in which clocks were held back, for more than a hundredth of the time between.
    """
    facts: dict[str, str] = {}
    marks: dict[str, None] = {}
    # Where nothing was read before, nothing is reported.
    for old, new in zip(before, after, strict=False):
        for moment, state in (("before", old), ("after", new)):
            facts |= {f"gpu{state.index}_{name}_{moment}": value for name, value in _facts_of_state(state)}
        reasons = {*old.reasons, *new.reasons}
        if reasons & {*_THROTTLES.values()} or _grew(old, new, "throttled_s"):
            marks[THROTTLED] = None
        if reasons & {*_CAPS.values()} or _grew(old, new, "capped_s"):
            marks[POWER_CAPPED] = None
        if old.others or new.others:
            marks[CROWDED] = None
    return Passage(facts=facts, marks=tuple(marks))


def _facts_of_state(state: DeviceState) -> Iterator[tuple[str, str]]:
    for name in ("temperature_c", "sm_mhz", "memory_mhz"):
        value = getattr(state, name)
        if value is not None:
            yield name, str(value)
    if state.power_w is not None:
        yield "power_w", f"{state.power_w:.0f}"
    if state.reasons:
        yield "held_back", "; ".join(state.reasons)
    if state.others:
        yield "other_processes", str(state.others)


def _grew(old: DeviceState, new: DeviceState, what: str) -> bool:
    before, after = getattr(old, what), getattr(new, what)
    if None in (before, after, old.at_s, new.at_s):
        return False
    passed_s = (new.at_s or 0.0) - (old.at_s or 0.0)
    return bool(after - before > _LEAST_SHARE * max(passed_s, 0.0) and after > before)


def _family() -> set[int]:
    own = psutil.Process()
    return {own.pid, *(one.pid for one in (*own.parents(), *own.children(recursive=True)))}


def _cudnn() -> int | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.version.cuda:
        return None
    version: int | None = torch.backends.cudnn.version()
    return version


def _pynvml() -> Any:  # noqa: ANN401 (see the module)
    if not is_installed("pynvml"):
        return None
    import pynvml

    return pynvml


@functools.cache
def own_devices() -> Devices:
    """Return the devices of this process; the driver is opened once."""
    return Devices()


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
