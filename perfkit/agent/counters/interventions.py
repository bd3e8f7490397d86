"""Temporary changes that counting makes in its process: to attributes, forks, garbage collection, threads."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

_ABSENT = object()
_Found = TypeVar("_Found")
_Given = ParamSpec("_Given")
_Undo = Callable[[], None]
_undos: list[_Undo] = []
# Threads of these modules move bytes or draw a progress bar, and compute no tensors.
_HARMLESS = frozenset(
    {
        "multiprocessing.queues",
        "multiprocessing.resource_sharer",
        "torch.utils.data._utils.pin_memory",
        "tqdm._monitor",
    }
)


class Patches:
    """Replaces attributes, and restores the old ones."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, Any, object]] = []

    def replace(self, owner: Any, name: str, new: Any) -> None:  # noqa: ANN401 (a class or module and its own)
        """Replace an attribute by ``new``."""
        self._made.append((owner, name, new, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, new)

    def undo(self) -> None:
        """Restore all attributes, except those that other code has replaced since."""
        while self._made:
            self.undo_last()

    def undo_last(self) -> None:
        """Restore the attribute that was replaced last, unless all have been restored since."""
        if not self._made:
            return
        owner, name, new, old = self._made.pop()
        if vars(owner).get(name) is not new:
            return
        if old is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, old)


class Guard:
    """Keeps errors of hooks out of the code that they are set in: ``check`` raises the first one later."""

    def __init__(self, close: _Undo) -> None:
        self._close = close
        self._error: Exception | None = None

    def __call__(self, work: Callable[_Given, _Found]) -> Callable[_Given, _Found | None]:
        """Return ``work`` that closes what the hooks are of, and returns None, where it would raise."""

        @functools.wraps(work)
        def guarded(*args: _Given.args, **kwargs: _Given.kwargs) -> _Found | None:
            try:
                return work(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 (the code that is hooked goes on)
                self._error = self._error or error
                self._close()
                return None

        return guarded

    def check(self) -> None:
        """Raise the first error."""
        if self._error is not None:
            raise self._error


@contextlib.contextmanager
def undone_in_forks(undo: _Undo) -> Iterator[None]:
    """Call ``undo`` at the start of each process that is forked meanwhile."""
    _listen()
    _undos.append(undo)
    try:
        yield
    finally:
        # A forked process that gets here has called ``undo`` already.
        with contextlib.suppress(ValueError):
            _undos.remove(undo)


@functools.cache
def _listen() -> None:
    os.register_at_fork(after_in_child=_undo_all)


def _undo_all() -> None:
    while _undos:
        _undos.pop()()


@contextlib.contextmanager
def without_garbage_collection(*, whole: bool = True) -> Iterator[None]:
    """Collect the garbage now and not again until the end, so that its time does not change a count."""
    was_enabled = gc.isenabled()
    if was_enabled and whole:
        gc.collect()
    else:
        collect_recent()
    gc.disable()
    resume = gc.enable if was_enabled else gc.disable
    try:
        with undone_in_forks(resume):
            yield
    finally:
        resume()


def collect_recent() -> None:
    """Collect only recent garbage, since a full collection takes a tenth of a second."""
    gc.collect(0)


class StartedThreads:
    """Notices threads that are started within ``noticed``."""

    def __init__(self) -> None:
        self.seen = False

    @contextlib.contextmanager
    def noticed(self) -> Iterator[None]:
        """Watch for new threads."""
        patches = Patches()
        start = threading.Thread.start

        @functools.wraps(start)
        def noticed_start(thread: threading.Thread) -> None:
            self.seen = self.seen or not _is_harmless(thread)
            start(thread)

        patches.replace(threading.Thread, "start", noticed_start)
        try:
            with undone_in_forks(patches.undo):
                yield
        finally:
            patches.undo()


def _is_harmless(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)
    return not _HARMLESS.isdisjoint({type(thread).__module__, getattr(target, "__module__", "")})
