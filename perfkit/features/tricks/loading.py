"""An epoch of small images decoded and augmented, as the loader tricks load it."""

from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from perfkit.features.tricks.switches import Arguments
from perfkit.features.tricks.trick import Call

WORKERS = 2
# Starting processes takes most of an epoch, so few rounds are enough.
ROUNDS = 3
IMAGES_PER_BATCH = 20


def epoch(images: int, **options: Any) -> Call:  # noqa: ANN401 (the loader's own arguments)
    """Return a call that loads one epoch: images (N, 1, 16, 16) and labels (N,).

    The digits are files in the user's cache folder, written there when they are first needed.

    Args:
        images: How many of the bundled digits there are.
        options: Passed on to the loader.
    """
    # The decoder is an extra of this package, which the other tricks do not need.
    from perfkit.workloads.image_loading import LazyImages, collate
    from perfkit.workloads.images import digits_folder, find_images, spread
    from perfkit.workloads.metric_learning.augmentation import Augmentation

    files = find_images(digits_folder())
    chosen = files.subset(list(spread(images, over=len(files))))
    dataset = LazyImages(chosen, Augmentation(image_size=16), seed=0)
    loader = DataLoader(
        dataset,
        batch_sampler=BatchSampler(SequentialSampler(dataset), IMAGES_PER_BATCH, drop_last=False),
        collate_fn=collate,
        generator=torch.Generator(),
        **options,
    )

    def load() -> tuple[torch.Tensor, ...]:
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
