"""The state that all parts of one watch over tensors share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class Watching:
    """Whether to count just now, for which thread, and whether it has met a device besides the host.

    ``in_wait`` is true while a method runs that makes the host wait: its operators are part of that one wait.
    """

    on: bool = False
    in_wait: bool = False
    sees_device: bool = False
    thread: int = field(default_factory=threading.get_ident)

    def is_here(self) -> bool:
        """Tell whether this thread is the one that is watched."""
        return threading.get_ident() == self.thread
