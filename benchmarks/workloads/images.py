"""Images on disk, one folder per class, and their split into training and validation parts."""

import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from PIL import Image

IMAGE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
DIGIT_INTENSITIES = 16

ImageMode = Literal["L", "RGB"]


class DataError(ValueError):
    """The images asked for are missing or unusable; the message names the place and the next step."""


@dataclass(frozen=True, kw_only=True)
class ImageFiles:
    """Image files with the number of the class of each.

    Attributes:
        paths: One file per image.
        labels: The class of each image, an index into `classes`.
        classes: The names of the classes, sorted.
    """

    paths: tuple[Path, ...]
    labels: tuple[int, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def subset(self, indices: Sequence[int]) -> "ImageFiles":
        """Return the images at these indices, in this order; all classes are kept."""
        return ImageFiles(
            paths=tuple(self.paths[index] for index in indices),
            labels=tuple(self.labels[index] for index in indices),
            classes=self.classes,
        )


def cache_folder() -> Path:
    """Return the user's cache folder for the images (XDG base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "perfkit" / "metric_learning"


def digits_folder(cache: Path | None = None) -> Path:
    """Return the folder of handwritten digits, exported there on the first call.

    The folder appears complete or not at all: two processes may ask for it at once, and one may be killed.

    Args:
        cache: Where to keep it; by default the user's cache folder.
    """
    target = (cache or cache_folder()) / "digits"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="digits-") as scratch:
            _publish(_export_digits(Path(scratch) / "digits"), target)
    return target


def _publish(finished: Path, target: Path) -> None:
    try:
        finished.rename(target)
    except OSError:
        # Another process has exported the same images meanwhile; anything else is a failure.
        if not target.is_dir():
            raise
        shutil.rmtree(finished)


def _export_digits(folder: Path) -> Path:
    """Write scikit-learn's handwritten digits as 8x8 grey PNG files, one folder per class."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (pixels, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(label) / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * (255 / DIGIT_INTENSITIES)).astype("uint8")).save(path)
    return folder


def find_images(folder: Path) -> ImageFiles:
    """List the images of a folder that holds one subfolder per class.

    Raises:
        DataError: There is no such folder, or it holds no class, or a class without images.
    """
    if not folder.is_dir():
        raise DataError(
            f"{folder}: expected a folder with one subfolder of images per class, found no folder; "
            "pass an existing folder as data, or none for the bundled digits"
        )
    classes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    if not classes:
        raise DataError(
            f"{folder}: expected one subfolder of images per class, found no subfolder; "
            "put the images of each class into a subfolder of its own"
        )
    found = [(path, label) for label, name in enumerate(classes) for path in _class_images(folder / name)]
    return ImageFiles(
        paths=tuple(path for path, _ in found),
        labels=tuple(label for _, label in found),
        classes=tuple(classes),
    )


def _class_images(folder: Path) -> list[Path]:
    images = sorted(path for path in folder.iterdir() if path.suffix.lower() in IMAGE_SUFFIXES)
    if not images:
        raise DataError(
            f"{folder}: expected image files ({', '.join(sorted(IMAGE_SUFFIXES))}), found none; "
            "add images of this class, or remove the folder"
        )
    return images


def read_image(path: Path, mode: ImageMode = "L") -> Image.Image:
    """Decode one image file to levels from 0 to 255: grey (PIL mode L), or red, green and blue (RGB).

    Raises:
        DataError: The file is missing, or not an image that PIL can decode.
    """
    try:
        with Image.open(path) as image:
            return image.convert(mode)
    # PIL reports broken files as OSError, SyntaxError or ValueError, by format.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{path}: expected a readable image, found {reason}; replace the file or remove it"
        ) from error


def split_stratified(
    images: ImageFiles, *, validation_fraction: float = 0.2, seed: int
) -> tuple[ImageFiles, ImageFiles]:
    """Split into a training and a validation part with about the same share of every class.

    Args:
        images: What to split.
        validation_fraction: Share of each class that goes to validation, rounded down.
        seed: The same seed gives the same split.
    """
    generator = torch.Generator().manual_seed(seed)
    train: list[int] = []
    validation: list[int] = []
    for members in indices_by_class(images.labels).values():
        held_out = math.floor(len(members) * validation_fraction)
        shuffled = [members[place] for place in torch.randperm(len(members), generator=generator).tolist()]
        validation += sorted(shuffled[:held_out])
        train += sorted(shuffled[held_out:])
    return images.subset(train), images.subset(validation)


def indices_by_class(labels: Sequence[int]) -> dict[int, list[int]]:
    """Return the indices of the elements of every class, classes and indices in rising order."""
    groups: dict[int, list[int]] = {label: [] for label in sorted(set(labels))}
    for index, label in enumerate(labels):
        groups[label].append(index)
    return groups


def spread(count: int, *, over: int) -> Iterator[int]:
    """Yield `count` indices spread evenly over `range(over)`, or all of them where there are fewer.

    As images are listed class by class, an even spread holds every class in its share.
    """
    chosen = min(count, over)
    return (place * over // chosen for place in range(chosen))
