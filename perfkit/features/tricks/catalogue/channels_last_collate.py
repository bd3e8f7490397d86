"""Joining decoded images to a batch as they lie in memory."""

import torch
from torch import Tensor

from perfkit.features.tricks.pieces import seeded
from perfkit.features.tricks.trick import Pair, Trick


def _pair(images: int) -> Pair:
    decoded = seeded(lambda: [torch.randint(256, (64, 64, 3), dtype=torch.uint8) for _ in range(images)])
    return Pair(without=lambda: (_as_copies(decoded),), with_=lambda: (_as_view(decoded),))


def _as_copies(decoded: list[Tensor]) -> Tensor:
    planes = [image.permute(2, 0, 1).contiguous() for image in decoded]
    return torch.stack(planes).float() / 255


def _as_view(decoded: list[Tensor]) -> Tensor:
    return torch.stack(decoded).permute(0, 3, 1, 2).float() / 255


TRICK = Trick(
    name="channels_last_collate",
    title="Batches as decoded",
    what=(
        "Joins images to a batch with the channels last, as decoders and image libraries give them, and "
        "only then names the channels as the second dimension. No image is rearranged level by level."
    ),
    helps="In loading batches of images that come as (height, width, channels).",
    caveat="The batch is in the channels-last layout: a net in the other layout rearranges it after all.",
    source=(
        "PyTorch tutorial, Channels Last Memory Format in PyTorch: "
        "https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html"
    ),
    code="torch.stack(decoded).permute(0, 3, 1, 2).float() / 255",
    size_means="images in a batch",
    sizes=(16, 64, 256),
    pair=_pair,
    tolerance_why="Both sides convert and divide the same levels one by one.",
)
