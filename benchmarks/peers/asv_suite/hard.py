"""The hard works as asv times them."""

from __future__ import annotations

from .works import Work


class Workers(Work):
    """Batches from two worker processes."""

    name = "workers"

    def time_workers(self) -> None:
        """Run it."""
        self.call()


class Threads(Work):
    """A long step in threads."""

    name = "threads"

    def time_threads(self) -> None:
        """Run it."""
        self.call()
