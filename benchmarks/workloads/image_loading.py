"""Augments images anew at every access, or once and kept, and loads batches of both kinds."""

import random
from collections.abc import Sequence
from typing import Literal, Protocol

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from .images import ImageFiles, ImageMode, read_image

Item = tuple[Tensor, int]
Augmenting = Literal["lazy", "cached"]


class Augmentation(Protocol):
    """A random change to an image that does not change its class, and gives all images one size."""

    def __call__(self, image: Image.Image, generator: torch.Generator) -> Image.Image:
        """Return a changed copy; all random numbers come from the generator."""
        ...


class LazyImages(Dataset[Item]):
    """Images decoded and augmented at every access, differently in every epoch.

    What an access gives depends on the seed, the epoch and the index only, so any number of worker
    processes gives the same images. The mode is whether they are grey or coloured.
    """

    def __init__(
        self, images: ImageFiles, augmentation: Augmentation, *, seed: int, mode: ImageMode = "L"
    ) -> None:
        self._images = images
        self._augmentation = augmentation
        self._mode = mode
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose augmentation the next accesses get."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Item:
        generator = torch.Generator().manual_seed((self._seed * 1_000_003 + self._epoch) * 1_000_003 + index)
        image = self._augmentation(read_image(self._images.paths[index], self._mode), generator)
        return levels_of(image), self._images.labels[index]


class CachedImages(Dataset[Item]):
    """Images decoded and augmented once: less work per epoch, and the same images in each."""

    def __init__(
        self, images: ImageFiles, augmentation: Augmentation, *, seed: int, mode: ImageMode = "L"
    ) -> None:
        lazy = LazyImages(images, augmentation, seed=seed, mode=mode)
        # Kept images are converted to floats once, not in every epoch.
        levels = [lazy[index] for index in range(len(lazy))]
        self._items = [(_from_0_to_1(image), label) for image, label in levels]

    def set_epoch(self, epoch: int) -> None:
        """Ignore the epoch, which lazy images use: cached images do not change."""

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Item:
        return self._items[index]


def augmented(
    images: ImageFiles,
    augmentation: Augmentation,
    *,
    how: Augmenting,
    seed: int,
    mode: ImageMode = "L",
) -> LazyImages | CachedImages:
    """Return the images augmented lazily or cached."""
    dataset = LazyImages if how == "lazy" else CachedImages
    return dataset(images, augmentation, seed=seed, mode=mode)


def levels_of(image: Image.Image) -> Tensor:
    """Return an image as a (channels, height, width) tensor of bytes."""
    # torch uses a bytearray without a copy, and would read a list of numbers one by one.
    pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
    if image.mode == "L":
        return pixels.reshape(1, image.height, image.width)
    # PIL keeps the channels of a pixel side by side.
    return pixels.reshape(image.height, image.width, -1).permute(2, 0, 1)


def batch_of(images: Sequence[Tensor]) -> Tensor:
    """Return N images, of bytes or from 0 to 1, as one (N, channels, height, width) tensor from 0 to 1."""
    joined = torch.stack(list(images))
    # One conversion of all images is several times faster than one for each.
    return _from_0_to_1(joined) if joined.dtype == torch.uint8 else joined


def _from_0_to_1(levels: Tensor) -> Tensor:
    return levels.float() / 255


def plain_images(images: ImageFiles, *, image_size: int) -> Tensor:
    """Decode images without augmentation to an (N, 1, image_size, image_size) tensor from 0 to 1."""
    size = (image_size, image_size)
    return batch_of(
        [levels_of(read_image(path).resize(size, Image.Resampling.BILINEAR)) for path in images.paths]
    )


def collate(items: Sequence[Item]) -> tuple[Tensor, Tensor]:
    """Join items to a batch: images (N, channels, height, width) from 0 to 1, and labels (N,)."""
    return batch_of([image for image, _ in items]), torch.tensor([label for _, label in items])


def batch_loader(
    dataset: LazyImages | CachedImages,
    sampler: Sampler[list[int]],
    *,
    workers: int,
    seed: int,
    pin_memory: bool = False,
) -> DataLoader[Item]:
    """Return a loader of the sampler's batches.

    Args:
        dataset: The images.
        sampler: The indices of each batch.
        workers: Processes that read; 0 reads in the calling one.
        seed: The same seed gives the same random numbers in each worker.
        pin_memory: Put batches where a GPU can fetch them while the processor goes on.
    """
    return DataLoader(
        dataset,
        batch_sampler=sampler,
        collate_fn=collate,
        num_workers=workers,
        pin_memory=pin_memory,
        worker_init_fn=seed_worker,
        generator=torch.Generator().manual_seed(seed),
    )


def seed_worker(_worker: int) -> None:
    """Seed Python's generator in a worker; torch seeds its own from the loader's generator."""
    random.seed(torch.initial_seed())
