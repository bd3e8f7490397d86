"""Which optimizer steps torch.profiler watches, and how it is told that one is over."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from perfkit.model.phases import MARK

_ACTIVE_STEPS = 3
_FULL_WINDOW = 5


@dataclass(frozen=True, kw_only=True)
class Window:
    """Steps that pass unwatched, then steps that warm the profiler up, then steps that it keeps."""

    wait: int
    warmup: int
    active: int

    @property
    def begin(self) -> int:
        """Number of steps before the first one kept."""
        return self.wait + self.warmup

    @property
    def end(self) -> int:
        """Number of steps after which the run can stop."""
        return self.begin + self.active


class PhaseMarks:
    """Marks the phases that the user names as ranges in a trace, each on the thread that it is in."""

    def __init__(self) -> None:
        self._here = threading.local()

    def enter(self, name: str) -> None:
        """Begin a range."""
        from torch.profiler import record_function

        mark: Any = record_function(f"{MARK}{name}")
        mark.__enter__()
        self._open.append((name, mark))

    def leave(self, name: str) -> None:
        """End the last range of that name, and what is still open in it."""
        if all(name != begun for begun, _ in self._open):
            return
        while self._open:
            begun, mark = self._open.pop()
            mark.__exit__(None, None, None)
            if begun == name:
                return

    @property
    def _open(self) -> list[tuple[str, Any]]:
        """The ranges that are open on this thread, the innermost last."""
        if not hasattr(self._here, "ranges"):
            self._here.ranges = []
        ranges: list[tuple[str, Any]] = self._here.ranges
        return ranges


def choose_window(steps: int | None) -> Window:
    """Return the window for a loop of ``steps`` optimizer steps (None: not known, assumed to be enough)."""
    if steps is None or steps >= _FULL_WINDOW:
        return Window(wait=1, warmup=1, active=_ACTIVE_STEPS)
    return Window(wait=0, warmup=int(steps > 1), active=max(1, steps - 1))


def call_after_each_step(callback: Callable[[], None]) -> None:
    """Have ``callback`` called once an optimizer's ``step`` is over and its range in the trace is closed.

    A post hook runs inside that range, so a step of the trace that ended in one would overlap the range.
    """
    from torch.optim import Optimizer

    hook_step = Optimizer.profile_hook_step

    def profile_hook_step(function: Callable[..., Any]) -> Callable[..., Any]:
        hooked = hook_step(function)

        @functools.wraps(hooked)
        def step(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (an optimizer's own signature)
            result = hooked(*args, **kwargs)
            callback()
            return result

        return step

    Optimizer.profile_hook_step = staticmethod(profile_hook_step)  # type: ignore[method-assign,assignment]
