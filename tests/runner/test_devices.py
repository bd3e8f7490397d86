"""Devices are reported as their driver does, by a driver with the names and errors of nvidia-ml-py."""

from __future__ import annotations

import os
import types
from collections.abc import Callable
from typing import Any

import pynvml
import pytest

from perfkit.runner.machine import facts
from perfkit.runner.machine.facts import (
    CROWDED,
    POWER_CAPPED,
    THROTTLED,
    Devices,
    DeviceState,
    Passage,
    passage,
)


class FakeNvml:
    """NVML with the functions that it is given; the others are not supported by its device.

    Constants and errors are those of pynvml, and a function that pynvml does not have is refused.
    """

    def __init__(self, **shown: object) -> None:
        self.asked: list[str] = []
        self._answers: dict[str, object] = {
            "nvmlInit": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": lambda index: f"handle {index}",
            **shown,
        }
        missing = [name for name in self._answers if not hasattr(pynvml, name)]
        assert not missing, f"pynvml has no {missing}"

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 (anything that NVML has)
        real = getattr(pynvml, name)
        if not name.startswith("nvml") or not callable(real):
            return real

        def function(*arguments: object) -> object:
            self.asked.append(name)
            if name not in self._answers:
                raise pynvml.NVMLError_NotSupported
            output = self._answers[name]
            if isinstance(output, type) and issubclass(output, pynvml.NVMLError):
                raise output
            return output(*arguments) if callable(output) else output

        return function


def violations(*series: tuple[float, float]) -> Callable[..., object]:
    """Return a function that reports, call by call of heat, the driver's clock and the time held back."""
    shown = iter(series)

    def status(_: object, policy: int) -> object:
        if policy != pynvml.NVML_PERF_POLICY_THERMAL:
            raise pynvml.NVMLError_NotSupported
        at_s, held_s = next(shown)
        return types.SimpleNamespace(referenceTime=int(at_s * 1e6), violationTime=int(held_s * 1e9))

    return status


H100 = {
    "nvmlSystemGetDriverVersion": "550.54.15",
    "nvmlSystemGetCudaDriverVersion": 12040,
    "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
    "nvmlDeviceGetComputeMode": pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
    "nvmlDeviceGetMigMode": [0, 0],
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetMaxClockInfo": 1980,
    "nvmlDeviceGetEccMode": [1, 1],
    "nvmlDeviceGetTemperature": 41,
    "nvmlDeviceGetClockInfo": lambda _, kind: 1755 if kind == pynvml.NVML_CLOCK_SM else 2619,
    "nvmlDeviceGetPowerUsage": 118_400,
    "nvmlDeviceGetCurrentClocksEventReasons": pynvml.nvmlClocksEventReasonGpuIdle,
    "nvmlDeviceGetComputeRunningProcesses": [],
}


