"""Threads that the counted code starts: what they do to tensors is not seen from another thread."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator

from .forks import undone_in_forks
from .patches import Patches

# Their threads carry bytes, or draw a bar: no tensors are computed there.
_HARMLESS = frozenset(
    {
        "multiprocessing.queues",
        "multiprocessing.resource_sharer",
        "torch.utils.data._utils.pin_memory",
        "tqdm._monitor",
    }
)


class StartedThreads:
    """Notices threads that are started while it is entered."""

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
