"""What the benchmarks share: random embeddings in balanced classes, and the digits on disk."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from workloads.images import ImageFiles, digits_folder, find_images

CLASSES = 10
# The calibration suite is measured between commits of its own.
collect_ignore = ["calibration"]


@pytest.fixture
def random_embeddings() -> Callable[[int, int], tuple[Tensor, Tensor]]:
    """Return a function from N and a dimension to embeddings (N, dimension) and labels (N,)."""

    def make(n: int, dimension: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(n, dimension, generator=generator), torch.arange(n) % CLASSES

    return make


@pytest.fixture(scope="session")
def digits() -> Path:
    """Return the folder of handwritten digits, which the first session exports to the user's cache."""
    return digits_folder()


@pytest.fixture(scope="session")
def digit_files(digits: Path) -> ImageFiles:
    """Return the list of the handwritten digits."""
    return find_images(digits)
