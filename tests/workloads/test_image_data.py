"""Folders of images are read, split and augmented, the digits are exported, and mistakes are named."""

from concurrent.futures import ThreadPoolExecutor
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
)
from workloads.images import DataError, ImageFiles, digits_folder, find_images, read_image, split_stratified
from workloads.metric_learning.augmentation import Augmentation, autocontrast
from workloads.metric_learning.sampler import PKSampler


def numbered(labels: list[int]) -> ImageFiles:
    """Return images that do not exist, named by their place."""
    return ImageFiles(
        paths=tuple(Path(str(place)) for place in range(len(labels))),
        labels=tuple(labels),
        classes=tuple(str(label) for label in sorted(set(labels))),
    )


def test_digits_are_exported_complete_even_by_two_at_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(digits_folder, [tmp_path, tmp_path])
    assert first == second
    images = find_images(first)
    assert 1797 == len(images)
    assert tuple("0123456789") == images.classes
    assert ["digits"] == [entry.name for entry in tmp_path.iterdir()]
    assert (8, 8) == read_image(images.paths[0]).size


def test_images_of_any_folder_tree_are_found_by_class(tmp_path: Path) -> None:
    for name in ("cats/a.png", "cats/b.JPG", "dogs/c.bmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (4, 3)).save(tmp_path / name)
    (tmp_path / "cats" / "notes.txt").write_text("no image")
    images = find_images(tmp_path)
    assert ["a.png", "b.JPG", "c.bmp"] == [path.name for path in images.paths]
    assert (0, 0, 1) == images.labels
    assert ("cats", "dogs") == images.classes
    assert "L" == read_image(images.paths[0]).mode


@pytest.mark.parametrize(
    ("folders", "found"),
    [([], "found no folder"), (["data"], "found no subfolder"), (["data", "data/cats"], "found none")],
)
def test_missing_images_are_named_in_one_line(tmp_path: Path, folders: list[str], found: str) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    with pytest.raises(DataError, match=f"{tmp_path / 'data'}.*: expected .*{found}.*; ") as caught:
        find_images(tmp_path / "data")
    assert 1 == len(str(caught.value).splitlines())


@pytest.mark.parametrize("content", [b"", b"no image", None], ids=["empty", "text", "missing"])
def test_unreadable_images_are_named_in_one_line(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.png: expected a readable image, found .*; ") as caught:
        read_image(path)
    assert 1 == len(str(caught.value).splitlines())


def test_split_keeps_every_class_in_its_share() -> None:
    images = numbered([0] * 50 + [1] * 10)
    train, validation = split_stratified(images, seed=3)
    assert (10, 2) == (validation.labels.count(0), validation.labels.count(1))
    assert set(images.paths) == set(train.paths) | set(validation.paths)
    assert len(images) == len(train) + len(validation)


AUGMENTATION = Augmentation(image_size=12)


@pytest.fixture
def images(tmp_path: Path) -> ImageFiles:
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
    dataset = LazyImages(images, AUGMENTATION, seed=1)
    first = dataset[0][0]
    dataset[1]
    assert torch.equal(first, dataset[0][0])
    assert not torch.equal(first, LazyImages(images, AUGMENTATION, seed=2)[0][0])
    dataset.set_epoch(1)
    assert not torch.equal(first, dataset[0][0])


def test_cached_images_are_made_once(images: ImageFiles) -> None:
    first = batch_of([LazyImages(images, AUGMENTATION, seed=1)[3][0]])[0]
    dataset = CachedImages(images, AUGMENTATION, seed=1)
    images.paths[3].unlink()
    dataset.set_epoch(1)
    assert torch.equal(first, dataset[3][0])
    assert images.labels[3] == dataset[3][1]


@pytest.mark.parametrize("how", ["lazy", "cached"])
def test_workers_give_the_same_batches(how: Augmenting, images: ImageFiles) -> None:
    dataset = augmented(images, AUGMENTATION, how=how, seed=1)
    alone = epoch_of(dataset, 0, images.labels)
    assert (4, 1, 12, 12) == alone[0].shape
    assert torch.float32 == alone[0].dtype
    for expected, tensor in zip(alone, epoch_of(dataset, 2, images.labels), strict=True):
        assert torch.equal(expected, tensor)


def as_batch(image: Image.Image) -> Tensor:
    return batch_of([levels_of(image)])


@pytest.mark.parametrize("seed", range(8))
def test_autocontrast_equals_that_of_pil(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    darkest, brightest = sorted(torch.randint(0, 256, (2,), generator=generator).tolist())
    pixels = torch.randint(darkest, brightest + 1, (9, 7), generator=generator, dtype=torch.uint8)
    for levels in (pixels, torch.full_like(pixels, darkest)):
        image = Image.fromarray(levels.numpy())
        assert ImageOps.autocontrast(image).tobytes() == autocontrast(image).tobytes()
