"""Augmented images depend on seed, epoch and index only, with and without worker processes."""

import pickle
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor
from workloads.image_loading import (
    Augmenting,
    CachedImages,
    LazyImages,
    augmented,
    batch_loader,
    batch_of,
    levels_of,
    plain_images,
)
from workloads.images import DataError, ImageFiles, find_images
from workloads.metric_learning.augmentation import Augmentation, autocontrast
from workloads.metric_learning.sampler import PKSampler

AUGMENTATION = Augmentation(image_size=12)


@pytest.fixture
def images(tmp_path: Path) -> ImageFiles:
    """Return eight noisy images in two classes."""
    generator = torch.Generator().manual_seed(0)
    for number in range(8):
        path = tmp_path / str(number % 2) / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        pixels = torch.randint(0, 256, (8, 8), generator=generator, dtype=torch.uint8)
        Image.fromarray(pixels.numpy()).save(path)
    return find_images(tmp_path)


def epoch_of(dataset: LazyImages | CachedImages, workers: int, labels: tuple[int, ...]) -> list[Tensor]:
    """Return the images and labels of all batches of one epoch."""
    loader = batch_loader(dataset, PKSampler(labels, 2, 2, seed=0), workers=workers, seed=0)
    return [tensor for images, labels in loader for tensor in (images, labels)]


def test_lazy_images_repeat_by_seed_and_differ_by_epoch(images: ImageFiles) -> None:
    """Seed, epoch and index decide an augmented image, not the order of the accesses."""
    dataset = LazyImages(images, AUGMENTATION, seed=1)
    first = dataset[0][0]
    dataset[1]
    assert torch.equal(first, dataset[0][0])
    assert not torch.equal(first, LazyImages(images, AUGMENTATION, seed=2)[0][0])
    dataset.set_epoch(1)
    assert not torch.equal(first, dataset[0][0])


def test_lazy_images_are_decoded_at_every_access(images: ImageFiles) -> None:
    """A file that breaks after the first access is found out at the next."""
    dataset = LazyImages(images, AUGMENTATION, seed=1)
    dataset[0]
    images.paths[0].write_bytes(b"broken")
    with pytest.raises(DataError, match="expected a readable image"):
        dataset[0]


def test_cached_images_are_made_once(images: ImageFiles) -> None:
    """Cached images are those of the first lazy epoch, in every epoch, without the files."""
    first = batch_of([LazyImages(images, AUGMENTATION, seed=1)[3][0]])[0]
    dataset = CachedImages(images, AUGMENTATION, seed=1)
    images.paths[3].unlink()
    dataset.set_epoch(1)
    assert torch.equal(first, dataset[3][0])
    assert images.labels[3] == dataset[3][1]


@pytest.mark.parametrize("how", ["lazy", "cached"])
def test_workers_give_the_same_batches(how: Augmenting, images: ImageFiles) -> None:
    """Two worker processes give what the training process itself would have read."""
    dataset = augmented(images, AUGMENTATION, how=how, seed=1)
    alone = epoch_of(dataset, 0, images.labels)
    assert (4, 1, 12, 12) == alone[0].shape
    assert torch.float32 == alone[0].dtype
    for expected, tensor in zip(alone, epoch_of(dataset, 2, images.labels), strict=True):
        assert torch.equal(expected, tensor)


@pytest.mark.parametrize("kind", [LazyImages, CachedImages])
def test_datasets_survive_pickling(kind: type[LazyImages | CachedImages], images: ImageFiles) -> None:
    """A pickled copy, as spawned workers get it, gives the same images."""
    dataset = kind(images, AUGMENTATION, seed=1)
    assert torch.equal(dataset[2][0], pickle.loads(pickle.dumps(dataset))[2][0])  # noqa: S301 - its own pickle


def as_batch(image: Image.Image) -> Tensor:
    """Return a batch of one image."""
    return batch_of([levels_of(image)])


def test_augmentation_keeps_size_and_range() -> None:
    """Any image becomes one of the size asked for, with values from 0 to 1."""
    generator = torch.Generator().manual_seed(0)
    for size in ((8, 8), (31, 17), (100, 3)):
        tensor = as_batch(AUGMENTATION(Image.effect_noise(size, 60), generator))
        assert (1, 1, 12, 12) == tensor.shape
        assert 0 <= tensor.min().item() < tensor.max().item() <= 1


def test_autocontrast_stretches_to_the_full_range() -> None:
    """With autocontrast at every access a dull image reaches black and white."""
    dull = Image.linear_gradient("L").point(lambda level: 100 + level // 8)
    always = Augmentation(image_size=32, largest_turn=0, autocontrast_probability=1)
    levels = as_batch(always(dull, torch.Generator().manual_seed(0)))
    # The last grey level may be rounded down.
    assert levels.min().item() == 0
    assert levels.max().item() >= 254 / 255


@pytest.mark.parametrize("seed", range(8))
def test_autocontrast_equals_that_of_pil(seed: int) -> None:
    """Every image becomes what PIL makes of it, those of one level included."""
    generator = torch.Generator().manual_seed(seed)
    darkest, brightest = sorted(torch.randint(0, 256, (2,), generator=generator).tolist())
    pixels = torch.randint(darkest, brightest + 1, (9, 7), generator=generator, dtype=torch.uint8)
    for levels in (pixels, torch.full_like(pixels, darkest)):
        image = Image.fromarray(levels.numpy())
        assert ImageOps.autocontrast(image).tobytes() == autocontrast(image).tobytes()


def test_plain_images_are_not_augmented(images: ImageFiles) -> None:
    """Without augmentation an image of the right size keeps its pixels."""
    tensor = plain_images(images, image_size=8)
    assert (8, 1, 8, 8) == tensor.shape
    with Image.open(images.paths[0]) as image:
        assert torch.equal(as_batch(image)[0], tensor[0])


def test_coloured_images_become_planes_of_red_green_and_blue() -> None:
    """Each level of a pixel lands in the plane of its colour, at the pixel's place."""
    image = Image.new("RGB", (3, 2))
    image.putpixel((2, 1), (255, 51, 0))
    planes = torch.zeros(3, 2, 3)
    planes[0, 1, 2], planes[1, 1, 2] = 1.0, 0.2
    assert torch.equal(planes, as_batch(image)[0])


@pytest.mark.parametrize("how", ["lazy", "cached"])
def test_datasets_read_images_in_the_mode_asked_for(how: Augmenting, images: ImageFiles) -> None:
    """Grey files read in mode RGB have three equal planes, those that mode L has one of."""
    # Autocontrast alone is for grey images only.
    plain = Augmentation(image_size=12, autocontrast_probability=0)
    grey, _ = augmented(images, plain, how=how, seed=1)[0]
    coloured, _ = augmented(images, plain, how=how, seed=1, mode="RGB")[0]
    assert torch.equal(grey.expand(3, -1, -1), coloured)
