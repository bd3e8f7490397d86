"""Optimisers that update many parameters in one call, or in one pass over memory."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adadelta, Adam, AdamW, Optimizer, RMSprop

from perfkit.features.tricks.catalogue.pieces import Used, constructing, documentation, seeded
from perfkit.features.tricks.trick import Call, Pair, Trick

How = Literal["foreach", "fused"]

_WAYS: dict[type[Optimizer], tuple[How, ...]] = {
    Adadelta: ("foreach",),
    RMSprop: ("foreach",),
    SGD: ("foreach", "fused"),
    Adam: ("foreach", "fused"),
    AdamW: ("foreach", "fused"),
}
_WHAT: dict[How, str] = {
    "foreach": (
        "Hands lists of tensors to each operator of the update instead of running all operators for one "
        "parameter after the other. A GPU then starts few large kernels instead of many small ones."
    ),
    "fused": (
        "Computes the whole update of a parameter in one kernel, which reads and writes memory once, where "
        "the plain loop starts an operator for each term of the formula."
    ),
}
_CAVEAT: dict[How, str] = {
    "foreach": "Intermediate results of all parameters exist at once, so the peak of memory is higher.",
    "fused": "Not every optimiser has it; some gradient scalers and all differentiable steps refuse it.",
}


def _trick(optimizer: type[Optimizer], how: How) -> Trick:
    kind = optimizer.__name__
    return Trick(
        name=f"{kind.lower()}_{how}",
        title=f"{kind}, {how}",
        what=_WHAT[how],
        helps="With many small parameters, whose operators take longer to start than to run.",
        caveat=_CAVEAT[how],
        source=documentation(kind, f"generated/torch.optim.{kind}.html"),
        code=f"torch.optim.{kind}(parameters, {how}=True)",
        size_means="parameters of 64 x 64",
        sizes=(8, 64, 256),
        pair=lambda count: _pair(optimizer, how, count),
        tolerance=(1e-5, 1e-6),
        excludes=tuple(f"{kind.lower()}_{other}" for other in _WAYS[optimizer] if other != how),
        on_loop=lambda: _in_every_loop(optimizer, how),
        rewrite=(rf"^([^#]*\b{kind}\([^#]+)\)$", rf"\1, {how}=True)"),
    )


def _pair(optimizer: type[Optimizer], how: How, count: int) -> Pair:
    # With no way named, a GPU's update would be foreach; with each refused, it is the plain loop.
    plain = dict.fromkeys(_WAYS[optimizer], False)
    return Pair(without=_side(optimizer, count, **plain), with_=_side(optimizer, count, **{how: True}))


def _side(optimizer: Callable[..., Optimizer], count: int, **how: bool) -> Call:
    updated = seeded(lambda: [_with_gradient(torch.randn(64, 64)) for _ in range(count)])
    updating = optimizer(updated, lr=1e-3, **how)
    results = tuple(parameter.detach() for parameter in updated)

    def step() -> tuple[Tensor, ...]:
        updating.step()
        return results

    return step


def _with_gradient(values: Tensor) -> nn.Parameter:
    parameter = nn.Parameter(values)
    parameter.grad = torch.randn_like(values)
    return parameter


def _in_every_loop(optimizer: type[Optimizer], how: How) -> AbstractContextManager[Used]:
    # The caller's choice of the other way is dropped: torch refuses both together.
    return constructing(optimizer, lambda _: {**dict.fromkeys(_WAYS[optimizer]), how: True})


TRICKS = tuple(_trick(optimizer, how) for optimizer, ways in _WAYS.items() for how in ways)
