"""The six works as asv times them; ``work`` and ``doses`` are those of the commit that is installed."""

from __future__ import annotations

import torch
import work


class Work:
    """A work made once a process, as pytest makes it once a test."""

    name = ""

    def setup(self) -> None:
        """Make the call."""
        torch.manual_seed(0)
        self.call = work.dosed(self.name, getattr(work, f"{self.name}_work")())


class Tensor(Work):
    """A tensor operation."""

    name = "tensor"

    def time_tensor(self) -> None:
        """Run it."""
        self.call()


class Loss(Work):
    """A loss."""

    name = "loss"

    def time_loss(self) -> None:
        """Run it."""
        self.call()


class Training(Work):
    """A training step."""

    name = "training"

    def time_training(self) -> None:
        """Run it."""
        self.call()


class Loading(Work):
    """Batches from a loader."""

    name = "loading"

    def time_loading(self) -> None:
        """Run it."""
        self.call()


class Python(Work):
    """Plain Python."""

    name = "python"

    def time_python(self) -> None:
        """Run it."""
        self.call()


class Allocation(Work):
    """Allocations."""

    name = "allocation"

    def time_allocation(self) -> None:
        """Run it."""
        self.call()
