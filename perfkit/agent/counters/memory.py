"""The memory of tensors: when storages are allocated and freed, and which of them a backward pass keeps.

Torch offers one way to see what is saved for a backward pass: hooks that pack a tensor when it is saved and
unpack it when it is used. They have three side effects. Torch no longer checks that a saved tensor was not
changed; a dispatch mode of the watched code sees a detach for each tensor that is used again; and what is
unpacked is another object, without the attributes that were set on the tensor. Torch's own functions cannot
notice the last; functions written in Python can, so they get the very tensors that they saved.
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

from .interventions import Patches
from .model import Amounts, Places, Source
from .syncs import Watching
from .torch_adapter import detached, innermost_saving_hook, no_overrides, storage_of

# A position is a frame's identity, and the instruction that it is at.
_Position = tuple[int, int]
_FUNCTION = "torch/autograd/function.py"
_UNKNOWN = "saved tensor"


class Memory:
    """The storages allocated in an iteration; those of earlier iterations are not counted."""

    def __init__(self) -> None:
        # These are bytes allocated, or freed where negative, in the order of time.
        self._changes: list[tuple[Source, int]] = []
        self._held: dict[int, _Held] = {}

    def hold(self, storage: Any, source: Source) -> None:  # noqa: ANN401 (a torch storage)
        """Remember a storage that an operator returned, unless it is known already."""
        # Torch keeps a storage's Python object as long as the storage, so its identity is the storage's.
        if id(storage) in self._held:
            return
        held = _Held(storage, self._release)
        held.identity, held.source, held.nbytes = id(storage), source, storage.nbytes()
        self._held[held.identity] = held
        self._changes.append((source, held.nbytes))

    def source_of(self, storage: Any) -> Source | None:  # noqa: ANN401 (likewise)
        """Return what allocated a storage in this iteration."""
        held = self._held.get(id(storage))
        return held.source if held is not None else None

    def forget(self) -> None:
        """Forget all storages: those alive now belong to no later iteration."""
        self._held.clear()
        self._changes.clear()

    def forget_changes(self) -> None:
        """Forget what was allocated and freed, and go on to know the storages that are alive."""
        self._changes.clear()

    def alive(self) -> Amounts:
        """Return the bytes of the storages that are known and alive, by what allocated them."""
        alive: Amounts = Counter()
        for held in list(self._held.values()):
            alive[held.source] += held.nbytes
        return alive

    def allocated(self) -> Amounts:
        """Return the bytes of all storages allocated."""
        allocated: Amounts = Counter()
        for source, nbytes in self._changes:
            if nbytes > 0:
                allocated[source] += nbytes
        return allocated

    def peak(self) -> Amounts:
        """Return the bytes by source at the time when the most bytes were alive."""
        alive = most = until = 0
        for number, (_, nbytes) in enumerate(self._changes, start=1):
            alive += nbytes
            if alive > most:
                most, until = alive, number
        at_peak: Amounts = Counter()
        for source, nbytes in self._changes[:until]:
            at_peak[source] += nbytes
        return at_peak

    def _release(self, held: _Held) -> None:
        if self._held.pop(held.identity, None) is held:
            self._changes.append((held.source, -held.nbytes))


class _Held(weakref.ref[Any]):
    """A weak reference to a storage, so that watching it does not keep it alive."""

    __slots__ = ("identity", "nbytes", "source")
    identity: int
    nbytes: int
    source: Source


class Packed(NamedTuple):
    """A saved tensor's data, and a weak reference to the tensor itself."""

    data: Any
    origin: weakref.ref[Any]


class Originals:
    """Gives custom autograd functions the very tensors that they saved, instead of unpacked copies."""

    def __init__(self) -> None:
        self._unpacked: list[Packed] | None = None
        self._patches = Patches()

    def begin(self) -> None:
        """Replace the attribute by which custom functions read what they saved."""
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
        """Restore torch's own attribute."""
        self._patches.undo()

    def unpack(self, packed: Packed) -> Any:  # noqa: ANN401 (a tensor)
        """Return the data of a saved tensor: the hook that torch calls."""
        if self._unpacked is not None:
            self._unpacked.append(packed)
        return packed.data


