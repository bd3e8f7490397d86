"""Reading images: one epoch of batches, and its pieces."""

import pytest
import torch
from PIL import Image
from pytest_benchmark.fixture import BenchmarkFixture
from workloads.image_loading import (
    Augmenting,
    CachedImages,
    LazyImages,
    augmented,
    batch_loader,
    collate,
)
from workloads.images import ImageFiles, read_image
from workloads.metric_learning.augmentation import Augmentation
from workloads.metric_learning.sampler import PKSampler

P, K = 10, 20
AUGMENTATION = Augmentation(image_size=16)
DECODED_FILES = 200


def read_epoch(dataset: LazyImages | CachedImages, sampler: PKSampler, workers: int) -> int:
    """Read all batches of an epoch and return how many images they held."""
    return sum(len(labels) for _, labels in batch_loader(dataset, sampler, workers=workers, seed=0))


def read_all(files: ImageFiles) -> list[Image.Image]:
    """Decode all images."""
    return [read_image(path) for path in files.paths]


@pytest.mark.benchmark(group="data loading")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("how", ["lazy", "cached"])
def test_epoch_of_batches(
    benchmark: BenchmarkFixture, digit_files: ImageFiles, how: Augmenting, workers: int
) -> None:
    """One epoch of augmented batches, the start of the workers included."""
    dataset = augmented(digit_files, AUGMENTATION, how=how, seed=0)
    sampler = PKSampler(digit_files.labels, P, K, seed=0)
    images = benchmark.pedantic(read_epoch, args=(dataset, sampler, workers), rounds=5, warmup_rounds=1)
    assert len(sampler) * P * K == images


@pytest.mark.benchmark(group="data loading pieces", min_rounds=5, max_time=0.5)
def test_sampler(benchmark: BenchmarkFixture, digit_files: ImageFiles) -> None:
    """The indices of one epoch of batches."""
    sampler = PKSampler(digit_files.labels, P, K, seed=0)
    batches = benchmark(list, sampler)
    assert len(sampler) == len(batches)


@pytest.mark.benchmark(group="data loading pieces", min_rounds=5, max_time=0.5)
def test_decode(benchmark: BenchmarkFixture, digit_files: ImageFiles) -> None:
    """200 PNG files, read and decoded."""
    files = digit_files.subset(range(DECODED_FILES))
    decoded = benchmark(read_all, files)
    assert len(files) == len(decoded)
    assert decoded[0].size == (8, 8)


@pytest.mark.benchmark(group="data loading pieces", min_rounds=5, max_time=0.5)
def test_augment(benchmark: BenchmarkFixture, digit_files: ImageFiles) -> None:
    """One image, cropped, rotated and stretched."""
    image = read_image(digit_files.paths[0])
    changed = benchmark(AUGMENTATION, image, torch.Generator().manual_seed(0))
    assert changed.size == (16, 16)


@pytest.mark.benchmark(group="data loading pieces", min_rounds=5, max_time=0.5)
def test_collate(benchmark: BenchmarkFixture, digit_files: ImageFiles) -> None:
    """A batch of images and labels."""
    dataset = CachedImages(digit_files.subset(range(P * K)), AUGMENTATION, seed=0)
    images, labels = benchmark(collate, [dataset[index] for index in range(P * K)])
    assert images.shape == (P * K, 1, 16, 16)
    assert digit_files.labels[: P * K] == tuple(labels.tolist())
