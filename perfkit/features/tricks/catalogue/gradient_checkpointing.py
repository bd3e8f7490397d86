"""Computing intermediate results twice instead of keeping them."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from perfkit.features.tricks.pieces import outputs_and_gradients, perceptron, seeded
from perfkit.features.tricks.trick import Call, Pair, Trick


class _Checkpointed(nn.Module):
    """Keeps no intermediate result of a layer until its backward pass."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, values: Tensor) -> Tensor:
        """Return what the layers make of the values."""
        for layer in self.layers:
            values = checkpoint(layer, values, use_reentrant=False)
        return values


def _pair(layers: int) -> Pair:
    return Pair(without=_side(_net(layers)), with_=_side(_Checkpointed(_net(layers))))


def _net(layers: int) -> nn.Sequential:
    return seeded(lambda: perceptron(layers=layers, width=256))


def _side(model: nn.Module) -> Call:
    inputs = seeded(lambda: torch.randn(128, 256))
    return lambda: outputs_and_gradients(model, inputs)


TRICK = Trick(
    name="gradient_checkpointing",
    title="Gradient checkpointing",
    what=(
        "Keeps only what goes into each layer, and computes the rest again when the backward pass needs it. "
        "It is no speed trick by itself: memory is paid for with a second forward pass."
    ),
    helps="Where memory limits the batch, and a larger batch makes up for the time.",
    caveat="Expect a step to take longer by about a forward pass.",
    source=(
        "PyTorch documentation, torch.utils.checkpoint: https://docs.pytorch.org/docs/stable/checkpoint.html"
    ),
    code="torch.utils.checkpoint.checkpoint(block, values, use_reentrant=False)",
    size_means="layers of 256 x 256",
    sizes=(2, 8, 32),
    pair=_pair,
    tolerance_why="The same operators run on the same values, some of them twice.",
)
