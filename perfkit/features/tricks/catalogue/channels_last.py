"""Convolutions on images whose channels lie side by side in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from perfkit.features.tricks.pieces import convolution_net, outputs_and_gradients, seeded
from perfkit.features.tricks.switches import Arguments, Forward, Used, calling
from perfkit.features.tricks.trick import Call, Pair, Trick

# Dimensions of a batch of images.
_IMAGES = 4


def _pair(images: int) -> Pair:
    return Pair(without=_side(images, torch.contiguous_format), with_=_side(images, torch.channels_last))


def _side(images: int, memory_format: torch.memory_format) -> Call:
    model = seeded(convolution_net).to(memory_format=memory_format)  # type: ignore[call-overload]
    inputs = seeded(lambda: torch.randn(images, 3, 32, 32)).to(memory_format=memory_format)
    return lambda: outputs_and_gradients(model, inputs)


@contextmanager
def _in_every_loop() -> Iterator[Used]:
    used, convolves = Used(), WeakKeyDictionary[nn.Module, bool]()

    def call_turned(
        module: nn.Module, call: Forward, arguments: tuple[object, ...], named: Arguments
    ) -> object:
        if module not in convolves:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            convolves[module] = any(isinstance(part, nn.Conv2d) for part in module.modules())
        if convolves[module]:
            used.note()
            arguments, named = tree_map_only(Tensor, _turned, (arguments, named))
        return call(*arguments, **named)

    with calling(call_turned):
        yield used


def _turned(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == _IMAGES else values


TRICK = Trick(
    name="channels_last",
    title="Channels last",
    what=(
        "Keeps the channels of each pixel side by side in memory, in the images and in the weights. Fast "
        "convolution kernels read them in this order, and need not rearrange their arguments first."
    ),
    helps="In convolution nets where such kernels exist: on tensor cores, and with oneDNN on processors.",
    caveat="An operator that does not know the layout turns it back, which may cost all that was gained.",
    source=(
        "PyTorch tutorial, Channels Last Memory Format in PyTorch: "
        "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"
    ),
    code="model.to(memory_format=torch.channels_last); images.to(memory_format=torch.channels_last)",
    size_means="images in a batch",
    sizes=(4, 16, 64),
    pair=_pair,
    relative_tolerance=1e-3,
    absolute_tolerance=1e-5,
    tolerance_why="Other kernels add the same products in another order.",
    on_loop=_in_every_loop,
)