def _originals(function: Any, tensors: tuple[Any, ...], unpacked: list[Packed]) -> tuple[Any, ...]:  # noqa: ANN401 (a node of the graph)
    if len(unpacked) != sum(tensor is not None for tensor in tensors):
        # These were saved under the watched code's own hooks.
        return tensors
    packs = iter(unpacked)
    return tuple(None if tensor is None else _original(function, tensor, next(packs)) for tensor in tensors)


def _original(function: Any, tensor: Any, packed: Packed) -> Any:  # noqa: ANN401 (likewise, and tensors)
    origin = packed.origin()
    # Torch itself gives a function new objects for its own results.
    return tensor if origin is None or origin.grad_fn is function else origin


class SavedTensors:
    """Counts once each storage that is saved in an iteration, parameters excepted.

    An operator's inputs are saved before it runs and its results after it: ``ran`` records which one ran.
    """

    def __init__(self, places: Places, memory: Memory, watching: Watching) -> None:
        self._places, self._memory, self._watching = places, memory, watching
        self._note, self._detached = watching.guarded(self._note_one), watching.guarded(detached)
        self._saved: dict[int, weakref.ref[Any]] = {}
        self._amounts: Amounts = Counter()
        self._waiting: list[_Waiting] = []
        self._last: tuple[_Position | None, Source] = (None, (_UNKNOWN, ""))
        self._hooks: Any = None
        self._originals = Originals()
        self._patches = Patches()

    def begin(self) -> None:
        """Set the hooks, and remove them for as long as torch's function transforms forbid any."""
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
        """Undo all changes but the hooks, since other threads and forked processes would see them."""
        self._originals.end()
        self._patches.undo()

    def forget(self) -> None:
        """Forget all saved storages and their bytes."""
        self._saved.clear()
        self._amounts.clear()
        self._waiting.clear()

    def amounts(self) -> Amounts:
        """Return the bytes of the saved storages by source."""
        for one in self._waiting:
            self._amounts[one.otherwise, one.place] += one.nbytes
        self._waiting.clear()
        return self._amounts.copy()

    def ran(self, source: Source, frame: FrameType | None) -> None:
        """Note which operator ran, called from a frame."""
        position = _position_of(frame)
        if self._waiting:
            for one in self._waiting:
                name = source[0] if one.position == position else one.otherwise
                self._amounts[name, one.place] += one.nbytes
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
            self._note(tensor, sys._getframe().f_back)  # noqa: SLF001 (the documented way to the caller)
        # Keeping the tensor itself would make a cycle: it refers to the graph node that saves it.
        data = self._detached(tensor)
        return Packed(data=tensor if data is None else data, origin=weakref.ref(tensor))

    def _note_one(self, tensor: Any, frame: FrameType | None) -> None:  # noqa: ANN401 (likewise)
        with no_overrides():
            self._note_storage(tensor, frame)

    def _note_storage(self, tensor: Any, frame: FrameType | None) -> None:  # noqa: ANN401 (likewise)
        storage = storage_of(tensor)
        if storage is None or id(storage) in self._saved or _is_parameter(tensor):
            return
        self._saved[id(storage)] = weakref.ref(storage, functools.partial(self._drop, id(storage)))
        place, position = self._places.line_of(frame), _position_of(frame)
        ran_at, ran = self._last
        if position == ran_at and self._memory.source_of(storage) == ran:
            self._amounts[ran[0], place] += storage.nbytes()
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
    base = tensor._base  # noqa: SLF001 (torch documents it)
    return any(one is not None and one.is_leaf and one.requires_grad for one in (tensor, base))


def _saver(frame: FrameType | None) -> str:
    if frame is None or not frame.f_code.co_filename.endswith(_FUNCTION):
        return _UNKNOWN
    return str(getattr(frame.f_locals.get("cls"), "__qualname__", _UNKNOWN))
