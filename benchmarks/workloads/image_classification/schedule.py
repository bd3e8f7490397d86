"""The learning rate over a training run: a linear rise, then half a cosine down to zero."""

import math
from functools import partial

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def learning_rate_share(step: int, *, warmup_steps: int, steps: int) -> float:
    """Return which share of the full learning rate a step has, from 0 to 1.

    Args:
        step: Steps before this one.
        warmup_steps: Steps of the rise, the last of which has the full rate.
        steps: Steps of the whole run, after which the rate is zero.
    """
    if step < warmup_steps:
        return (step + 1) / warmup_steps
    if step >= steps:
        return 0.0
    return (1 + math.cos(math.pi * (step - warmup_steps) / (steps - warmup_steps))) / 2


def warmup_cosine(optimizer: Optimizer, *, warmup_steps: int, steps: int) -> LambdaLR:
    """Return the schedule of an optimiser's learning rate, to be stepped after every update."""
    return LambdaLR(optimizer, partial(learning_rate_share, warmup_steps=warmup_steps, steps=steps))
