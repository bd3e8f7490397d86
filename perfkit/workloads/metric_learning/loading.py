"""Two ways to augment: anew at every access, or once and kept; and the loader for both."""

import random
from collections.abc import Sequence
from typing import Literal

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from perfkit.workloads.metric_learning.augmentation import Augmentation, as_tensor
from perfkit.workloads.metric_learning.data import ImageFiles, read_image
from perfkit.workloads.metric_learning.sampler import PKSampler

Item = tuple[Tensor, int]
Augmenting = Literal["lazy", "cached"]


class LazyImages(Dataset[Item]):
    """Images decoded and augmented at every access, differently in every epoch.

    What an access gives depends on the seed, the epoch and the index only, so any number of worker
    processes gives the same images.
    """

    def __init__(self, images: ImageFiles, augmentation: Augmentation, *, seed: int) -> None:
        self._images = images
        self._augmentation = augmentation
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose augmentation the next accesses get."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Item:
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + self._epoch) * 1_000_003 + index)
        image = self._augmentation(read_image(self._images.paths[index]), generator)
        return as_tensor(image), self._images.labels[index]


class CachedImages(Dataset[Item]):
    """Images decoded and augmented once: less work per epoch, and the same images in each."""

    def __init__(self, images: ImageFiles, augmentation: Augmentation, *, seed: int) -> None:
        lazy = LazyImages(images, augmentation, seed=seed)
        self._items = [lazy[index] for index in range(len(lazy))]

    def set_epoch(self, epoch: int) -> None:
        """Accept the epoch as lazy images do; cached images stay as they are."""

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Item:
        return self._items[index]


def augmented(
    images: ImageFiles, augmentation: Augmentation, *, how: Augmenting, seed: int
) -> LazyImages | CachedImages:
    """Return the images augmented lazily or cached."""
    dataset = LazyImages if how == "lazy" else CachedImages
    return dataset(images, augmentation, seed=seed)


def plain_images(images: ImageFiles, *, image_size: int) -> Tensor:
    """Decode images without augmentation to an (N, 1, image_size, image_size) tensor from 0 to 1."""
    size = (image_size, image_size)
    return torch.stack(
        [as_tensor(read_image(path).resize(size, Image.Resampling.BILINEAR)) for path in images.paths]
    )


def collate(items: Sequence[Item]) -> tuple[Tensor, Tensor]:
    """Join items to a batch: images (N, 1, height, width) and labels (N,)."""
    return torch.stack([image for image, _ in items]), torch.tensor([label for _, label in items])


def batch_loader(
    dataset: LazyImages | CachedImages, sampler: PKSampler, *, workers: int, seed: int
) -> DataLoader[Item]:
    """Return a loader of P-K batches that reads with this many worker processes (0: in this one)."""
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        worker_init_fn=seed_worker,
        generator=torch.Generator().manual_seed(seed),
    )


def seed_worker(_worker: int) -> None:
    """Seed Python's generator in a worker; torch seeds its own from the loader's generator."""
    random.seed(torch.initial_seed())
