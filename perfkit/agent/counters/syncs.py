"""Counts what makes the host wait for a device: calls of methods of tensors, and operators."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from .interventions import Guard, Patches
from .model import Amounts, Places
from .torch_adapter import no_overrides

# Returns the call that waits, as people write it, given an operator's arguments; None if it does not wait.
Wait = Callable[[tuple[Any, ...], Mapping[str, Any]], str | None]
_WAITING = {
    "aten::_linalg_check_errors": "torch.linalg",
    "aten::_local_scalar_dense": "Tensor.item",
    "aten::_unique": "torch.unique",
    "aten::_unique2": "torch.unique",
    "aten::allclose": "torch.allclose",
    "aten::bincount": "torch.bincount",
    "aten::equal": "torch.equal",
    "aten::is_nonzero": "bool(Tensor)",
    "aten::masked_select": "torch.masked_select",
    "aten::nonzero": "torch.nonzero",
    "aten::unique_consecutive": "torch.unique_consecutive",
    "aten::unique_dim": "torch.unique",
    "aten::unique_dim_consecutive": "torch.unique_consecutive",
}
_MASKED = frozenset({"aten::_unsafe_index", "aten::index"})
_MASKED_PUT = frozenset(
    {"aten::_index_put_impl_", "aten::_unsafe_index_put", "aten::index_put", "aten::index_put_"}
)
# These methods of Tensor wait; the texts name them as people write them.
METHODS = {
    "__array__": "numpy.asarray(Tensor)",
    "__bool__": "bool(Tensor)",
    "__float__": "float(Tensor)",
    "__index__": "operator.index(Tensor)",
    "__int__": "int(Tensor)",
    "__repr__": "repr(Tensor)",
    "cpu": "Tensor.cpu",
    "cuda": "Tensor.cuda",
    "item": "Tensor.item",
    "numpy": "Tensor.numpy",
    "to": "Tensor.to",
    "tolist": "Tensor.tolist",
}
_MOVES = frozenset({"cpu", "cuda", "to"})
# This code of torch keeps tensors on the host on purpose: a sampler's indices, an optimizer's step number.
_HOST_SIDE = ("torch/utils/data/", "torch/optim/optimizer.py")
# This code of torch collects tensors on one device, where most of them are already.
_GATHERING = ("torch/amp/", "torch/nn/utils/", "torch/optim/")
_Method = Callable[..., Any]


@dataclass(kw_only=True)
class Watching:
    """Whether to count now, for which thread, and whether a device other than the host was used.

    ``in_wait`` is true while a method runs that makes the host wait: its operators are part of that one wait.
    """

    on: bool = False
    in_wait: bool = False
    sees_device: bool = False
    thread: int = field(default_factory=threading.get_ident)
    guarded: Guard = field(init=False)

    def __post_init__(self) -> None:
        self.guarded = Guard(self._stop)

    def _stop(self) -> None:
        self.on = False

    def is_here(self) -> bool:
        """Return whether this thread is the one that is watched."""
        return threading.get_ident() == self.thread


class Syncs:
    """The waits of an iteration: real ones, and those of host tensors, which count if there is no device."""

    def __init__(self, places: Places) -> None:
        self._places = places
        # The keys are whether the line allows the wait, and whether it was for a device.
        self._amounts: dict[tuple[bool, bool], Amounts] = {}

    def note(self, what: str, place: str, *, real: bool) -> None:
        """Count a wait that an own line makes."""
        kind = (self._places.allows_sync(place), real)
        self._amounts.setdefault(kind, Counter())[what, place] += 1

    def forget(self) -> None:
        """Clear all amounts."""
        self._amounts.clear()

    def amounts(self, *, allowed: bool, with_device: bool) -> Amounts:
        """Return the waits; where a device is in use, only those for it."""
        found = self._amounts.get((allowed, True), Counter())
        return found if with_device else found + self._amounts.get((allowed, False), Counter())


def wait_of(schema: Any) -> Wait | None:  # noqa: ANN401 (torch has no type for it)
    """Return a check of whether a call of an operator waits for a device; None where no call does."""
    name = schema.name
    if name in _WAITING:
        return lambda _args, _kwargs: _WAITING[name]
    if name in _MASKED:
        return lambda args, _kwargs: "boolean mask" if _masks(args[1]) else None
    if name in _MASKED_PUT:
        return _wait_of_put
    if (name, schema.overload_name) == ("aten::repeat_interleave", "Tensor"):
        return lambda _args, kwargs: "torch.repeat_interleave" if kwargs.get("output_size") is None else None
    if name == "aten::_to_copy":
        return _wait_of_copy_to
    return _wait_of_copy if name == "aten::copy_" else None


def wait_of_method(
    name: str,
    tensor: Any,  # noqa: ANN401 (a tensor)
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    result: Any,  # noqa: ANN401 (any value)
) -> bool | None:
    """Return whether a call of a method waited (True), would wait on a device (False), or neither (None)."""
    if name not in _MOVES:
        return not tensor.is_cpu
    if (name == "to" and not _names_device(args, kwargs)) or _is_non_blocking(args, kwargs):
        return None
    if not tensor.is_cpu and not result.is_cpu:
        return None
    return not (tensor.is_cpu and result.is_cpu)


def waits_nowhere(what: str, frame: FrameType | None) -> bool:
    """Return whether a frame is of a part of torch that waits for host tensors only, even with a device."""
    if frame is None:
        return False
    return _is_of(_GATHERING if what == METHODS["to"] else _HOST_SIDE, frame.f_code.co_filename)


@functools.cache
def _is_of(parts: tuple[str, ...], file: str) -> bool:
    return any(part in file for part in parts)


def _wait_of_put(args: tuple[Any, ...], _kwargs: Mapping[str, Any]) -> str | None:
    indices, values = args[1], args[2]
    # Torch fills in one number under one mask without knowing the indices, so it does not wait.
    fills = values.is_cpu and values.numel() == 1 and sum(index is not None for index in indices) == 1
    return "boolean mask" if _masks(indices) and not fills else None


def _wait_of_copy_to(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    device = kwargs.get("device")
    if device is None or kwargs.get("non_blocking"):
        return None
    return "Tensor.to" if args[0].is_cpu != (device.type == "cpu") else None


def _wait_of_copy(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    if kwargs.get("non_blocking") or (len(args) > 2 and args[2]):  # noqa: PLR2004 (target, source, non-blocking)
        return None
    return "Tensor.copy_" if args[0].is_cpu != args[1].is_cpu else None


def _masks(indices: Any) -> bool:  # noqa: ANN401 (a list of tensors)
    import torch

    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _names_device(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    import torch

    if kwargs.get("device") is not None or kwargs.get("other") is not None:
        return True
    first = args[0] if args else None
    return isinstance(first, (str, int, torch.device, torch.Tensor)) and not isinstance(first, bool)


def _is_non_blocking(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    # The first boolean among the positional arguments is ``non_blocking``.
    flags = [value for value in args if isinstance(value, bool)]
    return bool(kwargs.get("non_blocking", flags[0] if flags else False))


class WaitingMethods:
    """Notes the calls of methods that wait, by the line that makes them."""

    def __init__(self, watching: Watching, places: Places, syncs: Syncs) -> None:
        self._watching, self._places, self._syncs = watching, places, syncs
        self._patches = Patches()

    def begin(self) -> None:
        """Begin to note calls of the methods."""
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
        """Restore the methods."""
        self._patches.undo()

    def _noted(self, method: _Method, name: str, what: str, *, is_tensors: bool) -> _Method:
        watching = self._watching

        @watching.guarded
        def note(frame: FrameType, result: object, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 (likewise)
            with no_overrides():
                real = wait_of_method(name, args[0], args[1:], kwargs, result) if is_tensors else True
            if real is not None:
                self._note(what, frame, real=real)

        @functools.wraps(method)
        def noted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the method's own signature)
            if not watching.on or watching.in_wait or threading.get_ident() != watching.thread:
                return method(*args, **kwargs)
            watching.in_wait = True
            try:
                result = method(*args, **kwargs)
            finally:
                watching.in_wait = False
            note(sys._getframe(1), result, *args, **kwargs)  # noqa: SLF001 (the documented way to the caller)
            return result

        return noted

    def _note(self, what: str, frame: FrameType, *, real: bool) -> None:
        if real:
            self._watching.sees_device = True
        elif waits_nowhere(what, frame):
            return
        self._syncs.note(what, self._places.line_of(frame), real=real)
