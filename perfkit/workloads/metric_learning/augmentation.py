"""Random changes to an image that leave its class alone."""

import math
from dataclasses import dataclass

import torch
from PIL import Image, ImageOps
from torch import Tensor


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
        """Return a changed copy of a grey image; all chance comes from the generator."""
        cropped = self._resized_crop(image, generator)
        turn = _uniform(-self.largest_turn, self.largest_turn, generator)
        rotated = cropped.rotate(turn, resample=Image.Resampling.BILINEAR)
        if _uniform(0, 1, generator) < self.autocontrast_probability:
            return ImageOps.autocontrast(rotated)
        return rotated

    def _resized_crop(self, image: Image.Image, generator: torch.Generator) -> Image.Image:
        share = math.sqrt(_uniform(self.smallest_crop, 1, generator))
        width, height = image.width * share, image.height * share
        left = _uniform(0, image.width - width, generator)
        top = _uniform(0, image.height - height, generator)
        return image.resize(
            (self.image_size, self.image_size),
            resample=Image.Resampling.BILINEAR,
            box=(left, top, left + width, top + height),
        )


def _uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * torch.rand((), generator=generator).item()


def as_tensor(image: Image.Image) -> Tensor:
    """Return a grey image as a (1, height, width) float tensor from 0 to 1."""
    pixels = torch.tensor(list(image.tobytes()), dtype=torch.float32)
    return pixels.reshape(1, image.height, image.width) / 255
