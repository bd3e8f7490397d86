"""What a step of a training is: a turn of a loop, a batch of a loader, a mark, or what optimizers do."""

from __future__ import annotations

import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from perfkit.profiling.passes.targets import StepLine, loop_around

# Given in place of a line, it has each batch of a loader end a step.
LOADER = "loader"
_LIBRARIES = ("site-packages", "dist-packages")


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What ends a step: a line, with ``loader`` each batch, or else marks or optimizers.

    An earlier pass found the rest: the number of the optimizer that is ``last`` in a step, of ``optimizers``,
    and whether some steps end only with the ``next_batch``.
    """

    line: StepLine | None = None
    loader: bool = False
    marked: bool = False
    last: int | None = None
    optimizers: int = 0
    next_batch: bool = False


def calling_loop() -> StepLine | None:
    """Return the innermost loop of the user's code that runs now, None where there is none."""
    library = sysconfig.get_path("stdlib")
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (as documented)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        own = not (set(_LIBRARIES) & set(path.parts) or path.is_relative_to(library))
        if own and not path.is_relative_to(Path(__file__).parents[2]) and path.suffix == ".py":
            found = loop_around(path, frame.f_lineno, frame.f_code.co_firstlineno)
            if found is not None:
                return found
        frame = frame.f_back
    return None
