"""Six unlike kinds of work and two hard ones, each done in units that all cost the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from doses import EVERY_TENTH, UNITS
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

_TENTH = 10


def dosed(name: str, work: Callable[[int], object]) -> Callable[[], object]:
    """Return a call that does a benchmark's units of work, and its other dose in each tenth call."""
    calls = 0

    def call() -> object:
        nonlocal calls
        calls += 1
        rare = EVERY_TENTH.get(name)
        return work(rare if rare is not None and calls % _TENTH == 0 else UNITS[name])

    return call


def tensor_work() -> Callable[[int], object]:
    """Distances between two sets of points."""
    left, right = torch.randn(24, 16), torch.randn(24, 16)

    def work(units: int) -> object:
        for _ in range(units):
            distances = torch.cdist(left, right)
        return distances

    return work


def loss_work() -> Callable[[int], object]:
    """A contrastive loss."""
    embeddings = torch.randn(24, 8)

    def work(units: int) -> object:
        for _ in range(units):
            loss = (embeddings @ embeddings.T).relu().sum()
        return loss

    return work


def training_work() -> Callable[[int], object]:
    """Steps of a regression: forward, backward, update."""
    weights = torch.zeros(32, 4, requires_grad=True)
    inputs, targets = torch.randn(16, 32), torch.randn(16, 4)

    def work(units: int) -> object:
        for _ in range(units):
            loss = nn.functional.mse_loss(inputs @ weights, targets)
            (gradient,) = torch.autograd.grad(loss, weights)
            weights.data.sub_(gradient, alpha=0.01)
        return weights

    return work


class Images(IterableDataset[list[np.ndarray]]):
    """Batches of so many small images, without end."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        image = np.random.default_rng(0).random((12, 12))
        while True:
            yield [np.sqrt(image) for _ in range(self._size)]


def normalised(image: np.ndarray) -> np.ndarray:
    """Return an image of mean 0 and deviation 1."""
    result: np.ndarray = (image - image.mean()) / image.std()
    return result


def loading_work() -> Callable[[int], object]:
    """A batch, read and normalised; a unit is an image."""
    batches: dict[int, Iterator[list[np.ndarray]]] = {}

    def work(units: int) -> object:
        if units not in batches:
            batches[units] = iter(DataLoader(Images(units), batch_size=None, collate_fn=list))
        return [normalised(image) for image in next(batches[units])]

    return work


def python_work() -> Callable[[int], object]:
    """Counting words in plain Python."""
    words = [f"word{number * 7919 % 61}" for number in range(30)]

    def work(units: int) -> object:
        for _ in range(units):
            counts: dict[str, int] = {}
            for word in words:
                counts[word] = counts.get(word, 0) + len(word)
        return counts

    return work


def allocation_work() -> Callable[[int], object]:
    """Small objects and larger ones, taken and left."""

    def work(units: int) -> object:
        for _ in range(units):
            small = [[number, str(number)] for number in range(30)]
            large = [torch.empty(4000 + 1000 * number).fill_(0.0) for number in range(2)]
        return small, large

    return work


def workers_work() -> Callable[[int], object]:
    """Batches that two worker processes read, normalised by the one who asks; a unit is a batch."""
    batches: list[Iterator[list[np.ndarray]]] = []

    def work(units: int) -> object:
        if not batches:
            # Made in the first call, so that the workers belong to the process that times it.
            loader = DataLoader(Images(20), batch_size=None, num_workers=2, collate_fn=list)
            batches.append(iter(loader))
        for _ in range(units):
            batch = [normalised(image) for image in next(batches[0])]
        return batch

    return work


def threads_work() -> Callable[[int], object]:
    """A convolution, forward and backward, that torch spreads over its threads: some 0.3 s."""
    images, kernels = torch.randn(10, 32, 96, 96), torch.randn(32, 32, 3, 3, requires_grad=True)

    def work(units: int) -> object:
        for _ in range(units):
            loss = nn.functional.conv2d(images, kernels, padding=1).square().mean()
            (gradient,) = torch.autograd.grad(loss, kernels)
        return gradient

    return work
