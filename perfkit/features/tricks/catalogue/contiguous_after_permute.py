"""Making a permuted tensor contiguous before it is used again and again."""

import torch
from torch import Tensor

from perfkit.features.tricks.pieces import seeded
from perfkit.features.tricks.trick import Pair, Trick

_USES = 8


def _pair(images: int) -> Pair:
    features = seeded(lambda: torch.randn(images, 64, 16, 16))
    weights = seeded(lambda: torch.randn(_USES, images, 16, 16, 64))
    return Pair(
        without=lambda: (_weighted(features.permute(0, 2, 3, 1), weights),),
        with_=lambda: (_weighted(features.permute(0, 2, 3, 1).contiguous(), weights),),
    )


def _weighted(values: Tensor, weights: Tensor) -> Tensor:
    total = torch.zeros_like(weights[0])
    for weight in weights:
        total += values * weight
    return total


TRICK = Trick(
    name="contiguous_after_permute",
    title="Contiguous after permute",
    what=(
        "A permuted tensor is a view whose neighbours lie far apart in memory. A copy in the new order is "
        "paid once, and each later operator reads it in one go instead of in strides."
    ),
    helps="Where the permuted tensor meets contiguous ones in several operators.",
    caveat="The copy takes memory, and is for nothing where an operator copies anyway or there is but one.",
    source="PyTorch documentation, Tensor Views: https://docs.pytorch.org/docs/stable/tensor_view.html",
    code="images = images.permute(0, 2, 3, 1).contiguous()",
    size_means="images in a batch",
    sizes=(4, 16, 64),
    pair=_pair,
    tolerance_why="Products and sums are taken element by element, in the same order on both sides.",
)
