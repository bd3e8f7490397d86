"""Methods of tensors that make the host wait, noted as they are called.

They are replaced on the class for the time of counting. A mode for torch's functions would see them too, but
torch takes other paths under one: attention, for instance, gives up its fast path.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .patches import Patches
from .places import Places
from .syncs import METHODS, Syncs, wait_of_method, waits_nowhere
from .torch_seam import no_overrides
from .watching import Watching

_Method = Callable[..., Any]


class WaitingMethods:
    """Notes the calls of methods that wait, by the line that makes them."""

    def __init__(self, watching: Watching, places: Places, syncs: Syncs) -> None:
        self._watching, self._places, self._syncs = watching, places, syncs
        self._patches = Patches()

    def begin(self) -> None:
        """Have the methods noted from now on."""
        import torch

        for name, what in METHODS.items():
            self._patches.replace(
                torch.Tensor, name, self._noted(getattr(torch.Tensor, name), name, what, is_tensors=True)
            )
        cuda: Any = torch.cuda
        for owner, what in (
            (cuda, "torch.cuda.synchronize"),
            (cuda.Event, "Event.synchronize"),
            (cuda.Stream, "Stream.synchronize"),
        ):
            name = "synchronize"
            self._patches.replace(
                owner, name, self._noted(getattr(owner, name), name, what, is_tensors=False)
            )

    def end(self) -> None:
        """Put the methods back."""
        self._patches.undo()

    def _noted(self, method: _Method, name: str, what: str, *, is_tensors: bool) -> _Method:
        watching = self._watching

        @functools.wraps(method)
        def noted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the method's own signature)
            if not watching.on or watching.in_wait or not watching.is_here():
                return method(*args, **kwargs)
            watching.in_wait = True
            try:
                result = method(*args, **kwargs)
            finally:
                watching.in_wait = False
            with no_overrides():
                real = wait_of_method(name, args[0], args[1:], kwargs, result) if is_tensors else True
            if real is not None:
                self._note(what, real=real)
            return result

        return noted

    def _note(self, what: str, *, real: bool) -> None:
        frame = sys._getframe(2)  # noqa: SLF001 (the documented way to the caller)
        if real:
            self._watching.sees_device = True
        elif waits_nowhere(what, frame):
            return
        self._syncs.note(what, self._places.line_of(frame), real=real)
