"""An epoch of small images made from random numbers, as the loader tricks load it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset, IterableDataset

from perfkit.features.tricks.switches import Arguments
from perfkit.features.tricks.trick import Call

WORKERS = 2
# Starting processes takes most of an epoch, so few rounds are enough.
ROUNDS = 3
IMAGES_PER_BATCH = 20


class _Images(Dataset[tuple[Tensor, int]]):
    """Grey images of 16 x 16 pixels, each enlarged from random levels and turned when it is read."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(index)
        levels = torch.randint(256, (1, 1, 8, 8), generator=generator).float()
        image = interpolate(levels, size=(16, 16), mode="bilinear")[0]
        return torch.rot90(image, index % 4, dims=(1, 2)) / 255, index % 10


def epoch(images: int, **options: Any) -> Call:  # noqa: ANN401 (the loader's own arguments)
    """Return a call that loads one epoch with options of the loader: images (N, 1, 16, 16), labels (N,)."""
    loader = DataLoader(_Images(images), IMAGES_PER_BATCH, generator=torch.Generator(), **options)

    def load() -> tuple[Tensor, ...]:
        batches = list(loader)
        return torch.cat([batch[0] for batch in batches]), torch.cat([batch[1] for batch in batches])

    return load


def with_workers(arguments: Arguments) -> Arguments:
    """Return workers for a loader that has none; workers of an iterable data set would repeat each other."""
    if isinstance(arguments["dataset"], IterableDataset):
        return {}
    return {"num_workers": arguments.get("num_workers") or WORKERS}


def if_workers(arguments: Arguments, **change: object) -> Arguments:
    """Return the change to a loader with workers; one without would refuse it and gets none."""
    return change if arguments.get("num_workers") else {}
