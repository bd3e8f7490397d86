"""Losses: a forward and a backward pass."""

from collections.abc import Callable

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture
from torch import Tensor, nn
from workloads.metric_learning.losses import (
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    ContrastiveLoss,
)

DIMENSION = 5
SIZES = (64, 200, 500)
# All triplets of 500 elements are 11 million terms.
ALL_TRIPLETS_SIZES = (64, 200)

MakeEmbeddings = Callable[[int, int], tuple[Tensor, Tensor]]


def loss_and_gradient(loss: nn.Module, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss and its gradient with respect to the embeddings."""
    leaf = embeddings.detach().requires_grad_()
    value = loss(leaf, labels)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value, gradient


@pytest.mark.benchmark(group="losses", min_rounds=5, max_time=0.5)
@pytest.mark.parametrize("n", SIZES)
def test_batch_hard_triplet_loss(
    benchmark: BenchmarkFixture, random_embeddings: MakeEmbeddings, n: int
) -> None:
    """Each element with its farthest fellow and its nearest stranger."""
    embeddings, labels = random_embeddings(n, DIMENSION)
    value, gradient = benchmark(loss_and_gradient, BatchHardTripletLoss(0.2), embeddings, labels)
    assert value > 0
    assert gradient.isfinite().all()


@pytest.mark.benchmark(group="losses", min_rounds=5, max_time=0.5)
@pytest.mark.parametrize("n", ALL_TRIPLETS_SIZES)
def test_batch_all_triplet_loss(
    benchmark: BenchmarkFixture, random_embeddings: MakeEmbeddings, n: int
) -> None:
    """All triplets, the mean of those that cost something."""
    embeddings, labels = random_embeddings(n, DIMENSION)
    loss = BatchAllTripletLoss(0.2, only_positive=True)
    value, gradient = benchmark(loss_and_gradient, loss, embeddings, labels)
    assert value > 0
    assert gradient.isfinite().all()


@pytest.mark.benchmark(group="losses", min_rounds=5, max_time=0.5)
@pytest.mark.parametrize("n", SIZES)
def test_contrastive_loss(benchmark: BenchmarkFixture, random_embeddings: MakeEmbeddings, n: int) -> None:
    """All pairs."""
    embeddings, labels = random_embeddings(n, DIMENSION)
    value, gradient = benchmark(loss_and_gradient, ContrastiveLoss(2.0), embeddings, labels)
    assert value > 0
    assert gradient.isfinite().all()
