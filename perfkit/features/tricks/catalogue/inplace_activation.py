"""Activations that overwrite their argument."""

import torch
from torch import nn

from perfkit.features.tricks.pieces import convolution_net, outputs_and_gradients, seeded
from perfkit.features.tricks.switches import constructing
from perfkit.features.tricks.trick import Call, Pair, Trick


def _pair(images: int) -> Pair:
    return Pair(without=_side(images, inplace=False), with_=_side(images, inplace=True))


def _side(images: int, *, inplace: bool) -> Call:
    model = seeded(lambda: convolution_net(inplace=inplace))
    inputs = seeded(lambda: torch.randn(images, 3, 32, 32))
    return lambda: outputs_and_gradients(model, inputs)


TRICK = Trick(
    name="inplace_activation",
    title="In-place activation",
    what=(
        "ReLU writes its results over its argument instead of into new memory. Less memory is taken, and "
        "what was just read is still in the cache when it is written."
    ),
    helps="In convolution nets, whose activations are large and used once.",
    caveat="Who else holds the argument finds it changed; where the backward pass needs it, torch raises.",
    source="PyTorch documentation, ReLU: https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html",
    code="torch.nn.ReLU(inplace=True)",
    size_means="images in a batch",
    sizes=(4, 16, 64),
    pair=_pair,
    tolerance_why="The same values are computed, in other memory.",
    on_loop=lambda: constructing(nn.ReLU, lambda _: {"inplace": True}),
)
