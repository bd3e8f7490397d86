"""NVIDIA devices as their driver reports them: what they are, and their state before and after a launch."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psutil

from perfkit.extras import is_installed

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
