"""Changes images at random, without changing their class."""

import math
from dataclasses import dataclass
from functools import cache
from typing import cast

import torch
from PIL import Image


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random resized crop, rotation and autocontrast.

    Attributes:
        image_size: Height and width of the result, in pixels.
        smallest_crop: Smallest area of the crop, as a share of the image's area.
        largest_turn: Largest rotation to either side, in degrees.
        autocontrast_probability: How often the grey levels are stretched to their full range.
    """

    image_size: int
    smallest_crop: float = 0.7
    largest_turn: float = 15.0
    autocontrast_probability: float = 0.5

    def __call__(self, image: Image.Image, generator: torch.Generator) -> Image.Image:
        """Return a changed copy of a grey image; all random numbers come from the generator."""
        share, left, top, turn, contrast = torch.rand(5, generator=generator).tolist()
        cropped = self._resized_crop(image, share, left, top)
        angle = _between(-self.largest_turn, self.largest_turn, turn)
        rotated = cropped.rotate(angle, resample=Image.Resampling.BILINEAR)
        return autocontrast(rotated) if contrast < self.autocontrast_probability else rotated

    def _resized_crop(self, image: Image.Image, share: float, left: float, top: float) -> Image.Image:
        side = math.sqrt(_between(self.smallest_crop, 1, share))
        width, height = image.width * side, image.height * side
        x = _between(0, image.width - width, left)
        y = _between(0, image.height - height, top)
        return image.resize(
            (self.image_size, self.image_size),
            resample=Image.Resampling.BILINEAR,
            box=(x, y, x + width, y + height),
        )


def _between(low: float, high: float, place: float) -> float:
    return low + (high - low) * place


def autocontrast(image: Image.Image) -> Image.Image:
    """Return a grey image stretched to its full range, as PIL's ImageOps.autocontrast does."""
    darkest, brightest = cast("tuple[int, int]", image.getextrema())
    if brightest <= darkest:
        return image
    stretched = image.tobytes().translate(_stretch(darkest, brightest))
    return Image.frombytes("L", image.size, stretched)


@cache
def _stretch(darkest: int, brightest: int) -> bytes:
    """Return the new level of every level; PIL would compute this table anew for every image."""
    scale = 255 / (brightest - darkest)
    return bytes(min(max(int(level * scale - darkest * scale), 0), 255) for level in range(256))
