"""Gives all images one size, and mirrors some of them."""

from dataclasses import dataclass

import torch
from PIL import Image


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Resizing and a random horizontal flip.

    Attributes:
        image_size: Height and width of the result, in pixels.
        flip_probability: How often left and right change places.
    """

    image_size: int
    flip_probability: float = 0.5

    def __call__(self, image: Image.Image, generator: torch.Generator) -> Image.Image:
        """Return a changed copy of an image; all random numbers come from the generator."""
        resized = image.resize((self.image_size, self.image_size), resample=Image.Resampling.BILINEAR)
        flipped = torch.rand((), generator=generator).item() < self.flip_probability
        return resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if flipped else resized
