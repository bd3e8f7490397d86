"""Timers that wait for the accelerator first."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType

Timer = Callable[[], float]


def synchronise_accelerator() -> None:
    """Wait until the accelerator has done all it was given; costs nothing where none is in use.

    A device that this process never initialised can hold no work of it, so torch is neither imported nor
    asked to initialise one.
    """
    accelerator = _accelerator()
    if accelerator is not None:
        accelerator.synchronize()


def uses_accelerator() -> bool:
    """Tell whether a clock has to wait for an accelerator at each reading."""
    return _accelerator() is not None


def _accelerator() -> ModuleType | None:
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
        synchronise_accelerator()
        return timer()

    return read
