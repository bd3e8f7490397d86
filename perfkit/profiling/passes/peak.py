"""The FLOP/s that a device makes at most: measured by products of matrices, outside of any step."""

from __future__ import annotations

import time
from collections.abc import Callable

from perfkit.agent.clock import accelerator_in_use
from perfkit.profiling.passes.balance import can_import_torch

# Matrices grow until a product takes so long, or they have so many rows; then products go on for a while.
_LONG_S, _LEAST_ROWS, _MOST_ROWS, _GO_ON_S = 0.02, 256, 8192, 0.2


def measure_peak(dtype: str) -> float | None:
    """Return the most FLOP/s of this process in products of matrices of a type of torch, if it can make any.

    They are those of the accelerator in use, or of the processors with the threads that the training uses.
    """
    if not can_import_torch():
        return None
    import torch

    device = accelerator_in_use()
    kind = "cpu" if device is None else str(torch.accelerator.current_accelerator()).partition(":")[0]
    # A generator of its own: the training's numbers stay what they are.
    numbers = torch.Generator(kind)

    def multiply(rows: int) -> Callable[[], float]:
        left = torch.rand((rows, rows), generator=numbers, device=kind).to(getattr(torch, dtype))
        out = torch.empty_like(left)

        def product() -> float:
            begun = time.perf_counter()
            torch.mm(left, left, out=out)
            if device is not None:
                device.synchronise()
            return time.perf_counter() - begun

        product()
        return product

    # Whether TensorFloat-32 and its like are used is as the training has set it.
    with torch.no_grad(), torch.autocast(kind, enabled=False):
        try:
            return _fastest(multiply)
        except (AttributeError, RuntimeError, TypeError):
            # There may be no room for it, or no product of this type.
            return None


def _fastest(multiply: Callable[[int], Callable[[], float]]) -> float:
    rows, product = _LEAST_ROWS, multiply(_LEAST_ROWS)
    best_s = product()
    while best_s < _LONG_S and rows < _MOST_ROWS:
        rows *= 2
        product = multiply(rows)
        best_s = product()
    until = time.perf_counter() + _GO_ON_S
    while time.perf_counter() < until:
        best_s = min(best_s, product())
    return 2.0 * rows**3 / best_s
