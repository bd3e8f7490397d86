"""Which storages the autograd graph keeps for a backward pass, and what line saves them.

Torch offers one way to see them: hooks that pack a tensor when it is saved and unpack it when it is used.
They have two side effects: torch no longer checks that nobody changed a saved tensor, and a dispatch mode of
the watched code sees a detach for each tensor that is used again.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any, NamedTuple

from .memory import Memory
from .originals import Originals, Packed
from .patches import Patches
from .places import Places
from .tally import Source, Tally
from .torch_seam import detached, innermost_saving_hook, no_overrides, storage_of
from .watching import Watching

# A frame and the instruction it stands at.
_Position = tuple[int, int]
_FUNCTION = "torch/autograd/function.py"
_UNKNOWN = "saved tensor"


class SavedTensors:
    """Counts each storage that is saved in an iteration once, parameters excepted.

    An operator's inputs are saved before it runs and its results after it: ``ran`` tells which operator ran.
    """

    def __init__(self, places: Places, memory: Memory, watching: Watching) -> None:
        self._places, self._memory, self._watching = places, memory, watching
        self._saved: dict[int, weakref.ref[Any]] = {}
        self._tally: Tally = Counter()
        self._waiting: list[_Waiting] = []
        self._last: tuple[_Position | None, Source] = (None, (_UNKNOWN, ""))
        self._hooks: Any = None
        self._originals = Originals()
        self._patches = Patches()

    def begin(self) -> None:
        """Set the hooks, and have them out of the way where torch's function transforms refuse any."""
        import torch

        graph: Any = torch.autograd.graph
        disable = graph.disable_saved_tensors_hooks

        @contextlib.contextmanager
        def disable_without_ours(message: str) -> Iterator[None]:
            with self._out_of_the_way(), disable(message):
                yield

        self._set()
        self._originals.begin()
        self._patches.replace(graph, "disable_saved_tensors_hooks", disable_without_ours)

    def end(self) -> None:
        """Remove the hooks, unless others were set since and not yet removed."""
        self.leave_be()
        self._remove()

    def leave_be(self) -> None:
        """Undo what other threads and forked processes would be affected by."""
        self._originals.end()
        self._patches.undo()

    def forget(self) -> None:
        """Begin anew."""
        self._saved.clear()
        self._tally.clear()
        self._waiting.clear()

    def tally(self) -> Tally:
        """Return the bytes of the storages saved."""
        for one in self._waiting:
            self._tally[one.otherwise, one.place] += one.nbytes
        self._waiting.clear()
        return self._tally.copy()

    def ran(self, source: Source, frame: FrameType | None) -> None:
        """Hear which operator ran, called from a frame."""
        position = _position_of(frame)
        if self._waiting:
            for one in self._waiting:
                name = source[0] if one.position == position else one.otherwise
                self._tally[name, one.place] += one.nbytes
            self._waiting.clear()
        self._last = (position, source)

    def _set(self) -> None:
        import torch

        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._originals.unpack)
        self._hooks.__enter__()

    def _remove(self) -> bool:
        if self._hooks is None or innermost_saving_hook() != self._pack:
            return False
        self._hooks.__exit__()
        self._hooks = None
        return True

    @contextlib.contextmanager
    def _out_of_the_way(self) -> Iterator[None]:
        removed = self._remove()
        try:
            yield
        finally:
            if removed and self._watching.on:
                self._set()

    def _pack(self, tensor: Any) -> Packed:  # noqa: ANN401 (a tensor)
        if self._watching.on:
            with no_overrides():
                self._note(tensor, sys._getframe().f_back)  # noqa: SLF001 (the documented way to the caller)
        # Keeping the tensor itself would make a cycle: it refers to the graph node that saves it.
        return Packed(data=detached(tensor), origin=weakref.ref(tensor))

    def _note(self, tensor: Any, frame: FrameType | None) -> None:  # noqa: ANN401 (likewise)
        storage = storage_of(tensor)
        if storage is None or id(storage) in self._saved or _is_parameter(tensor):
            return
        self._saved[id(storage)] = weakref.ref(storage, functools.partial(self._drop, id(storage)))
        place, position = self._places.line_of(frame), _position_of(frame)
        ran_at, ran = self._last
        if position == ran_at and self._memory.source_of(storage) == ran:
            self._tally[ran[0], place] += storage.nbytes()
            return
        otherwise = ran[0] if position == ran_at else _saver(frame)
        self._waiting.append(_Waiting(position, place, storage.nbytes(), otherwise))

    def _drop(self, identity: int, reference: weakref.ref[Any]) -> None:
        if self._saved.get(identity) is reference:
            del self._saved[identity]


class _Waiting(NamedTuple):
    """Bytes saved for an operator that is not known yet, and the name to use if it stays unknown."""

    position: _Position | None
    place: str
    nbytes: int
    otherwise: str


def _position_of(frame: FrameType | None) -> _Position | None:
    return (id(frame), frame.f_lasti) if frame is not None else None


def _is_parameter(tensor: Any) -> bool:  # noqa: ANN401 (a tensor)
    """Tell whether a tensor is a leaf that gets a gradient, or a view of one."""
    base = tensor._base  # noqa: SLF001 (torch documents it)
    return any(one is not None and one.is_leaf and one.requires_grad for one in (tensor, base))


def _saver(frame: FrameType | None) -> str:
    """Return the name of the custom function that saves a tensor, where one does."""
    if frame is None or not frame.f_code.co_filename.endswith(_FUNCTION):
        return _UNKNOWN
    return str(getattr(frame.f_locals.get("cls"), "__qualname__", _UNKNOWN))
