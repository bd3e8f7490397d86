"""Timers that wait for the accelerator first."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType

Timer = Callable[[], float]


def uses_accelerator() -> bool:
    """Tell whether a clock has to wait for an accelerator at each reading."""
    return _accelerator() is not None


def _accelerator() -> ModuleType | None:
    """Return what to synchronise, None where no accelerator is in use.

    A device that this process never initialised can hold no work of it, so torch is neither imported nor
    asked to initialise one.
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

    Cached, so that a host which learns the precision of each timer it meets learns it once.
    """

    @functools.wraps(timer)
    def read() -> float:
        # Short of calls: rounds of a few microseconds begin and end with it.
        if "torch" in sys.modules and (accelerator := _accelerator()) is not None:
            accelerator.synchronize()
        return timer()

    return read
