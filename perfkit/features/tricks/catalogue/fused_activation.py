"""An activation as one operator instead of its formula written out."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import gelu

from perfkit.features.tricks.pieces import seeded
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(rows: int) -> Pair:
    return Pair(without=_side(rows, _written_out), with_=_side(rows, gelu))


def _side(rows: int, activation: Callable[[Tensor], Tensor]) -> Call:
    values = seeded(lambda: torch.randn(rows, 1024, requires_grad=True))

    def activate() -> tuple[Tensor, ...]:
        activated = activation(values)
        return activated.detach(), *torch.autograd.grad(activated.sum(), values)

    return activate


def _written_out(values: Tensor) -> Tensor:
    return 0.5 * values * (1 + torch.erf(values / math.sqrt(2)))


TRICK = Trick(
    name="fused_activation",
    title="GELU as one operator",
    what=(
        "Calls the activation that torch has instead of writing its formula. One operator reads the values "
        "once, and keeps them alone for the backward pass; the formula's five each write and keep their own."
    ),
    helps="For every activation, norm or loss that torch has by name, the more so the larger the tensors.",
    caveat="Names may hide variants: GELU also has a form with tanh, whose values differ.",
    source=(
        "PyTorch documentation, torch.nn.functional.gelu: "
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.gelu.html"
    ),
    code="torch.nn.functional.gelu(values)",
    size_means="rows of 1024 values",
    sizes=(16, 256, 1024),
    pair=_pair,
    relative_tolerance=1e-4,
    absolute_tolerance=1e-5,
    tolerance_why="The formula rounds after each of its operators, the one operator at the end.",
)
