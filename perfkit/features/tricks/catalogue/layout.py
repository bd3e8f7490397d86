"""Images and tensors in another order in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from perfkit.features.tricks.catalogue import pieces
from perfkit.features.tricks.trick import Call, Pair, Trick

# Dimensions of a batch of images.
_IMAGES = 4


def _side(images: int, memory_format: torch.memory_format) -> Call:
    model = pieces.seeded(pieces.convolution_net).to(memory_format=memory_format)  # type: ignore[call-overload]
    inputs = pieces.seeded(lambda: torch.randn(images, 3, 32, 32)).to(memory_format=memory_format)
    return lambda: pieces.outputs_and_gradients(model, inputs)


@contextmanager
def _in_every_loop() -> Iterator[pieces.Used]:
    used, convolves = pieces.Used(), WeakKeyDictionary[nn.Module, bool]()

    def call_turned(module: nn.Module, call: pieces.Forward, inputs: pieces.Inputs) -> object:
        if module not in convolves:
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            convolves[module] = any(isinstance(part, nn.Conv2d) for part in module.modules())
        if convolves[module]:
            used.note()
            inputs = tree_map_only(Tensor, _turned, inputs)
        return call(inputs)

    with pieces.calling(call_turned):
        yield used


def _turned(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == _IMAGES else values


CHANNELS_LAST = Trick(
    name="channels_last",
    title="Channels last",
    what=(
        "Keeps the channels of each pixel side by side in memory, in the images and in the weights. Fast "
        "convolution kernels read them in this order, and need not rearrange their arguments first."
    ),
    helps="In convolution nets where such kernels exist: on tensor cores, and with oneDNN on processors.",
    caveat="An operator that does not know the layout turns it back, which may cost all that was gained.",
    source=pieces.tutorial(
        "Channels Last Memory Format in PyTorch", "intermediate/memory_format_tutorial.html"
    ),
    code="model.to(memory_format=torch.channels_last); images.to(memory_format=torch.channels_last)",
    size_means="images in a batch",
    sizes=(4, 16, 64),
    pair=pieces.sides(_side, memory_format=(torch.contiguous_format, torch.channels_last)),
    tolerance=(1e-3, 1e-5),
    on_loop=_in_every_loop,
)


def _collate_pair(images: int) -> Pair:
    decoded = pieces.seeded(
        lambda: [torch.randint(256, (64, 64, 3), dtype=torch.uint8) for _ in range(images)]
    )
    return Pair(without=lambda: (_as_copies(decoded),), with_=lambda: (_as_view(decoded),))


def _as_copies(decoded: list[Tensor]) -> Tensor:
    planes = [image.permute(2, 0, 1).contiguous() for image in decoded]
    return torch.stack(planes).float() / 255


def _as_view(decoded: list[Tensor]) -> Tensor:
    return torch.stack(decoded).permute(0, 3, 1, 2).float() / 255


CHANNELS_LAST_COLLATE = Trick(
    name="channels_last_collate",
    title="Batches as decoded",
    what=(
        "Joins images to a batch with the channels last, as decoders and image libraries give them, and "
        "only then names the channels as the second dimension. No image is rearranged level by level."
    ),
    helps="In loading batches of images that come as (height, width, channels).",
    caveat="The batch is in the channels-last layout: a net in the other layout rearranges it after all.",
    source=pieces.tutorial(
        "Channels Last Memory Format in PyTorch", "intermediate/memory_format_tutorial.html"
    ),
    code="torch.stack(decoded).permute(0, 3, 1, 2).float() / 255",
    size_means="images in a batch",
    sizes=(16, 64, 256),
    pair=_collate_pair,
)


_USES = 8


def _contiguous_pair(images: int) -> Pair:
    features = pieces.seeded(lambda: torch.randn(images, 64, 16, 16))
    weights = pieces.seeded(lambda: torch.randn(_USES, images, 16, 16, 64))
    return Pair(
        without=lambda: (_weighted(features.permute(0, 2, 3, 1), weights),),
        with_=lambda: (_weighted(features.permute(0, 2, 3, 1).contiguous(), weights),),
    )


def _weighted(values: Tensor, weights: Tensor) -> Tensor:
    total = torch.zeros_like(weights[0])
    for weight in weights:
        total += values * weight
    return total


CONTIGUOUS_AFTER_PERMUTE = Trick(
    name="contiguous_after_permute",
    title="Contiguous after permute",
    what=(
        "A permuted tensor is a view whose neighbours lie far apart in memory. A copy in the new order is "
        "paid once, and each later operator reads it in one go instead of in strides."
    ),
    helps="Where the permuted tensor meets contiguous ones in several operators.",
    caveat="The copy takes memory, and is for nothing where an operator copies anyway or there is but one.",
    source=pieces.documentation("Tensor Views", "tensor_view.html"),
    code="images = images.permute(0, 2, 3, 1).contiguous()",
    rewrite=(r"^(\w+ = .*\.permute\([^()]*\))$", r"\1.contiguous()"),
    size_means="images in a batch",
    sizes=(4, 16, 64),
    pair=_contiguous_pair,
)


TRICKS = (CHANNELS_LAST, CHANNELS_LAST_COLLATE, CONTIGUOUS_AFTER_PERMUTE)
