"""Timers that synchronise the accelerator before each reading."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType

Timer = Callable[[], float]


def uses_accelerator() -> bool:
    """Tell whether an accelerator is in use, which each reading of a clock has to wait for."""
    return _accelerator() is not None


def _accelerator() -> ModuleType | None:
    """Return what to synchronise, None where no accelerator is in use.

    A device that this process never initialised has no work of it, so torch is not imported, and no device is
    initialised, for this.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    if torch.cuda.is_initialized():
        return torch.cuda  # type: ignore[no-any-return]
    return torch.mps if torch.backends.mps.is_available() else None


@functools.cache
def synchronised(timer: Timer) -> Timer:
    """Return a timer that synchronises the accelerator once, right before each reading.

    It is cached, since pytest-benchmark measures the precision of each new timer that it is given.
    """

    @functools.wraps(timer)
    def read() -> float:
        # It makes few calls of its own, since rounds of a few microseconds begin and end with it.
        if "torch" in sys.modules and (accelerator := _accelerator()) is not None:
            accelerator.synchronize()
        return timer()

    return read
