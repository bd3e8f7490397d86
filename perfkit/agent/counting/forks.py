"""Undoes the counting in processes that the counted code forks: nothing is counted there."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator

_Undo = Callable[[], None]
_undos: list[_Undo] = []


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
