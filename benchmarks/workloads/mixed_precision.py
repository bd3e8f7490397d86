"""Training and inference in a precision of choice: automatic casting, and scaled gradients for fp16."""

from typing import Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

Device = Literal["cpu", "cuda"]
Precision = Literal["default", "bf16", "fp16"]

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(device: Device, precision: Precision) -> torch.autocast:
    """Return a context for forward passes: matrix products and convolutions run in this precision.

    Args:
        device: Where the forward pass runs.
        precision: "default" leaves every operator in the precision of its arguments.
    """
    return torch.autocast(device, dtype=_DTYPES.get(precision), enabled=precision != "default")


class ScaledOptimizer:
    """Takes an optimiser's steps from losses of any precision; for fp16 the gradients are scaled.

    In fp16 small gradients vanish, so the loss is scaled up before its gradients are taken; where they
    overflow, the step is skipped and the scale halved.

    Args:
        optimizer: What updates the parameters. A fused one skips steps on the device, where `skipped` cannot
            count them.
        device: Where the parameters are.
        precision: That of the forward passes.
    """

    def __init__(self, optimizer: Optimizer, *, device: Device, precision: Precision) -> None:
        self._optimizer = optimizer
        self._scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
        self._steps = 0
        self._updates = 0
        # The scaler itself synchronises to find out whether to skip a step; the hook counts the others
        # without a further synchronisation.
        optimizer.register_step_post_hook(self._count_update)

    def step(self, loss: Tensor) -> None:
        """Take the loss's gradients, update the parameters with them, and clear them."""
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.step(self._optimizer)
        self._scaler.update()
        # Gradients are cleared now, so that the next forward pass can use their memory.
        self._optimizer.zero_grad()
        self._steps += 1

    @property
    def steps(self) -> int:
        """The number of steps tried, skipped ones included."""
        return self._steps

    @property
    def skipped(self) -> int:
        """The number of steps that changed no parameter, since a gradient was infinite or not a number."""
        return self._steps - self._updates

    def _count_update(self, *_: object) -> None:
        self._updates += 1