@pytest.fixture(autouse=True)
def _without_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what a torch that another test has imported reports, which may be a build with CUDA."""
    monkeypatch.setattr(facts, "_cudnn", lambda: None)


def _devices(**shown: object) -> Devices:
    return Devices(FakeNvml(**{**H100, **shown}), variables={})


def test_a_device_is_reported_with_its_driver_modes_and_caps() -> None:
    assert {
        "gpu_driver": "550.54.15",
        "gpu_driver_cuda": "12.4",
        "gpu0_name": "NVIDIA H100 80GB HBM3",
        "gpu0_compute_mode": "exclusive process",
        "gpu0_mig": "off",
        "gpu0_power_cap_w": "700",
        "gpu0_most_sm_mhz": "1980",
        "gpu0_ecc": "on",
    } == _devices().facts()


def test_what_forbids_a_comparison_is_of_the_environment() -> None:
    assert {"gpu_driver": "550"} == _devices().environment()
    parts = _devices(nvmlDeviceGetMigMode=[1, 1])
    assert {"gpu_driver": "550", "mig": "on"} == parts.environment()


def test_the_state_of_the_moment_is_read() -> None:
    others = [types.SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in (os.getpid(), 2**22 + 1)]

    (state,) = _devices(nvmlDeviceGetComputeRunningProcesses=others).states()

    assert (
        DeviceState(index=0, temperature_c=41, sm_mhz=1755, memory_mhz=2619, power_w=118.4, others=1) == state
    )


def test_what_a_driver_does_not_support_is_left_out() -> None:
    devices = Devices(FakeNvml(nvmlSystemGetDriverVersion="470.1"), variables={})

    assert {"gpu_driver": "470.1"} == devices.facts()
    assert (DeviceState(index=0),) == devices.states()


@pytest.mark.parametrize(
    "error",
    [pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded, pynvml.NVMLError_NoPermission],
)
def test_without_a_driver_there_are_no_devices(error: type[pynvml.NVMLError]) -> None:
    nvml = FakeNvml(nvmlInit=error)
    devices = Devices(nvml, variables={})

    assert (0, {}, {}, ()) == (len(devices), devices.facts(), devices.environment(), devices.states())
    assert ["nvmlInit"] == nvml.asked


def test_a_device_that_is_lost_reports_nothing() -> None:
    (state,) = _devices(
        nvmlDeviceGetTemperature=pynvml.NVMLError_GpuIsLost,
        nvmlDeviceGetCurrentClocksEventReasons=pynvml.NVMLError_GpuIsLost,
        nvmlDeviceGetCurrentClocksThrottleReasons=pynvml.NVMLError_GpuIsLost,
    ).states()

    assert (None, ()) == (state.temperature_c, state.reasons)


@pytest.mark.parametrize(
    ("visible", "found"), [(None, [0, 1, 2]), ("2,0", [2, 0]), ("", []), ("1,-1,0", [1]), ("GPU-abc", [0])]
)
def test_only_visible_devices_are_read(visible: str | None, found: list[int]) -> None:
    def by_name(name: str) -> str:
        if name != "GPU-abc":
            raise pynvml.NVMLError_NotFound
        return "handle"

    nvml = FakeNvml(nvmlDeviceGetCount=3, nvmlDeviceGetHandleByUUID=by_name)
    variables = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}

    assert found == [state.index for state in Devices(nvml, variables=variables).states()]


def test_an_older_driver_names_reasons_by_the_older_function() -> None:
    (state,) = _devices(
        nvmlDeviceGetCurrentClocksEventReasons=pynvml.NVMLError_FunctionNotFound,
        nvmlDeviceGetCurrentClocksThrottleReasons=pynvml.nvmlClocksThrottleReasonHwThermalSlowdown,
    ).states()

    assert ("too hot for the hardware",) == state.reasons


@pytest.mark.parametrize(
    ("reason", "marks"),
    [
        (pynvml.nvmlClocksThrottleReasonNone, ()),
        (pynvml.nvmlClocksThrottleReasonGpuIdle, ()),
        (pynvml.nvmlClocksThrottleReasonApplicationsClocksSetting, ()),
        (pynvml.nvmlClocksThrottleReasonSwPowerCap, (POWER_CAPPED,)),
        (pynvml.nvmlClocksThrottleReasonHwSlowdown, (THROTTLED,)),
        (pynvml.nvmlClocksThrottleReasonSwThermalSlowdown, (THROTTLED,)),
        (pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown, (THROTTLED,)),
    ],
)
def test_heat_and_faults_throttle_and_a_power_cap_is_reported(reason: int, marks: tuple[str, ...]) -> None:
    before = _devices().states()
    after = _devices(nvmlDeviceGetCurrentClocksEventReasons=reason).states()

    assert marks == passage(before, after).marks


def test_facts_of_a_launch_stand_for_both_its_ends() -> None:
    old = DeviceState(index=1, temperature_c=40, sm_mhz=1980, others=0)
    new = DeviceState(index=1, temperature_c=63, sm_mhz=1410, reasons=("power brake",), others=2)

    assert Passage(
        facts={
            "gpu1_temperature_c_before": "40",
            "gpu1_sm_mhz_before": "1980",
            "gpu1_temperature_c_after": "63",
            "gpu1_sm_mhz_after": "1410",
            "gpu1_held_back_after": "power brake",
            "gpu1_other_processes_after": "2",
        },
        marks=(THROTTLED, CROWDED),
    ) == passage([old], [new])
