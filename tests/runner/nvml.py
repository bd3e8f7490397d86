"""A driver with scripted answers, by the names and errors of nvidia-ml-py."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pynvml


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
