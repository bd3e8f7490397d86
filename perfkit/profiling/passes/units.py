"""Finds in a running program what could end the steps of its training."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from types import FrameType

from perfkit.profiling.passes.target_code import is_installed_file
from perfkit.profiling.passes.targets import StepLine, loop_around


def optimizer_exists() -> bool:
    """Return whether there is an optimizer of torch, which may step later than this."""
    from torch.optim import Optimizer

    return any(issubclass(type(one), Optimizer) for one in gc.get_objects())


def calling_loop() -> StepLine | None:
    """Return the innermost loop of the user's code that runs now, None where there is none."""
    perfkit = Path(__file__).parents[2]
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (as documented)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.suffix == ".py" and not (is_installed_file(path) or path.is_relative_to(perfkit)):
            found = loop_around(path, frame.f_lineno, frame.f_code.co_firstlineno)
            if found is not None:
                return found
        frame = frame.f_back
    return None
