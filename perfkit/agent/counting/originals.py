"""Gives custom functions back the very tensors that they saved, with attributes that were set on them.

The hooks unpack another object. Torch's own functions cannot notice; those written in Python can.
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from .patches import Patches


class Packed(NamedTuple):
    """A saved tensor's data, and the tensor itself as long as somebody else keeps it."""

    data: Any
    origin: weakref.ref[Any]


class Originals:
    """Gives custom functions the originals of what they saved."""

    def __init__(self) -> None:
        self._unpacked: list[Packed] | None = None
        self._patches = Patches()

    def begin(self) -> None:
        """Have custom functions read what they saved by way of this."""
        from torch.autograd.function import BackwardCFunction

        saved: Any = BackwardCFunction.saved_tensors

        def saved_tensors(function: Any) -> tuple[Any, ...]:  # noqa: ANN401 (a node of the graph)
            unpacked: list[Packed] = []
            self._unpacked = unpacked
            try:
                tensors: tuple[Any, ...] = saved.__get__(function)
            finally:
                self._unpacked = None
            return _originals(function, tensors, unpacked)

        self._patches.replace(BackwardCFunction, "saved_tensors", property(saved_tensors))

    def end(self) -> None:
        """Let them read it from torch again."""
        self._patches.undo()

    def unpack(self, packed: Packed) -> Any:  # noqa: ANN401 (a tensor)
        """Return the data of a saved tensor: the hook that torch calls."""
        if self._unpacked is not None:
            self._unpacked.append(packed)
        return packed.data


def _originals(function: Any, tensors: tuple[Any, ...], unpacked: list[Packed]) -> tuple[Any, ...]:  # noqa: ANN401 (a node of the graph)
    if len(unpacked) != sum(tensor is not None for tensor in tensors):
        # These were saved under hooks of the watched code.
        return tensors
    packs = iter(unpacked)
    return tuple(None if tensor is None else _original(function, tensor, next(packs)) for tensor in tensors)


def _original(function: Any, tensor: Any, packed: Packed) -> Any:  # noqa: ANN401 (likewise, and tensors)
    origin = packed.origin()
    # Torch itself gives a function new objects for the results that the function made.
    return tensor if origin is None or origin.grad_fn is function else origin
