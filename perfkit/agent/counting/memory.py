"""When the storages that operators allocate come and go."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

from .tally import Source, Tally


class Memory:
    """The storages allocated in an iteration; those of earlier iterations count no more."""

    def __init__(self) -> None:
        # Bytes allocated, or freed where negative, in the order of time.
        self._changes: list[tuple[Source, int]] = []
        self._held: dict[int, _Held] = {}

    def hold(self, storage: Any, source: Source) -> None:  # noqa: ANN401 (a torch storage)
        """Remember a storage that an operator returned, unless it is known already."""
        # Torch keeps a storage's Python object as long as the storage, so that its identity is the storage's.
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
        """Begin anew: what is alive now belongs to no iteration any more."""
        self._held.clear()
        self._changes.clear()

    def allocated(self) -> Tally:
        """Return the bytes of all storages allocated."""
        allocated: Tally = Counter()
        for source, nbytes in self._changes:
            if nbytes > 0:
                allocated[source] += nbytes
        return allocated

    def peak(self) -> Tally:
        """Return what was alive when the most bytes were."""
        alive = most = until = 0
        for number, (_, nbytes) in enumerate(self._changes, start=1):
            alive += nbytes
            if alive > most:
                most, until = alive, number
        at_peak: Tally = Counter()
        for source, nbytes in self._changes[:until]:
            at_peak[source] += nbytes
        return at_peak

    def _release(self, held: _Held) -> None:
        if self._held.pop(held.identity, None) is held:
            self._changes.append((held.source, -held.nbytes))


class _Held(weakref.ref[Any]):
    """A storage that does not live longer for being watched."""

    __slots__ = ("identity", "nbytes", "source")
    identity: int
    nbytes: int
    source: Source
